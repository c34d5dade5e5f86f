/** A role under `kintsugi supervise`: real processes, real signals. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { kintsugi, record, start } from './support.js';

function supervised(args: string[]) {
  const running = start(['supervise', '--log-format', 'json', ...args]);
  onTestFinished(() => void running.process.kill('SIGKILL'));
  return running;
}

function directory(): string {
  const made = mkdtempSync(join(tmpdir(), 'kintsugi-supervise-'));
  onTestFinished(() => rmSync(made, { recursive: true }));
  return made;
}

test('a scheduler that is killed resumes its job; SIGTERM ends both', async () => {
  const role = ['scheduler', '--listen', '127.0.0.1:0', '--code', 'none', '--ps', '1', '--dir', directory()];
  const running = supervised(role);
  const ps = start(['ps', '--scheduler', String((await record(running, 'scheduler.ready')).address)]);
  onTestFinished(() => void ps.process.kill('SIGKILL'));
  await record(ps, 'ps.ready');
  process.kill(Number((await record(running, 'process.started')).pid), 'SIGKILL');
  const ended = await record(running, 'process.ended');
  expect(ended).toMatchObject({ process: 'scheduler', signal: 'SIGKILL', ending: 'crashed', pauseMs: 100 });
  expect(await record(running, 'scheduler.ready', 1)).toMatchObject({ resumed: true });
  running.process.kill('SIGTERM');
  expect(await running.ended).toMatchObject({ code: 0 });
  await record(running, 'scheduler.stopped');
});

test('a wrong flag ends it with 2: the role is not started again', async () => {
  const wrong = await kintsugi(['supervise', 'ps', '--scheduler', '127.0.0.1:1', '--nonsense', '1']);
  expect(wrong.code).toBe(2);
  expect(wrong.said.join()).toMatch(/^kintsugi: BAD_ARGUMENT: ps: unknown option '--nonsense'/);
  expect(wrong.stderr.match(/"process.started"/g)).toHaveLength(1);
  const unknown = await kintsugi(['supervise', 'somebody']);
  expect([unknown.code, unknown.stderr]).toEqual([2, expect.stringContaining('BAD_ARGUMENT')]);
});

test('it ends when the role has crashed too often', async () => {
  // A model whose module throws at its second life, too: an error without a code.
  const model = join(directory(), 'model.mjs');
  writeFileSync(model, 'process.exit(3);\n');
  const data = join(directory(), 'train.tsv');
  writeFileSync(data, 'x\n');
  const role = ['worker', '--scheduler', '127.0.0.1:1', '--data', data, '--model', model];
  const running = await supervised(['--crashes', '3', ...role]).ended;
  expect(running.code).toBe(1);
  expect(running.said.at(-1)).toMatch(
    /^kintsugi: INTERNAL: worker ended with exit code 3.*3 times in a row$/,
  );
  const pauses = [...running.stderr.matchAll(/"pauseMs":(\d+)/g)].map(([, ms]) => Number(ms));
  expect(pauses).toEqual([100, 200, 400]);
});
