/** Files that are written beside a run: what cannot be written is told once, and the run goes on. */
import { execFile } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { expect, it, onTestFinished, vi } from 'vitest';
import { LoadEvents } from '../../../src/library/observe/load-events.js';
import { TensorBoard } from '../../../src/training/worker/tensorboard.js';
import { WatchedWorker } from '../../../src/training/worker/watched.js';
import { connected, EventLog } from '../../roles/support.js';

const FILE = new URL('../../../dist/src/library/observe/aside.js', import.meta.url).href;

function directory(): string {
  const path = mkdtempSync(join(tmpdir(), 'kintsugi-aside-'));
  onTestFinished(() => rmSync(path, { recursive: true, force: true }));
  return path;
}

it('of what fits no more nothing is written, so that what is written later can be read', async () => {
  const path = join(directory(), 'file');
  writeFileSync(path, 'before\n');
  const program = `
    const { appendWhole } = await import(${JSON.stringify(FILE)});
    const told = ['a'.repeat(300), 'b'.repeat(700), 'c'.repeat(100)].map((text) => {
      try { appendWhole(process.argv[1], text + '\\n'); } catch (error) { return error.code; }
      return 'written';
    });
    process.stdout.write(told.join());`;
  // Ignored, the signal of the limit becomes an error of the write, as on a full disk.
  const limited = ['-c', `trap '' XFSZ; ulimit -f 1; exec "$@"`, 'sh', process.execPath];
  const { stdout } = await promisify(execFile)('/bin/sh', [
    ...limited,
    ...['--input-type=module', '-e', program, path],
  ]);
  expect(stdout).toBe('written,EFBIG,written');
  expect(readFileSync(path, 'utf8')).toBe(`before\n${'a'.repeat(300)}\n${'c'.repeat(100)}\n`);
});

it('a worker whose directory for TensorBoard is gone goes on', () => {
  vi.useFakeTimers();
  onTestFinished(() => void vi.useRealTimers());
  const path = directory();
  const watched = new WatchedWorker('worker-0', 'run', undefined);
  let batches = 0;
  const report = () => ({ ...watched.report(), upSeconds: batches, batches: batches++, loss: 1 });
  const log = new EventLog();
  const board = new TensorBoard(path, 'worker-0', report, log);
  rmSync(path, { recursive: true });
  vi.advanceTimersByTime(10_000);
  board.tested({ auc: 0.5, logloss: 1 });
  board.end();
  expect(log.events).toEqual([
    {
      level: 'warn',
      event: 'worker.tensorboard',
      fields: { message: expect.stringMatching(`^--tensorboard ${path} is not complete: ENOENT`) },
    },
  ]);
});

it('a job whose directory for TensorBoard is gone goes on, also with PS that have no file yet', async () => {
  const client = await connected();
  const path = join(directory(), 'board');
  const told: string[] = [];
  const board = new LoadEvents(path, (problem) => told.push(problem));
  rmSync(path, { recursive: true });
  writeFileSync(path, '');
  for (let i = 0; i < 3; i++) board.add(await client.observe());
  board.tested(0.5, 1);
  expect(told).toEqual([expect.stringMatching(`^--tensorboard ${path} is not complete: `)]);
});
