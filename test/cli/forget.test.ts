/**
 * `kintsugi forget` with programs: a job that trains on while rows of keys go from the files of all places
 * that it saves to, in directories and in an object store.
 */
import { mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { expect, onTestFinished, test } from 'vitest';
import { optimizerOf } from '../../src/engine/optimizers.js';
import { type Client, openExport, save, type Table } from '../../src/index.js';
import { connect } from '../../src/library/client/client.js';
import { load } from '../../src/library/tools/load.js';
import { startLocalCluster } from '../../src/roles/cluster.js';
import { ENDPOINT, makeBucket } from '../stores/checkpoint/s3-server.js';
import { startSmallJob } from './small-job.js';
import { kintsugi, type Output } from './support.js';

/** Roles inherit the environment of this process: the S3 server, where there is one. */
if (ENDPOINT) Object.assign(process.env, { KINTSUGI_S3_ENDPOINT: ENDPOINT, AWS_REGION: 'us-east-1' });

const ROWS = 2000;
/** Large keys: their eight bytes are nowhere by chance. */
const KEYS = BigUint64Array.from({ length: ROWS }, (_, i) => 0x1234_5678_9abc_0000n + BigInt(i));
const GONE = KEYS.subarray(0, 300);
const STAY = KEYS.subarray(300);
const ADAGRAD = optimizerOf('adagrad', 0.1);

function folder(): string {
  const directory = mkdtempSync(join(tmpdir(), 'kintsugi-forget-'));
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  return directory;
}

function keysFile(directory: string, keys: Iterable<bigint> = GONE, name = 'keys'): string {
  writeFileSync(join(directory, name), [...keys].join('\n'));
  return join(directory, name);
}

const gradients = (keys: BigUint64Array, seed: number): Float32Array =>
  Float32Array.from({ length: keys.length * 2 }, (_, i) => Math.fround(Math.sin(seed * 31 + i)));

async function createUsers(client: Client): Promise<Table> {
  const [users] = await client.createTables([
    { name: 'users', dim: 2, optimizer: ADAGRAD },
    { name: 'others', dim: 2, optimizer: ADAGRAD },
  ]);
  for (let seed = 0; seed < 3; seed++) await users!.push(KEYS, gradients(KEYS, seed));
  // The same keys of another table stay.
  await client.table('others').push(GONE, gradients(GONE, 9));
  return users!;
}

/** Rows of a job that was filled from a place. */
async function rowsIn(url: string, table: string, keys: BigUint64Array): Promise<Uint32Array> {
  const cluster = await startLocalCluster({ code: 'none', ps: 1 });
  const client = await connect(cluster.address);
  onTestFinished(() => cluster.close());
  await load(client, url);
  const rows = await wholeRows(client, table, keys);
  await client.close();
  return rows;
}

/** Lines of the program itself: the package for S3 warns of old versions of Node. */
const errorsOf = ({ said }: Output): string[] => said.filter((line) => line.startsWith('kintsugi: '));

/** Whole rows with their state, as bits. */
async function wholeRows(client: Client, table: string, keys: BigUint64Array): Promise<Uint32Array> {
  const [{ buffer, byteOffset, length }] = (await client.pullFull([{ table, keys }])) as [Float32Array];
  return new Uint32Array(buffer, byteOffset, length);
}

const kinds: [string, (directory: string, name: string) => Promise<string>][] = [
  ['directories', async (directory, name) => join(directory, name)],
];
if (ENDPOINT) kinds.push(['an object store', async (_, name) => `s3://${await makeBucket()}/${name}`]);

test.each(kinds)(
  'of a running job with %s: no file has the keys, and all other rows are the same',
  async (_, at) => {
    const directory = folder();
    const { client, to } = await startSmallJob();
    const users = await createUsers(client);
    const [place, exports] = [await at(directory, 'place'), await at(directory, 'exports')];
    const run = async (...args: string[]) => {
      const ran = await kintsugi([...args, ...to]);
      expect([ran.code, errorsOf(ran)]).toEqual([0, []]);
      return ran;
    };
    await run('checkpoint', 'set', place, '--every', '0s');
    await run('export', exports, '--every', '300ms', '--tables', 'users', '--once');
    await run('checkpoint', 'now');
    const served = await openExport(exports, { everyMs: 0 });
    onTestFinished(() => served.close());
    const file = keysFile(directory);
    const verify = (...more: string[]) => kintsugi(['forget', 'users', '--keys', file, '--verify', ...more]);

    // The job trains on other rows all the time, and exports them.
    let over = false;
    const training = (async () => {
      for (let seed = 10; !over; seed++)
        await users.push(STAY.subarray(700), gradients(STAY.subarray(700), seed));
    })();
    onTestFinished(async () => {
      over = true;
      await training;
    });
    const before = await verify(...to);
    expect([before.code, errorsOf(before)]).toEqual([
      1,
      [
        expect.stringMatching(
          /^kintsugi: KEYS_FOUND: table users: the job has rows of 300 keys; \d+ files have keys$/,
        ),
      ],
    ]);
    expect(before.stdout).toMatch(/^ {2}000001\/[0-9a-f]{8}-g0-m\d[-\d]+\.safetensors: \d+ rows$/m);
    // Deletion alone does not reach the files.
    await users.delete(GONE.subarray(0, 100));
    await run('checkpoint', 'now');
    expect((await verify(...to)).stdout).toMatch(/safetensors: \d+ keys of removed rows$/m);

    const forgotten = await run('forget', 'users', '--keys', file, '--json');
    expect(JSON.parse(forgotten.stdout)).toMatchObject({
      ...{ table: 'users', keys: 300, forgotten: true, rows: 0 },
      places: [
        { found: [], unsearched: [], purged: { removed: { checkpoints: expect.arrayContaining([1, 2]) } } },
        { found: [], unsearched: [] },
      ],
    });
    over = true;
    await training;
    expect((await verify(...to)).code).toBe(0);

    // The job saves on, and a new job has the rows that it has.
    await run('checkpoint', 'now');
    await run('export', 'now');
    expect((await verify(...to)).stdout).toMatch(/\ntable users: none of 300 keys is found\n$/);
    for (const url of [place, exports]) expect((await kintsugi(['checkpoint', 'verify', url])).code).toBe(0);
    expect((await kintsugi(['checkpoint', 'compact', place])).code).toBe(0);
    const purged = await kintsugi(['checkpoint', 'compact', place, '--purge']);
    expect(purged.stdout).toMatch(
      /^checkpoint \d+ .* rows, .*; \d+ checkpoints and \d+ files are removed\n$/,
    );
    expect(await rowsIn(place, 'users', STAY)).toEqual(await wholeRows(client, 'users', STAY));
    expect(await rowsIn(place, 'users', GONE)).toEqual(await wholeRows(client, 'users', GONE));
    expect(await rowsIn(place, 'others', GONE)).toEqual(await wholeRows(client, 'others', GONE));
    await served.refresh();
    expect(served.pull('users', KEYS)).toEqual(await users.pull(KEYS));
  },
  180_000,
);

test.each(kinds)(
  'of %s to which no job writes: rows of the keys go, and files of others are named',
  async (_, at) => {
    const directory = folder();
    const { client } = await startSmallJob();
    await createUsers(client);
    const place = await at(directory, 'save');
    await save(client, place);
    const stay = await wholeRows(client, 'users', STAY);
    const others = await wholeRows(client, 'others', GONE);
    const file = keysFile(directory);
    const forget = (...more: string[]) =>
      kintsugi(['forget', 'users', '--keys', file, '--place', place, ...more]);
    expect((await forget('--verify')).code).toBe(1);
    const done = await forget();
    expect([done.code, errorsOf(done), done.stdout]).toEqual([
      0,
      [],
      expect.stringMatching(/purged: checkpoint 2, of 1,/),
    ]);
    expect((await forget('--verify')).code).toBe(0);
    expect(await rowsIn(place, 'users', STAY)).toEqual(stay);
    expect(await rowsIn(place, 'others', GONE)).toEqual(others);
    const wrong = await kintsugi(['forget', 'user', '--keys', file, '--place', place, '--verify']);
    expect([wrong.code, wrong.stderr]).toEqual([
      2,
      expect.stringContaining('UNKNOWN_TABLE: no checkpoint of'),
    ]);
  },
  120_000,
);

test('copies beside the files of a place are searched, packed ones too, and named', async () => {
  const directory = folder();
  const { client } = await startSmallJob();
  await createUsers(client);
  const place = join(directory, 'place');
  await save(client, place);
  const [segment] = readdirSync(join(place, '000001')).filter((name) => name.endsWith('.safetensors'));
  const bytes = readFileSync(join(place, '000001', segment!));
  const file = keysFile(directory);
  const done = await kintsugi(['forget', 'users', '--keys', file, '--place', place]);
  expect(done.code).toBe(0);
  writeFileSync(join(place, 'a copy.safetensors'), bytes);
  writeFileSync(join(place, '.hidden.gz'), gzipSync(bytes));
  writeFileSync(join(place, '000001.tar'), Buffer.concat([Buffer.alloc(513), bytes]));
  writeFileSync(join(place, '.partial', 'torn'), bytes.subarray(0, bytes.length - 5));
  writeFileSync(join(place, 'notes.txt'), 'no keys');
  writeFileSync(join(place, 'all.zip'), Buffer.from('504b03041400', 'hex'));
  writeFileSync(join(place, 'torn.gz'), gzipSync(bytes).subarray(0, 1000));
  symlinkSync(join(directory, 'keys'), join(place, 'link'));
  const found = await kintsugi(['forget', 'users', '--keys', file, '--place', place, '--verify', '--json']);
  const { places, forgotten } = JSON.parse(found.stdout) as {
    forgotten: boolean;
    places: { found: { name: string; rows: number; bytes: number }[]; unsearched: { name: string }[] }[];
  };
  expect(forgotten).toBe(false);
  const [{ found: files, unsearched }] = places as [(typeof places)[0]];
  expect(files.map(({ name, rows, bytes: n }) => [name, rows > 0, n > 0])).toEqual([
    ['.hidden.gz', false, true],
    ['.partial/torn', false, true],
    ['000001.tar', false, true],
    ['a copy.safetensors', true, false],
    ['torn.gz', false, true],
  ]);
  expect(unsearched.map(({ name }) => name)).toEqual(['all.zip', 'link', 'torn.gz']);
  expect([found.code, errorsOf(found)]).toEqual([
    1,
    ['kintsugi: KEYS_FOUND: table users: 5 files have keys; 3 files could not be searched'],
  ]);
}, 60_000);

test('mistakes are errors before anything is deleted', async () => {
  const directory = folder();
  const { client, to } = await startSmallJob();
  const users = await createUsers(client);
  const before = await users.pull(GONE);
  const file = keysFile(directory);
  const forget = (...args: string[]) => kintsugi(['forget', ...args]);
  const none = await forget('users', '--keys', keysFile(directory, [], 'none'), ...to);
  expect([none.code, none.stderr]).toEqual([2, expect.stringMatching(/BAD_ARGUMENT: .*none has no keys/)]);
  const unknown = await forget('other', '--keys', file, ...to);
  expect([unknown.code, unknown.stderr]).toEqual([2, expect.stringContaining('UNKNOWN_TABLE')]);
  const missing = await forget('users', '--keys', file, '--place', join(directory, 'no-place'));
  expect([missing.code, missing.stderr]).toEqual([2, expect.stringContaining('CHECKPOINT_MISSING')]);
  const number = await forget('users', '--keys', file, '--place', `${directory}@3`);
  expect([number.code, number.stderr]).toEqual([
    2,
    expect.stringContaining('a place is needed here, without @3'),
  ]);
  // A place of the job that is not there on this machine.
  await kintsugi(['checkpoint', 'set', join(directory, 'place'), '--every', '0s', ...to]);
  rmSync(join(directory, 'place'), { recursive: true, force: true });
  const away = await forget('users', '--keys', file, ...to);
  expect([away.code, away.stderr]).toEqual([2, expect.stringContaining('CHECKPOINT_MISSING')]);
  expect(await users.pull(GONE)).toEqual(before);
  await kintsugi(['checkpoint', 'set', '--off', ...to]);
  // A job without places forgets its rows.
  const done = await forget('users', '--keys', file, ...to);
  expect([done.code, done.stdout]).toEqual([0, 'table users: none of 300 keys is found\n']);
}, 60_000);
