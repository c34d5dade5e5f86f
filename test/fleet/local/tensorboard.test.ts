/** `kintsugi local --tensorboard`: a run for each process and one for the job, as TensorBoard reads them. */
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { startLocalCluster } from '../../../src/roles/cluster.js';
import { writeDemoData } from '../../../src/training/loop/demo-data.js';
import { kintsugi, record, start } from '../../cli/support.js';
import { PYTHON, readScalars } from '../../library/observe/python.js';

it.skipIf(!PYTHON)(
  'loss, AUC, throughput and load of every process can be read',
  { timeout: 240_000 },
  async () => {
    const directory = mkdtempSync(join(tmpdir(), 'kintsugi-tensorboard-'));
    onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
    const [train, test, board] = ['train.tsv', 'test.tsv', 'board'].map((name) => join(directory, name));
    await writeDemoData({ train: train!, test: test!, rows: 30_000, testRows: 500, keys: 5000, seed: 1 });
    const data = ['--data', train!, '--test', test!, '--epochs', '2', '--batch', '64', '--quiet'];
    const job = ['--ps', '3', '--code', '2+1', '--workers', '1', '--dim', '8', '--bottom', '16-8'];
    const { stderr, code } = await kintsugi(['local', ...data, ...job, '--tensorboard', board!]);
    expect([stderr, code]).toEqual(['', 0]);

    expect(readdirSync(board!).sort()).toEqual(['job', 'ps-0', 'ps-1', 'ps-2', 'worker-0']);
    const names = ['job', 'ps-0', 'worker-0'].map((name) => join(board!, name));
    const [whole, ps, worker] = Object.values(readScalars(names));
    const last = (values: [number, number][] | undefined) => values?.at(-1)?.[1];
    expect(last(whole!['test/auc'])).toBeGreaterThan(0.5);
    expect(last(whole!['throughput/samples_per_second'])).toBeGreaterThanOrEqual(0);
    expect(last(ps!['process/rss_bytes'])).toBeGreaterThan(1 << 20);
    expect(last(ps!['memory/variable_bytes'])).toBeGreaterThan(1 << 16);
    expect(last(ps!['process/cpu_percent'])).toBeGreaterThan(0);
    expect(worker!.loss!.at(-1)![0]).toBe(60_000);
    expect(last(worker!.loss)).toBeLessThan(1);
    for (const tag of ['throughput/samples_per_second', 'step/compute_seconds', 'process/cpu_percent'])
      expect([tag, last(worker![tag])! > 0]).toEqual([tag, true]);
  },
);

it('a worker whose directory is taken away trains on, and says so once', { timeout: 120_000 }, async () => {
  const directory = mkdtempSync(join(tmpdir(), 'kintsugi-tensorboard-'));
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  const [train, spool, board] = ['train.tsv', 'spool.tsv', 'board'].map((name) => join(directory, name));
  await writeDemoData({ train: train!, rows: 500, keys: 500, seed: 1 });
  const cluster = await startLocalCluster({ code: '1+1' });
  onTestFinished(() => cluster.close());
  const data = ['--scheduler', cluster.address, '--data', '-', '--follow', '--spool', spool!];
  const model = ['--batch', '32', '--dim', '8', '--bottom', '16-8', '--top', '16-1'];
  const more = ['--tensorboard', board!, '--log-format', 'json'];
  const worker = start(['worker', ...data, ...model, ...more], {}, 'pipe');
  onTestFinished(() => void worker.process.kill('SIGKILL'));
  await record(worker, 'worker.training');
  rmSync(board!, { recursive: true });
  worker.process.stdin!.end(readFileSync(train!));
  const { code, stderr, said } = await worker.ended;
  expect([code, said]).toEqual([0, []]);
  expect(await record(worker, 'worker.done')).toMatchObject({ samples: 500 });
  expect(stderr.match(/"event":"worker.tensorboard"/g)).toHaveLength(1);
});
