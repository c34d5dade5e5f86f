// Memory for rows that follow an answer: used again when the program has them, and not before.
import { expect, it } from 'vitest';
import { InFlightRoom } from '../../../src/library/client/room.js';
import { ProgramRoom } from '../../../src/training/gateway/program-room.js';

const FLOATS = 100_000;
const opened = () => new ProgramRoom(new InFlightRoom(1 << 30), new AbortController().signal);

it('rows of an answer that the program has lie where later ones do', () => {
  const [one, other] = [opened(), opened()];
  const rows = one.rows(FLOATS)!;
  expect([rows.length, one.isUsed]).toEqual([FLOATS, true]);
  expect(other.rows(FLOATS)!.buffer).not.toBe(rows.buffer);
  one.end();
  expect(opened().rows(FLOATS)!.buffer).toBe(rows.buffer);
});

it('rows that a request may still write after it has failed are used by nobody else', () => {
  const failed = opened();
  const rows = failed.rows(FLOATS)!;
  failed.abandon();
  failed.end();
  expect(opened().rows(FLOATS)!.buffer).not.toBe(rows.buffer);
  expect(failed.isUsed).toBe(false);
});

it('rows of more than 256 MiB have an array of their own', () => {
  expect(opened().rows((64 << 20) + 1)).toBeUndefined();
});

it('what was reserved is free for others when the program has the answer', async () => {
  const room = new InFlightRoom(100);
  const { signal } = new AbortController();
  const [one, other] = [new ProgramRoom(room, signal), new ProgramRoom(room, signal)];
  await one.reserve(80);
  let isThere = false;
  const reserved = other.reserve(80).then(() => {
    isThere = true;
  });
  await new Promise(setImmediate);
  expect(isThere).toBe(false);
  one.end();
  await reserved;
  expect(isThere).toBe(true);
});
