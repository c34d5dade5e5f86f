// A client as users see it: its type is an interface, and what is behind it shows nothing of its connection.
import { inspect } from 'node:util';
import { expect, it } from 'vitest';
import { internalsOf } from '../../../src/library/client/connected.js';
import { digest } from '../../../src/library/tools/digest.js';
import { client, cluster, rejection } from '../../roles/support.js';

it('a client that is printed or serialized shows no token', async () => {
  const { address } = await cluster({ code: '1+1', token: 'a secret' });
  const job = await client(address, { token: 'a secret' });
  expect(inspect(job, { depth: 9, showHidden: true })).not.toContain('a secret');
  expect([Object.keys(job), JSON.stringify(job)]).toEqual([[], '{}']);
  expect(internalsOf(job).session.id).toBe(job.id);
});

it('an object that looks like a client is refused', async () => {
  const job = await client((await cluster({ code: '1+1' })).address);
  const { code, message } = await rejection(digest({ ...job, id: 1 }));
  expect([code, message]).toEqual(['BAD_ARGUMENT', 'client must be what connect has given']);
});
