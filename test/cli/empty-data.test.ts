/** Data without samples: a worker says so, and trains the rest. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { expect, onTestFinished, test } from 'vitest';
import { ps, scheduler } from '../roles/support.js';
import { record, start } from './support.js';

const SCHEMA = { label: 'y', sparse: ['t'] };
const FILES = {
  'a-full.csv': 'y,t\n1,a\n0,b\n',
  'b-nothing.csv': '',
  'c-header.csv': 'y,t\n',
  'd-open-header.csv': 'y,t',
  'e-header.csv.gz': gzipSync('y,t\n'),
  'f-nothing.tsv.gz': gzipSync(''),
  'g-nothing.jsonl': '',
  'h-line.jsonl': '{"y":1,"t":"a"}',
};
const EMPTY = Object.keys(FILES).filter((name) => /nothing|header/.test(name));

test('files without samples are a warning; files that are followed may begin empty', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'kintsugi-empty-'));
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  const schema = join(directory, '_schema.json');
  writeFileSync(schema, JSON.stringify(SCHEMA));
  for (const [name, content] of Object.entries(FILES)) writeFileSync(join(directory, name), content);
  const many = join(directory, '.many');
  const { address } = await scheduler();
  await ps({ scheduler: address });
  const shape = ['--dim', '4', '--bottom', '8-4', '--top', '8-1', '--schema', schema];
  const worker = (...flags: string[]) => {
    const args = ['worker', '--scheduler', address, ...shape, ...flags, '--log-format', 'json'];
    const started = start(args);
    onTestFinished(() => void started.process.kill('SIGKILL'));
    return started;
  };
  const recordsOf = (stderr: string) =>
    stderr
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line));
  const warnings = (stderr: string) =>
    recordsOf(stderr)
      .filter(({ event }) => event === 'worker.empty')
      .map(({ level, use, count, files }) => ({ level, use, count, files }));

  const both = worker('--data', directory, '--test', join(directory, 'c-header.csv'));
  const { code, stderr } = await both.ended;
  expect(code).toBe(0);
  expect(warnings(stderr)).toEqual([
    { level: 'warn', use: '--data', count: EMPTY.length, files: EMPTY },
    { level: 'warn', use: '--test', count: 1, files: ['c-header.csv'] },
  ]);
  expect(recordsOf(stderr).find(({ event }) => event === 'worker.done')).toMatchObject({ samples: 3 });

  const good = worker('--run', 'good', '--data', join(directory, 'a-full.csv'));
  expect(warnings((await good.ended).stderr)).toEqual([]);

  for (let file = 0; file < 12; file++) writeFileSync(`${many}-${file}.csv`, '');
  const names = worker('--run', 'many', '--data', `${many}-*`);
  const [only] = warnings((await names.ended).stderr);
  expect(only).toMatchObject({ count: 12 });
  expect(only!.files).toHaveLength(10);

  const followed = worker('--run', 'followed', '--follow', '--data', join(directory, 'b-nothing.csv'));
  await record(followed, 'worker.training');
  followed.process.kill('SIGTERM');
  expect(warnings((await followed.ended).stderr)).toEqual([]);
});
