/** Pushes that are held back for a checkpoint with a barrier. */
import { describe, expect, it } from 'vitest';
import { PushHold } from '../../../src/library/client/holding.js';
import type { Message } from '../../../src/protocol/messages.js';

const turn = () => new Promise<void>((resolve) => setImmediate(() => setImmediate(resolve)));

function holding() {
  const told: Message[] = [];
  const state = { unacknowledged: 0 };
  const made = new PushHold({ tell: (m) => told.push(m), unacknowledged: () => state.unacknowledged });
  return { holding: made, told, state };
}

describe('a client that is asked to hold its pushes back', () => {
  it('says so when no call is in the middle of its pushes and all are acknowledged', async () => {
    const { holding: held, told, state } = holding();
    held.reports = () => [{ name: 'd', number: 1, lease: 2, done: 3, begun: 3, clock: 3 }];
    expect(held.enter()).toBeUndefined();
    state.unacknowledged = 1;
    held.onHold({ t: 'hold', id: 7, ms: 60_000 });
    await turn();
    expect(told).toEqual([]);
    held.leave();
    await turn();
    expect(told).toEqual([]);
    state.unacknowledged = 0;
    held.look();
    await turn();
    expect(told).toMatchObject([{ t: 'held', id: 7, ranges: [{ number: 1, done: 3 }] }]);
    held.onHold({ t: 'hold', id: 7, ms: 60_000 });
    await turn();
    expect(told.length).toBe(2);
    held.end();
  });

  it('begins no call until it may go on', async () => {
    const { holding: held } = holding();
    held.onHold({ t: 'hold', id: 7, ms: 60_000 });
    let begun = false;
    const later = held.enter()!.then(() => {
      begun = true;
    });
    held.onResume({ t: 'resume', id: 6 });
    await turn();
    expect(begun).toBe(false);
    held.onResume({ t: 'resume', id: 7 });
    await later;
    expect(begun).toBe(true);
  });

  it('goes on by itself when the time is up', async () => {
    const { holding: held } = holding();
    held.onHold({ t: 'hold', id: 7, ms: 1 });
    await held.enter();
    expect(held.enter()).toBeUndefined();
  });

  it('does not keep a call whose signal fires', async () => {
    const { holding: held, told } = holding();
    held.onHold({ t: 'hold', id: 7, ms: 60_000 });
    const stop = new AbortController();
    const late = expect(held.enter(stop.signal)).rejects.toMatchObject({ code: 'ABORTED' });
    stop.abort();
    await late;
    await expect(held.enter(stop.signal)).rejects.toMatchObject({ code: 'ABORTED' });
    await turn();
    expect(told.length).toBe(1);
    held.end();
  });
});
