// The queue of pulls without room by itself: who is let through, and who waits behind whom.
import { describe, expect, it } from 'vitest';
import { AnswerQueue } from '../../../src/core/node/answer-queue.js';
import { Outbox } from '../../../src/core/shared/outbox.js';
import { DEFAULT_POLICY } from '../../../src/core/shared/policy.js';
import { Turn } from '../../../src/core/shared/turn.js';
import { WaitingBytes } from '../../../src/core/shared/waiting-bytes.js';

const STALL = 1000;
/** Clients with little hold up to 1,000 bytes each and 16,000 together, the others 48,000. */
const LIMIT = 64_000;

function start() {
  const policy = { ...DEFAULT_POLICY, maxAnswerBytes: LIMIT, answerStallMs: STALL };
  let now = 0;
  const turn = new Turn(policy);
  const queue = new AnswerQueue({
    ...{ policy, turn, now: () => now },
    ...{ waiting: new WaitingBytes(1 << 20), out: new Outbox() },
  });
  const served: number[] = [];
  const owner = { serveCharged: ({ client }: { client: number }) => void served.push(client), expire() {} };
  let id = 0;
  return {
    queue,
    served,
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
    serve: () => {
      turn.begin();
      queue.serve();
      return served.splice(0);
    },
  };
}

describe('a large answer that has waited for long', () => {
  it('goes before all others for the same room, and small ones have theirs', () => {
    const { queue, ask, at, serve } = start();
    expect([1, 2, 3].map((client) => ask(client, 15_000))).toEqual([true, true, true]);
    expect(ask(4, 10_000)).toBe(false);
    at(STALL);
    // Their sockets go on taking something, so nobody is hung up.
    queue.report([1, 2, 3].map((client) => [client, 14_900]));
    queue.tick();
    expect(serve()).toEqual([]);
    expect([ask(5, 500), ask(6, 2000)]).toEqual([true, false]);
    queue.report([[5, 0]]);
    expect(serve()).toEqual([]);
    queue.report([[1, 0]]);
    expect(serve()).toEqual([4, 6]);
  });
});
