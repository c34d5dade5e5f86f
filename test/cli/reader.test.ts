// `kintsugi reader` is for programs that start it with a socket.
import { expect, it } from 'vitest';
import { kintsugi } from './support.js';

it('says so where nobody is at its input', async () => {
  const { code, stderr } = await kintsugi(['reader']);
  expect([code, stderr]).toEqual([2, expect.stringContaining('BAD_ARGUMENT: a program such as Python')]);
});
