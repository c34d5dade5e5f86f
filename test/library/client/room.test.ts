// The bytes of pushes under way: who waits for room gets it in the order of coming.
import { expect, test } from 'vitest';
import { KintsugiError } from '../../../src/common/errors.js';
import { InFlightRoom } from '../../../src/library/client/room.js';

/** Asks for room; what came of it is written down in the order of the answers. */
function asker(room: InFlightRoom) {
  const said: string[] = [];
  const ask = (name: string, bytes: number, signal?: AbortSignal) =>
    room.take(bytes, signal).then(
      () => void said.push(name),
      (error: KintsugiError) => void said.push(`${name} ${error.code}`),
    );
  return { said, ask };
}

const turn = () => new Promise((resolve) => setImmediate(resolve));

test('a large push gets its room while small ones come and go', async () => {
  const room = new InFlightRoom(100);
  const { said, ask } = asker(room);
  for (let i = 0; i < 10; i++) await room.take(10, undefined);
  void ask('large', 50);
  // As each small one ends, the next one asks. Were it given the room, the large one would wait for ever.
  for (let i = 0; i < 5; i++) {
    room.free(10);
    void ask(`small ${i}`, 10);
    await turn();
  }
  expect(said).toEqual(['large']);
  for (let i = 0; i < 5; i++) room.free(10);
  await turn();
  expect(said).toEqual(['large', 'small 0', 'small 1', 'small 2', 'small 3', 'small 4']);
});

test('one piece of room that is free is for as many in turn as fit', async () => {
  const room = new InFlightRoom(100);
  const { said, ask } = asker(room);
  await room.take(100, undefined);
  for (const [name, bytes] of [
    ['a', 40],
    ['b', 40],
    ['c', 40],
    ['d', 10],
  ] as const)
    void ask(name, bytes);
  room.free(100);
  await turn();
  // d would fit beside a and b, and c was there before.
  expect(said).toEqual(['a', 'b']);
  room.free(40);
  await turn();
  expect(said).toEqual(['a', 'b', 'c', 'd']);
});

test('a push that is larger than all room passes alone', async () => {
  const room = new InFlightRoom(100);
  const { said, ask } = asker(room);
  await room.take(1, undefined);
  void ask('giant', 1000);
  void ask('small', 1);
  await turn();
  expect(said).toEqual([]);
  room.free(1);
  await turn();
  expect(said).toEqual(['giant']);
  room.free(1000);
  await turn();
  expect(said).toEqual(['giant', 'small']);
});

test('one that is aborted leaves its place to those behind it', async () => {
  const room = new InFlightRoom(100);
  const { said, ask } = asker(room);
  await room.take(60, undefined);
  const abort = new AbortController();
  void ask('large', 80, abort.signal);
  void ask('small', 40);
  await turn();
  expect(said).toEqual([]);
  abort.abort();
  await turn();
  expect(said.sort()).toEqual(['large ABORTED', 'small']);
  // The aborted push takes no room.
  room.free(60);
  await ask('next', 60, abort.signal);
  void ask('over', 1, abort.signal);
  await turn();
  expect(said.slice(2)).toEqual(['next', 'over ABORTED']);
});

test('all who wait are told of the end', async () => {
  const room = new InFlightRoom(100);
  const { said, ask } = asker(room);
  await room.take(100, undefined);
  void ask('a', 10);
  void ask('b', 10);
  room.end(new KintsugiError('CLOSED', 'over'));
  await turn();
  expect(said).toEqual(['a CLOSED', 'b CLOSED']);
  await ask('c', 10);
  expect(said).toEqual(['a CLOSED', 'b CLOSED', 'c CLOSED']);
});

test('what is free is taken at once, but not before those that wait', async () => {
  const room = new InFlightRoom(100);
  expect([room.takeNow(60), room.takeNow(60), room.takeNow(40)]).toEqual([true, false, true]);
  const { said, ask } = asker(room);
  void ask('waits', 50);
  room.free(40);
  expect(room.takeNow(10)).toBe(false);
  room.free(60);
  await turn();
  expect(said).toEqual(['waits']);
});
