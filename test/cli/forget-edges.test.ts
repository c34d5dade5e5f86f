/** A deletion that reaches the files misses no byte, and removes nothing that it should not. */
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { PutObjectCommand, S3Client } from '@aws-sdk/client-s3';
import { expect, onTestFinished, test } from 'vitest';
import { optimizerOf } from '../../src/engine/optimizers.js';
import { type Client, save } from '../../src/index.js';
import { searchPlaces } from '../../src/library/tools/forget.js';
import { KeySet } from '../../src/stores/checkpoint/key-set.js';
import { ENDPOINT, makeBucket } from '../stores/checkpoint/s3-server.js';
import { startSmallJob } from './small-job.js';
import { CLI, kintsugi } from './support.js';

/** The S3 server, where there is one. */
if (ENDPOINT) Object.assign(process.env, { KINTSUGI_S3_ENDPOINT: ENDPOINT, AWS_REGION: 'us-east-1' });

const KEYS = BigUint64Array.from({ length: 200 }, (_, i) => 0x1234_5678_9abc_0000n + BigInt(i));
const GONE = KEYS.subarray(0, 50);

function folder(): string {
  const directory = mkdtempSync(join(tmpdir(), 'kintsugi-forget-'));
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  return directory;
}

async function createUsers(client: Client, keys = KEYS): Promise<void> {
  await client.createTable({ name: 'users', dim: 2, optimizer: optimizerOf('adagrad', 0.1) });
  await client.table('users').push(keys, new Float32Array(keys.length * 2).fill(1));
}

async function rowsIn(client: Client): Promise<number> {
  let rows = 0;
  for await (const { keys } of client.table('users').scan({ select: 'keys' })) rows += keys.length;
  return rows;
}

/** The program with keys in a pipe, which can be read once. */
async function piped(args: string[], keys: Iterable<bigint>): Promise<{ code: number; text: string }> {
  const file = join(folder(), 'keys');
  writeFileSync(file, [...keys].join('\n'));
  const line = 'file="$1"; shift; cat "$file" | "$@"';
  const command = [process.execPath, CLI, ...args, '--keys', '/dev/stdin'];
  const child = spawn('sh', ['-c', line, 'sh', file, ...command], { stdio: ['ignore', 'pipe', 'inherit'] });
  onTestFinished(() => void child.kill('SIGKILL'));
  let text = '';
  child.stdout.on('data', (piece: Buffer) => {
    text += piece.toString();
  });
  const [code] = (await once(child, 'close')) as [number];
  return { code, text };
}

test('keys that come from a pipe are deleted, too', async () => {
  const { client, to } = await startSmallJob();
  await createUsers(client);
  expect(await piped(['table', 'delete', 'users', ...to], GONE)).toEqual({
    code: 0,
    text: 'table users: rows of 50 keys are deleted\n',
  });
  expect(await rowsIn(client)).toBe(150);
  const more = await piped(['forget', 'users', ...to], KEYS.subarray(50, 80));
  expect(more).toEqual({ code: 0, text: 'table users: none of 30 keys is found\n' });
  expect(await rowsIn(client)).toBe(120);
}, 60_000);

async function search(place: string, keys: BigUint64Array = GONE) {
  const set = new KeySet();
  set.addAll(keys);
  const found = await searchPlaces([place], { table: 'users', keys: set });
  return found.places[0]!;
}

/** A place of a save whose rows of GONE are gone. */
async function forgottenPlace(): Promise<{ place: string; copy: Buffer }> {
  const directory = folder();
  const { client } = await startSmallJob();
  await createUsers(client);
  const place = join(directory, 'place');
  await save(client, place);
  const segment = readdirSync(join(place, '000001')).find((name) => name.endsWith('.safetensors'))!;
  const copy = readFileSync(join(place, '000001', segment));
  writeFileSync(join(directory, 'keys'), GONE.join('\n'));
  const done = await kintsugi(['forget', 'users', '--keys', join(directory, 'keys'), '--place', place]);
  expect(done.code).toBe(0);
  return { place, copy };
}

test('no byte hides behind an odd name, an end, a second packing, or the other order', async () => {
  const { place, copy } = await forgottenPlace();
  expect(await search(place)).toMatchObject({ found: [], unsearched: [] });
  const zstdSkipped = Buffer.concat([Buffer.from('502a4d1804000000', 'hex'), Buffer.alloc(4)]);
  const files: Record<string, Uint8Array> = {
    'padded.gz': Buffer.concat([gzipSync('nothing'), Buffer.alloc(512), copy]),
    'packed behind.gz': Buffer.concat([gzipSync('nothing'), Buffer.alloc(512), gzipSync(copy)]),
    'twice.gz': gzipSync(gzipSync(copy)),
    'seekable.zst': Buffer.concat([zstdSkipped, Buffer.from('28b52ffd00', 'hex')]),
    'table.orc': Buffer.from('ORC and more than sixteen bytes'),
    'big endian': Buffer.from(GONE.slice(0, 3).buffer).swap64(),
    'a%20b + c?#é\n.bin': copy.subarray(0, copy.length - 1),
  };
  for (const [name, bytes] of Object.entries(files)) writeFileSync(join(place, name), bytes);
  const written = `import os,sys
for name in (b'bad-\\xff.bin', b'dir-\\xfe'):
    at = os.path.join(os.fsencode(sys.argv[1]), name)
    if name.startswith(b'dir'): os.mkdir(at); at = os.path.join(at, b'x')
    open(at, 'wb').write(b'x')`;
  execFileSync('python3', ['-c', written, place]);
  const { found, unsearched } = await search(place);
  expect(found.map(({ name, bytes }) => [name, bytes > 0])).toEqual([
    ['a%20b + c?#é\n.bin', true],
    ['big endian', true],
    ['padded.gz', true],
  ]);
  expect(unsearched.map(({ name }) => name).sort()).toEqual([
    'bad-\ufffd.bin',
    'dir-\ufffd',
    'packed behind.gz',
    'padded.gz',
    'seekable.zst',
    'table.orc',
    'twice.gz',
  ]);
}, 60_000);

test.runIf(ENDPOINT)(
  'an object whose name no request can have is named',
  async () => {
    const url = `s3://${await makeBucket()}/place`;
    const body = new Uint8Array(GONE.slice().buffer);
    const sdk = new S3Client({ endpoint: ENDPOINT!, forcePathStyle: true, region: 'us-east-1' });
    onTestFinished(() => sdk.destroy());
    const [, Bucket] = /^s3:..([^/]+)/.exec(url)!;
    for (const name of ['a b%20+?#é', 'control\u0001'])
      await sdk.send(new PutObjectCommand({ Bucket, Key: `place/${name}`, Body: body }));
    const { found, unsearched } = await search(url);
    expect(found.map(({ name }) => name)).toEqual(['a b%20+?#é']);
    expect(unsearched.map(({ problem }) => problem)).toEqual(['it is listed, but not found']);
  },
  60_000,
);

test('a file of others with the keys makes no checkpoint go', async () => {
  const directory = folder();
  const { client, to } = await startSmallJob();
  await createUsers(client, KEYS.subarray(50));
  const place = join(directory, 'place');
  await kintsugi(['checkpoint', 'set', place, '--every', '0s', ...to]);
  for (let i = 0; i < 2; i++) await kintsugi(['checkpoint', 'now', ...to]);
  writeFileSync(join(place, 'notes.bin'), new Uint8Array(GONE.slice().buffer));
  writeFileSync(join(directory, 'keys'), GONE.join('\n'));
  const forget = (...args: string[]) =>
    kintsugi(['forget', 'users', '--keys', join(directory, 'keys'), ...args]);
  for (const args of [to, ['--place', place]]) {
    const done = await forget(...args);
    expect([done.code, done.stdout]).toEqual([
      1,
      expect.stringMatching(/ {2}notes\.bin: the bytes of 50 keys/),
    ]);
    expect(done.stdout).not.toMatch(/purged/);
    expect(readdirSync(place)).toEqual(expect.arrayContaining(['000001', '000002']));
  }
  // A wrong name of a table is a mistake, whatever else is there.
  const wrong = await kintsugi(['forget', 'user', '--keys', join(directory, 'keys'), '--place', place]);
  expect([wrong.code, wrong.stderr]).toEqual([2, expect.stringContaining('UNKNOWN_TABLE')]);
}, 60_000);

test('a directory of the same name on another machine proves nothing', async () => {
  const directory = folder();
  const { client, to } = await startSmallJob();
  await createUsers(client);
  const place = join(directory, 'place');
  await kintsugi(['checkpoint', 'set', place, '--every', '0s', ...to]);
  await kintsugi(['checkpoint', 'now', ...to]);
  writeFileSync(join(directory, 'keys'), [7n].join('\n'));
  renameSync(place, join(directory, 'elsewhere'));
  mkdirSync(place);
  const verified = await kintsugi(['forget', 'users', '--keys', join(directory, 'keys'), '--verify', ...to]);
  expect([verified.code, verified.stderr]).toEqual([
    2,
    expect.stringMatching(/CHECKPOINT_MISSING: .*checkpoint 1 .* not here/),
  ]);
}, 60_000);

test('a place within another one is searched when both are purged', async () => {
  const directory = folder();
  const { client, to } = await startSmallJob();
  await createUsers(client);
  const place = join(directory, 'place');
  await kintsugi(['checkpoint', 'set', place, '--every', '0s', ...to]);
  await kintsugi(['export', join(place, 'exports'), '--every', '10m', '--once', ...to]);
  await kintsugi(['checkpoint', 'now', ...to]);
  writeFileSync(join(directory, 'keys'), GONE.join('\n'));
  const done = await kintsugi(['forget', 'users', '--keys', join(directory, 'keys'), ...to]);
  expect([done.code, done.stdout]).toEqual([0, expect.stringMatching(/none of 50 keys is found\n$/)]);
}, 60_000);
