/** A client of a benchmark, seen from its parent: no report of it is missed. */
import type { ChildProcess } from 'node:child_process';
import { expect, onTestFinished, test } from 'vitest';
import type { ClientReport } from '../../bench/common/training/child.js';
import { BenchClient } from '../../bench/common/training/client.js';

test('a report is found that comes in the same turn as another one', async () => {
  const nothing = { rows: 1, dim: 1, batch: 1, compute: 0 };
  // The client reaches no scheduler and ends soon: its reports are made up here.
  const client = new BenchClient({ job: 'train', scheduler: '127.0.0.1:1', ...nothing });
  onTestFinished(() => client.kill());
  const { process } = client as unknown as { process: ChildProcess };
  const found = client.report((each): each is ClientReport & { kind: 'paused' } => each.kind === 'paused');
  process.emit('message', { kind: 'progress', mono: 1, samples: 1, slowestMs: 1 }, undefined);
  process.emit('message', { kind: 'paused' }, undefined);
  expect(await found).toEqual({ kind: 'paused' });
});
