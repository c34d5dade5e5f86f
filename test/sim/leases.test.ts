import { describe, expect, it } from 'vitest';
import type { DurableState } from '../../src/core/scheduler/scheduler.js';
import type { Message, MessageOf } from '../../src/protocol/messages.js';
import { Leases } from '../../src/sim/leases.js';
import { Violation } from '../../src/sim/violation.js';

const RANGE = { number: 2, epoch: 0, file: 0, begin: 40, end: 80 };

const acquired = (id: number): MessageOf<'acquired'> => ({
  ...{ t: 'acquired', id, range: RANGE, session: 11, done: 0, begun: 0, leaseMs: 900 },
});

const failed = (lease: number): Message => ({
  ...{ t: 'release', id: 9, name: 'samples', number: 2, lease, done: 0, begun: 2 },
  ...{ samples: 40, redone: 0, outcome: 'failed', batch: 0, code: 'UNRECOVERABLE', message: '' },
});

/** The checker, and the worker that has the range on the scheduler's disk. */
function checker() {
  const onDisk = { number: 2, worker: 8, lease: 4, session: 11, done: 0 };
  const leases = new Leases(
    () => ({ datasets: [{ open: new Map([[onDisk.number, onDisk]]) }] }) as unknown as DurableState,
  );
  return { leases, onDisk };
}

describe('the check of leases', () => {
  it('takes a late answer to a repeated request for what it is (seed 71274230)', () => {
    const { leases, onDisk } = checker();
    leases.sent(8, acquired(4));
    leases.received(8, failed(4));
    leases.sent(8, acquired(4));
    onDisk.worker = 3;
    onDisk.lease = 6;
    leases.sent(3, acquired(6));
  });

  it('finds a range that two workers have', () => {
    const { leases, onDisk } = checker();
    leases.sent(8, acquired(4));
    onDisk.worker = 3;
    onDisk.lease = 6;
    expect(() => leases.sent(3, acquired(6))).toThrow(Violation);
  });

  it('takes a lease and its loss in one transaction for what they are (seed 5190)', () => {
    const { leases, onDisk } = checker();
    onDisk.worker = 0;
    leases.sent(8, acquired(4));
    leases.sent(8, { t: 'rangeLost', name: 'samples', number: 2, lease: 4 });
    leases.settled();
  });

  it('takes two answers and the loss of the lease for what they are (seed 2206001939)', () => {
    const { leases, onDisk } = checker();
    onDisk.worker = 0;
    leases.sent(8, acquired(4));
    leases.sent(8, acquired(4));
    leases.sent(8, { t: 'rangeLost', name: 'samples', number: 2, lease: 4 });
    leases.settled();
  });

  it('takes two ranges that are lost in one transaction for what they are (seed 2511005425)', () => {
    const { leases, onDisk } = checker();
    onDisk.worker = 0;
    const other = { ...acquired(6), range: { ...RANGE, number: 3 }, session: 12 };
    leases.sent(8, acquired(4));
    leases.sent(7, other);
    leases.sent(8, { t: 'rangeLost', name: 'samples', number: 2, lease: 4 });
    leases.sent(7, { t: 'rangeLost', name: 'samples', number: 3, lease: 6 });
    leases.settled();
  });

  it('takes an answer for what it is when batches were reported since (seed 2217005504)', () => {
    const { leases, onDisk } = checker();
    leases.sent(8, acquired(4));
    onDisk.done = 3;
    leases.sent(8, acquired(4));
    leases.settled();
  });

  it('finds a lease that begins before the batches that are on the disk', () => {
    const { leases, onDisk } = checker();
    onDisk.done = 3;
    leases.sent(8, acquired(4));
    expect(() => leases.settled()).toThrow(Violation);
  });

  it('takes a lease for what it is when an earlier worker finishes the range (seed 2204001722)', () => {
    const { leases, onDisk } = checker();
    leases.sent(8, acquired(4));
    leases.received(8, { ...failed(4), session: 11, outcome: 'finished' } as Message);
    onDisk.number = 3;
    leases.sent(3, acquired(6));
    leases.settled();
  });

  it('finds a lease that is not on the disk', () => {
    const { leases } = checker();
    leases.sent(8, acquired(5));
    expect(() => leases.settled()).toThrow(Violation);
  });
});
