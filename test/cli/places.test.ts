/** A place of checkpoints that does not exist or cannot be written is said at the start, by every command. */
import { existsSync, rmSync, watch, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it, vi } from 'vitest';
import { openDirectoryStore } from '../../src/stores/decisions/directory.js';
import { writeDemoData } from '../../src/training/loop/demo-data.js';
import {
  client,
  cluster,
  ps,
  redundant,
  scheduler,
  statusWhere,
  temporaryDirectory,
} from '../roles/support.js';
import { ENDPOINT } from '../stores/checkpoint/s3-server.js';
import { kintsugi } from './support.js';

/** The embedded job, and commands that are started here, use the S3 server where there is one. */
if (ENDPOINT) {
  vi.stubEnv('KINTSUGI_S3_ENDPOINT', ENDPOINT);
  vi.stubEnv('AWS_REGION', 'us-east-1');
}

/** A folder below a file: nobody can make it, whoever runs this. */
function belowFile(): string {
  const file = join(temporaryDirectory(), 'file');
  writeFileSync(file, '');
  return join(file, 'place');
}

const BAD: [what: string, place: () => string, reason: string][] = [
  ['a folder that cannot be made', belowFile, 'ENOTDIR'],
];
if (ENDPOINT) BAD.push(['a bucket that does not exist', () => 's3://no-such-bucket-here/x', 'NoSuchBucket']);

/** How a command ends: its code, and the last line that it says. */
async function endOf(...args: string[]): Promise<[code: number | null, said: string | undefined]> {
  const { code, said } = await kintsugi(args);
  return [code, said.at(-1)];
}

it.each(BAD)('%s: commands that begin a job', async (_, place, reason) => {
  const refused = [2, expect.stringMatching(`^kintsugi: PLACE_FAILED: nothing can be written.*${reason}`)];
  const listen = ['--listen', '127.0.0.1:0', '--log-format', 'json'];
  expect(await endOf('scheduler', ...listen, '--checkpoint', place())).toEqual(refused);
  expect(await endOf('local', '--data', fileURLToPath(import.meta.url), '--checkpoint', place())).toEqual(
    refused,
  );
});

it.each(BAD)('%s: commands for a running job', async (_, place, reason) => {
  const { address } = await cluster({ code: 'none', ps: 1 });
  const refused = [2, expect.stringMatching(`^kintsugi: PLACE_FAILED: nothing can be written.*${reason}`)];
  const at = ['--scheduler', address];
  expect(await endOf('checkpoint', 'set', place(), ...at)).toEqual(refused);
  expect(await endOf('export', place(), '--every', '0s', ...at)).toEqual(refused);
});

it('a job that has such a place already is resumed, and its plan can be changed', async () => {
  const path = temporaryDirectory();
  const place = join(temporaryDirectory(), 'place');
  const checkpoint = { url: place, everyMs: 0, keep: 3, rate: 0, kind: 'full job' as const };
  const first = await scheduler({ store: openDirectoryStore(path), checkpoint });
  await ps({ scheduler: first.address });
  const job = await client(first.address);
  await redundant(job, 1);
  await statusWhere(job, 'the plan', ({ saving }) => saving !== undefined);
  await first.close();
  rmSync(place, { recursive: true });
  writeFileSync(place, '');
  await scheduler({ store: openDirectoryStore(path), checkpoint, listen: first.address });
  await redundant(job, 1);
  const at = ['--scheduler', first.address];
  expect(await endOf('checkpoint', 'set', '--keep', '5', ...at)).toEqual([0, undefined]);
});

const READERS: [what: string, command: (place: string) => string[]][] = [
  ['checkpoint list', (place) => ['checkpoint', 'list', place]],
  ['checkpoint list --json', (place) => ['checkpoint', 'list', '--json', place]],
  ['checkpoint verify', (place) => ['checkpoint', 'verify', place]],
  ['checkpoint compact', (place) => ['checkpoint', 'compact', place]],
  ['checkpoint delete', (place) => ['checkpoint', 'delete', `${place}@1`]],
  ['scheduler --restore', (place) => ['scheduler', '--listen', '127.0.0.1:0', '--restore', place]],
  ['local --restore', (place) => ['local', '--data', fileURLToPath(import.meta.url), '--restore', place]],
];

it.each(READERS)('%s: a directory that is not there, and a file, are said', async (_, command) => {
  const missing = join(temporaryDirectory(), 'mistyped');
  const nothing = `^kintsugi: CHECKPOINT_MISSING: file://.*${missing}: there is no such directory$`;
  expect(await endOf(...command(missing))).toEqual([expect.any(Number), expect.stringMatching(nothing)]);
  const file = fileURLToPath(import.meta.url);
  const noPlace = `^kintsugi: PLACE_FAILED: file://.*${file}: a place is a directory, and this is a file$`;
  expect(await endOf(...command(file))).toEqual([expect.any(Number), expect.stringMatching(noPlace)]);
  expect(existsSync(missing)).toBe(false);
});

it('a directory that is there and has no checkpoint is an empty list', async () => {
  const place = temporaryDirectory();
  const said = `${place} has no complete checkpoint\n`;
  expect(await kintsugi(['checkpoint', 'list', place])).toMatchObject({ code: 0, stdout: said });
  expect(await kintsugi(['checkpoint', 'list', '--json', place])).toMatchObject({ code: 0, stdout: '[]\n' });
});

it('local tries its place once, however many processes begin with it', async () => {
  const place = temporaryDirectory();
  const data = join(temporaryDirectory(), 'train.tsv');
  const test = join(temporaryDirectory(), 'test.tsv');
  await writeDemoData({ train: data, test, rows: 64, testRows: 1, keys: 100, seed: 1 });
  let tries = 0;
  let watched: () => void = () => {};
  const all = new Promise<void>((resolve) => {
    watched = resolve;
  });
  const watcher = watch(place, (kind, name) => {
    if (kind === 'rename' && name === 'probe') tries++;
    if (name === 'mark') watched();
  });
  const shape = [
    '--ps',
    '1',
    '--code',
    'none',
    '--workers',
    '1',
    '--dim',
    '8',
    '--bottom',
    '8',
    '--top',
    '8-1',
  ];
  const run = await kintsugi(['local', '--data', data, '--quiet', ...shape, '--checkpoint', place]);
  expect(run).toMatchObject({ code: 0, stderr: '' });
  writeFileSync(join(place, 'mark'), '');
  await all;
  watcher.close();
  // The file comes and goes: two changes.
  expect(tries).toBe(2);
});
