import { expect, test } from 'vitest';
import { Stop } from '../../../src/training/loop/stop.js';

test('nothing is kept of a wait that is over, however it ended', async () => {
  const stop = new Stop();
  expect(await stop.orStopped(Promise.resolve('here'))).toBe('here');
  await expect(stop.orStopped(Promise.reject(new Error('no')))).rejects.toThrow('no');
  expect(stop.waiting).toBe(0);
  const never = new Promise<string>(() => {});
  const waits = [stop.orStopped(never), stop.orStopped(never)];
  expect(stop.waiting).toBe(2);
  stop.stop();
  expect(await Promise.all(waits)).toEqual([undefined, undefined]);
  expect(stop.waiting).toBe(0);
});

test('what is there already counts also when all is stopped', async () => {
  const stop = new Stop();
  stop.stop();
  expect(await stop.orStopped(Promise.resolve('here'))).toBe('here');
  expect(await stop.orStopped(new Promise(() => {}))).toBeUndefined();
  expect(stop.waiting).toBe(0);
});
