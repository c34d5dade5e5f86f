/** The audit of replicas in `bench chaos` finds what it is there for. */
import { beforeEach, expect, it } from 'vitest';
import { type AuditedRows, ReplicaAudit } from '../../bench/chaos/replica-audit.js';
import { KintsugiError } from '../../src/common/errors.js';
import type { Client } from '../../src/library/client/client.js';
import type { ReplicaAnswer } from '../../src/library/client/options.js';
import { monotonicMs } from '../../src/net/log.js';

/** Next answer of the replica: values of the one row, its position, generation and age. */
let next: { values: number[]; position: number; generation: number; lagMs: number };
beforeEach(() => {
  next = { values: [0, 0], position: 1, generation: 1, lagMs: 10_000 };
});

let sent = 0;
function audit(): ReplicaAudit {
  sent = 0;
  const reader = {
    clusterMap: { pools: [{ name: 'embedding', k: 1, r: 0, firstGroup: 0, groups: 1 }] },
    table: () => ({ spec: { pool: 'embedding' } }),
    pull: async (_: unknown, { onAnswer }: { onAnswer(answer: ReplicaAnswer): void }) => {
      const { values, position, generation, lagMs } = next;
      if (lagMs < 0) throw new KintsugiError('STALE_REPLICA', 'none');
      onAnswer({ lagMs, states: [{ pool: 'embedding', shard: 0, generation, position }] });
      return [Float32Array.from(values)];
    },
  };
  const keys = BigUint64Array.of(3n);
  const rows: AuditedRows = { table: 't', dim: 2, keys, sent: () => sent, sum: (pushes) => pushes * 10 };
  return new ReplicaAudit(reader as unknown as Client, rows);
}

it('takes what an owner may have had', async () => {
  const auditor = audit();
  expect(await auditor.check()).toEqual({ wrong: undefined, complete: true });
  sent = 2;
  auditor.durable([0]);
  next = { ...next, values: [20, 20], position: 2 };
  expect(await auditor.check()).toEqual({ wrong: undefined, complete: false });
  // Older, and at an older position.
  next = { ...next, values: [0, 0], position: 1 };
  expect((await auditor.check()).wrong).toBeUndefined();
  // Pushes that were not durable are gone with their owner.
  next = { ...next, values: [10, 10], position: 2, generation: 2 };
  expect((await auditor.check()).wrong).toBeUndefined();
  next.lagMs = -1;
  expect(await auditor.check()).toEqual({ wrong: undefined, complete: false });
  expect(auditor.counts).toEqual({ reads: 4, refused: 1, longestLagMs: 10_000 });
});

it('refuses everything else', async () => {
  const auditor = audit();
  sent = 2;
  const wrong = async (change: Partial<typeof next>) => {
    next = { ...next, ...change };
    return (await auditor.check()).wrong;
  };
  expect(await wrong({ values: [10, 20] })).toContain('torn');
  expect(await wrong({ values: [15, 15] })).toContain('no prefix');
  expect(await wrong({ values: [30, 30] })).toContain('no prefix');
  expect(await wrong({ values: [10, 10], position: 5 })).toBeUndefined();
  expect(await wrong({ values: [0, 0], position: 6 })).toContain('at 6, and had 1 at 5');
  expect(await wrong({ values: [20, 20], position: 4 })).toContain('at 4, and had 1 at 5');
  expect(await wrong({ values: [20, 20], position: 5 })).toContain('at 5, and had 1 at 5');
  auditor.durable([0]);
  const now = monotonicMs();
  while (monotonicMs() === now);
  expect(await wrong({ values: [0, 0], position: 4, lagMs: 0 })).toContain('0 of 1 acknowledged');
});
