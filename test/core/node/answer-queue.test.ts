// The queue of pulls without room by itself: who is let through, and who waits behind whom.
import { describe, expect, it } from 'vitest';
import { AnswerQueue } from '../../../src/core/node/answer-queue.js';
import type { PullOwner } from '../../../src/core/shard/host.js';
import { Outbox } from '../../../src/core/shared/outbox.js';
import { DEFAULT_POLICY } from '../../../src/core/shared/policy.js';
import { Turn } from '../../../src/core/shared/turn.js';
import { WaitingBytes } from '../../../src/core/shared/waiting-bytes.js';

const STALL = 1000;
/** Clients with little hold up to 100 KB each and 1.6 MB together, the others 4.8 MB. */
const LIMIT = 6_400_000;
const MB = 1_000_000;

function start() {
  // Turns have room for everything here: the rooms of answers are looked at.
  const turns = { maxTurnRows: 1000, maxTurnBytes: 16 * MB };
  const policy = { ...DEFAULT_POLICY, ...turns, maxAnswerBytes: LIMIT, answerStallMs: STALL };
  let now = 0;
  const turn = new Turn(policy);
  const out = new Outbox();
  const none = () => {
    throw new Error('no answer here is larger than a turn');
  };
  const memory = (bytes: number) => ({ memory: new Uint8Array(bytes), at: 0, took() {}, drop() {} });
  const waiting = new WaitingBytes(1 << 20);
  const queue = new AnswerQueue({ policy, turn, now: () => now, waiting, out, memory });
  const served: number[] = [];
  /** Bytes of the memory that the answers were given; 0: none. */
  const given: number[] = [];
  const owner: PullOwner = {
    serveCharged({ client }, _, own) {
      served.push(client);
      given.push(own?.memory.byteLength ?? 0);
    },
    readSlice: none,
    serveSliced: none,
    expire() {},
  };
  let id = 0;
  return {
    queue,
    served,
    given,
    at: (ms: number) => {
      now = ms;
    },
    /** True: it is answered at once. */
    ask: (client: number, bytes: number): boolean => {
      const pull = { client, bytes, rows: 1, id: ++id, first: id, item: 0, at: now, since: now };
      const taken = queue.take(pull);
      if (!taken) queue.wait(owner, pull, new Uint8Array(4));
      return taken;
    },
    /** Clients that were hung up on. */
    hungUp: () => out.take().flatMap((effect) => (effect.kind === 'hangUp' ? [effect.peer] : [])),
    serve: () => {
      turn.begin();
      queue.serve();
      return served.splice(0);
    },
  };
}

/** So many clients of numbers from `first` on. */
const clients = (first: number, count: number): number[] =>
  Array.from({ length: count }, (_, index) => first + index);

it('gives an answer of 64 KiB or more that has waited memory of its own, and a smaller one none', () => {
  const { queue, ask, serve, given } = start();
  for (const client of [1, 2, 3]) ask(client, 1.5 * MB);
  expect([ask(4, 64 << 10), ask(4, (64 << 10) - 8)]).toEqual([true, true]);
  expect([ask(5, MB), ask(5, 64 << 10), ask(5, (64 << 10) - 8)]).toEqual([false, false, false]);
  for (const client of [1, 2, 3]) queue.report([[client, 0]]);
  expect(serve()).toEqual([5, 5, 5]);
  expect(given).toEqual([MB, 64 << 10, 0]);
});

describe('a large answer that has waited for long', () => {
  it('goes before all others for the same room, and small ones have theirs', () => {
    const { queue, ask, at, serve, hungUp } = start();
    expect([1, 2, 3].map((client) => ask(client, 1.5 * MB))).toEqual([true, true, true]);
    expect(ask(4, MB)).toBe(false);
    at(STALL);
    // Their sockets go on taking much, so nobody is hung up.
    queue.report([1, 2, 3].map((client) => [client, 1.4 * MB]));
    queue.tick();
    expect([serve(), hungUp()]).toEqual([[], []]);
    expect([ask(5, MB / 20), ask(6, MB / 5)]).toEqual([true, false]);
    queue.report([[5, 0]]);
    expect(serve()).toEqual([]);
    queue.report([[1, 0]]);
    expect(serve()).toEqual([4, 6]);
  });

  it('keeps no room when its client is gone', () => {
    const { queue, ask, at, serve } = start();
    for (const client of [1, 2, 3]) ask(client, 1.5 * MB);
    ask(4, MB);
    at(STALL);
    queue.report([1, 2, 3].map((client) => [client, 1.4 * MB]));
    queue.tick();
    serve();
    queue.gone(4);
    expect(ask(6, MB / 5)).toBe(true);
  });
});

describe('a client that is hung up', () => {
  /** Clients 1 to 16 fill the room of small answers, and another one waits for it. */
  function full() {
    const started = start();
    const drips = clients(1, 16);
    expect(drips.every((client) => started.ask(client, 95_000))).toBe(true);
    started.queue.report(drips.map((client) => [client, 95_064]));
    expect(started.ask(20, 99_900)).toBe(false);
    return { ...started, drips };
  }

  it('has taken a few bytes now and then', () => {
    const { queue, drips, at, serve, hungUp } = full();
    for (const ms of [300, 600, 900]) {
      at(ms);
      queue.report(drips.map((client) => [client, 95_064 - ms]));
    }
    at(STALL);
    queue.tick();
    expect(hungUp()).toHaveLength(1);
    expect(serve()).toEqual([20]);
  });

  it('is one of the room that others wait for', () => {
    const { queue, ask, at, serve, hungUp } = start();
    for (const client of [1, 2, 3]) ask(client, 1.4 * MB);
    for (const client of clients(4, 16)) ask(client, 95_000);
    ask(20, 99_900);
    at(STALL);
    queue.tick();
    const [small, ...others] = hungUp();
    expect([small! >= 4, others]).toEqual([true, []]);
    expect(serve()).toEqual([20]);
  });

  it('is one of each room while others wait for both', () => {
    const { queue, ask, at, serve, hungUp } = start();
    for (const client of [1, 2, 3]) ask(client, 1.5 * MB);
    for (const client of clients(4, 16)) ask(client, 95_000);
    ask(20, 95_000);
    ask(21, MB);
    at(STALL);
    queue.tick();
    expect(hungUp().map((client) => client >= 4)).toEqual([true, false]);
    expect(serve().sort()).toEqual([20, 21]);
  });
});
