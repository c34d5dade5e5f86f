/** The programs of examples/ run as they stand, against the compiled package under its own name. */
import { spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { writeDemoData } from '../../src/training/loop/demo-data.js';
import { kintsugi } from '../cli/support.js';

const EXAMPLES = fileURLToPath(new URL('../../examples', import.meta.url));
let directory = '';

beforeAll(() => {
  directory = mkdtempSync(join(tmpdir(), 'kintsugi-examples-'));
});
afterAll(() => rmSync(directory, { recursive: true, force: true }));

function example(name: string, ...args: string[]): Promise<{ code: number | null; stdout: string }> {
  const child = spawn(process.execPath, [join(EXAMPLES, name), ...args], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let stdout = '';
  child.stdout.on('data', (chunk: Buffer) => {
    stdout += chunk.toString();
  });
  return new Promise((resolve) => child.on('close', (code) => resolve({ code, stdout })));
}

test('the library: a PS is lost between two pushes, and every value is right', async () => {
  expect(await example('quickstart.mjs')).toMatchObject({
    code: 0,
    stdout: expect.stringContaining('16000 values pulled, 0 of them wrong'),
  });
});

test('a model of your own trains in a job that loses a PS, and predicts better than chance', async () => {
  const [train, tested, json] = ['train.tsv', 'test.tsv', 'report.json'].map((name) => join(directory, name));
  await writeDemoData({ train: train!, test: tested!, rows: 4000, testRows: 1000, keys: 2000, seed: 1 });
  const model = ['--model', join(EXAMPLES, 'logistic.mjs'), '--lr', '0.1'];
  const data = ['--data', train!, '--test', tested!, '--json', json!, '--quiet'];
  const shape = ['--ps', '3', '--code', '2+1', '--workers', '1', '--kill', 'ps@50%'];
  const run = await kintsugi(['local', ...data, ...shape, ...model]);
  expect(run.said).toEqual([]);
  expect(run.code).toBe(0);
  const report = JSON.parse(readFileSync(json!, 'utf8')) as { testAuc: number; pushes: object };
  expect(report.pushes).toMatchObject({ lost: 0, duplicated: 0 });
  expect(report.testAuc).toBeGreaterThan(0.55);
});

test('a source of your own: each record is trained once, though a worker and a PS are killed', async () => {
  const [data, schema, json] = ['ratings.bin', 'schema.json', 'source.json'].map((name) =>
    join(directory, name),
  );
  const records = 6000;
  const bytes = Buffer.alloc(16 * records + 7);
  for (let index = 0; index < records; index++) {
    const [user, item] = [(index * 7) % 300, (index * 13) % 500];
    bytes.writeUInt32LE(user, 16 * index);
    bytes.writeUInt32LE(item, 16 * index + 4);
    bytes.writeUInt32LE(index % 24, 16 * index + 8);
    bytes.writeFloatLE(1 + ((user + item) % 5), 16 * index + 12);
  }
  writeFileSync(data!, bytes);
  const key = { key: 'integer' };
  const sparse = [
    { column: 'user', table: 'users', ...key },
    { column: 'item', table: 'items', ...key },
    'hour',
  ];
  writeFileSync(schema!, JSON.stringify({ label: { column: 'rating', atLeast: 4 }, sparse }));
  const flags = ['--data', data!, '--source', join(EXAMPLES, 'source.mjs'), '--schema', schema!];
  const shape = [
    '--ps',
    '3',
    '--code',
    '2+1',
    '--dim',
    '8',
    '--bottom',
    '8',
    '--top',
    '8-1',
    '--batch',
    '64',
  ];
  const kills = ['--kill', 'worker@30%', '--kill', 'ps@60%', '--respawn', '200ms'];
  const run = await kintsugi(['local', ...flags, ...shape, ...kills, '--json', json!, '--quiet']);
  expect(run.said).toEqual([]);
  expect(run.code).toBe(0);
  const report = JSON.parse(readFileSync(json!, 'utf8')) as Record<'samples' | 'pushes', object>;
  expect(report.samples).toMatchObject({ expected: records, trained: records, exactlyOnce: true });
  expect(report.pushes).toMatchObject({ lost: 0, duplicated: 0 });
});

test('online learning: every click of the stream is trained, and the loss falls', async () => {
  const { code, stdout } = await example('online-learning.mjs', '5000');
  expect(code).toBe(0);
  expect(stdout).toContain('trained 5000 clicks');
  const [, first, last] = /loss ([\d.]+) at first, ([\d.]+) at the end/.exec(stdout)!;
  expect(Number(last)).toBeLessThan(Number(first));
});

test('recovery: no value that is pulled around a loss is wrong, and redundancy is back', async () => {
  const { code, stdout } = await example('recovery.mjs', '5000');
  expect(code).toBe(0);
  const report = JSON.parse(stdout) as Record<string, number>;
  expect(report).toMatchObject({ rows: 5000, wrong: 0 });
  expect(report.pulls).toBeGreaterThan(0);
  expect(report.redundantMs).toBeGreaterThan(0);
});

test('no example is left out', async () => {
  const programs = (await readdir(EXAMPLES)).filter((name) => name.endsWith('.mjs'));
  expect(programs.sort()).toEqual([
    // test/kafka runs it.
    'kafka.mjs',
    'logistic.mjs',
    'online-learning.mjs',
    'quickstart.mjs',
    // test/stores/checkpoint/reader.test.ts runs it.
    'read-checkpoint.mjs',
    'recovery.mjs',
    'source.mjs',
  ]);
});
