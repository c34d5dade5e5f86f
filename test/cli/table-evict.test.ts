/** `kintsugi table evict --dry-run` with programs, while one of them is killed. */
import { expect, test } from 'vitest';
import { loadNative } from '../../src/engine/native.js';
import { digest, plannedEvictions } from '../../src/index.js';
import { shardCount } from '../../src/protocol/map.js';
import { rejection } from '../roles/support.js';
import { startSmallJob } from './small-job.js';
import { kintsugi } from './support.js';

const DIM = 2;
const keysFrom = (from: number, count: number) =>
  BigUint64Array.from({ length: count }, (_, i) => BigInt(from + i));

test('rows that would go are counted by reason, and none goes', async () => {
  const { client, nodes, to } = await startSmallJob();
  const policy = { ttl: 100, counter: 2 };
  const items = await client.createTable({ name: 'items', dim: DIM, policy });
  await client.createTable({ name: 'plain', dim: DIM });
  await client.createTable({ name: 'timed', dim: DIM, policy: { ttl: 60, clock: 'seconds' } });
  const push = (keys: BigUint64Array) => items.push(keys, new Float32Array(keys.length * DIM).fill(1));
  const twice = (keys: BigUint64Array) => BigUint64Array.from([...keys, ...keys]);
  await push(twice(keysFrom(0, 300)));
  await push(keysFrom(1000, 200));
  // All shards see these in each step, so every row before them is ten steps old, or eleven.
  for (let step = 0; step < 10; step++) await push(twice(keysFrom(2000, 64)));
  await push(keysFrom(3000, 50));
  const before = await digest(client);

  const asked = async (...flags: string[]) => {
    const { code, stdout } = await kintsugi([
      'table',
      'evict',
      'items',
      '--dry-run',
      '--json',
      ...flags,
      ...to,
    ]);
    expect(code).toBe(0);
    return JSON.parse(stdout);
  };
  const none = { table: 'items', rows: 614, expired: 0, rare: 0, faint: 0, waiting: 0 };
  expect(await asked()).toMatchObject({ ...none, policy, steps: 0, refused: 250, bytes: 0 });
  const shorter = await asked('--table-policy', 'evict=ttl(9),evict=minFrequency(2,5)');
  expect(shorter).toMatchObject({ ...none, expired: 300, rare: 200, refused: 0, bytes: 500 * 32 });
  const fewer = await asked('--table-policy', 'evict=ttl(9),evict=maxRows(200),evict=memory');
  expect(fewer).toMatchObject({ ...none, expired: 500, displaced: 0 });
  const fewest = await asked('--table-policy', 'evict=minFrequency(2,5),evict=maxRows(300)');
  expect(fewest).toMatchObject({ ...none, rare: 200, displaced: 114, bytes: 314 * 32 });
  const old = await items.pull(BigUint64Array.from([...keysFrom(0, 300), ...keysFrom(1000, 200)]));
  const norms = Array.from({ length: 500 }, (_, i) => Math.hypot(...old.subarray(i * DIM, (i + 1) * DIM)));
  const sorted = norms.toSorted((a, b) => a - b);
  const norm = (sorted[250]! + sorted[251]!) / 2;
  const low = norms.filter((each) => each < norm).length;
  const faint = await asked('--table-policy', `evict=ttl(50),evict=l2Below(${norm},9)`);
  expect(faint).toMatchObject({ ...none, faint: low, bytes: low * 32 });
  expect(await asked('--table-policy', 'evict=l2Below(100,20)')).toMatchObject({ ...none, bytes: 0 });
  const shards = shardCount(client.clusterMap.pools[0]!);
  const inShards = (keys: BigUint64Array) => {
    const { starts } = loadNative().partition(keys, shards);
    return Array.from({ length: shards }, (_, i) => starts[i + 1]! - starts[i]!);
  };
  const [first, second, young] = [keysFrom(0, 300), keysFrom(1000, 200), keysFrom(2000, 64)].map(inShards);
  const youngest = inShards(keysFrom(3000, 50));
  // Rows of which a shard has fewer than its part that were seen later stay.
  const expiredOf = (keep: number): number =>
    first!.reduce((sum, rows, i) => {
      const [part, later] = [Math.ceil(keep / shards), young![i]! + youngest[i]!];
      return sum + (later < part ? 0 : second![i]!) + (later + second![i]! < part ? 0 : rows);
    }, 0);
  const keeping = (rows: number) => asked('--table-policy', `evict=ttl(9),evict=keep(${rows})`);
  expect(await keeping(1)).toMatchObject({ ...none, expired: 500, bytes: 500 * 32 });
  expect(expiredOf(200)).toBeGreaterThan(0);
  expect(expiredOf(200)).toBeLessThan(500);
  expect(await keeping(200)).toMatchObject({ ...none, expired: expiredOf(200) });
  expect(await keeping(614 * shards)).toMatchObject({ ...none, bytes: 0 });
  // By a sweep that passes what is kept, as the engine counts them: their own ttl is not over.
  const rareLater = await asked('--table-policy', 'evict=ttl(9),evict=keep(1),evict=minFrequency(2,50)');
  expect(rareLater).toMatchObject({ ...none, expired: 500 });
  const also = 'evict=ttl(9),evict=keep(614000),evict=minFrequency(2,5),evict=maxRows(300)';
  expect(await asked('--table-policy', also)).toMatchObject({ ...none, rare: 200, displaced: 114 });
  const later = async (decay: string) => {
    const policy = `evict=minFrequency(15,5${decay})`;
    return asked('--table-policy', policy, '--steps', '6');
  };
  expect(await later('')).toMatchObject({ ...none, rare: 550 });
  expect(await later(',0.9,4')).toMatchObject({ ...none, rare: 550 });
  expect(await later(',0.5,4')).toMatchObject({ ...none, rare: 614 });
  const stricter = await asked('--table-policy', 'admit=counter(3)');
  expect(stricter).toMatchObject({ ...none, refused: 550 });
  expect(await asked('--steps', '500')).toMatchObject({ ...none, expired: 614, steps: 500 });
  // A PS is lost: the rows are read from those that decode them.
  nodes[1]!.process.kill('SIGKILL');
  expect(await plannedEvictions(client, 'items', { policy: { ttl: 9 } })).toMatchObject({ expired: 500 });
  const { stdout } = await kintsugi(['table', 'evict', 'items', '--dry-run', '--steps', '95', ...to]);
  expect(stdout).toMatch(/^would go +500, /m);
  expect(stdout).toMatch(/^ {2}expired +500$/m);
  expect(stdout).toMatch(/^ {2}for room +0$/m);
  expect(stdout).not.toContain('by memory');
  const byMemory = await kintsugi([
    'table',
    'evict',
    'items',
    '--dry-run',
    '--table-policy',
    'evict=memory',
    ...to,
  ]);
  expect(byMemory.stdout).toMatch(/^by memory rows go only when new ones come: none is counted$/m);
  expect(await digest(client)).toEqual(before);

  const refused: [args: string[], message: RegExp][] = [
    [['items'], /^kintsugi: BAD_ARGUMENT: table evict: rows go by themselves, .*--dry-run counts/],
    [['plain', '--dry-run'], /^kintsugi: BAD_ARGUMENT: table "plain" has no policy: /],
    [['item', '--dry-run'], /^kintsugi: UNKNOWN_TABLE: .*items/],
    [['items', '--dry-run', '--steps', '-1'], /^kintsugi: BAD_ARGUMENT: --steps /],
    [['items', '--dry-run', '--table-policy', 'evict=ttl(0)'], /^kintsugi: BAD_ARGUMENT: --table-policy /],
    [['items', '--dry-run', '--time', '5'], /^kintsugi: BAD_ARGUMENT: --time must be a time like 30m/],
    [['items', '--dry-run', '--time', '5h'], /rows in steps: it takes steps, not seconds/],
    [
      ['items', '--dry-run', '--table-policy', 'evict=ttl(5h)'],
      /the ages of its rows are steps: ttls of seconds need a table/,
    ],
    [['timed', '--dry-run', '--table-policy', 'evict=ttl(5)'], /the ages of its rows are seconds from its/],
    [['timed', '--dry-run', '--steps', '5'], /rows in seconds: it takes seconds, not steps/],
  ];
  for (const [args, message] of refused)
    expect((await kintsugi(['table', 'evict', ...args, ...to])).stderr).toMatch(message);
  // Policies that the table can never have, in the words of `table set`.
  for (const [name, text] of [
    ['items', 'admit=bloom(2)'],
    ['items', 'evict=maxRows(9),evict=score'],
    ['items', 'evict=ttl(5h)'],
    ['timed', 'evict=maxRows(10)'],
    ['plain', 'evict=ttl(5)'],
  ] as const) {
    const [counted, set] = await Promise.all([
      kintsugi(['table', 'evict', name, '--dry-run', '--table-policy', text, ...to]),
      kintsugi(['table', 'set', name, '--table-policy', text, ...to]),
    ]);
    expect(set.stderr).toMatch(/^kintsugi: BAD_ARGUMENT: table "/);
    expect([counted.code, counted.stderr]).toEqual([2, set.stderr]);
  }
  const { stdout: timed } = await kintsugi(['table', 'evict', 'timed', '--dry-run', '--time', '24h', ...to]);
  expect(timed).toMatch(/^policy +evict=ttl\(60s\)$/m);
  expect(timed).toMatch(/^as if 86,400 seconds passed in which no row is seen$/m);
  const few = { ttl: 99, maxRows: 5, clock: 'seconds' } as const;
  const inSeconds = await plannedEvictions(client, 'timed', { policy: few, seconds: 7 });
  expect(inSeconds).toMatchObject({ policy: few, steps: 0, seconds: 7, rows: 0 });
  for (const policy of [false, 0, '', Number.NaN, null]) {
    const none = await rejection(plannedEvictions(client, 'items', { policy: policy as never }));
    expect(none.code).toBe('BAD_ARGUMENT');
  }
  const wrong = await rejection(plannedEvictions(client, 'items', { policy: { ttl: 0 } }));
  expect(wrong).toMatchObject({ code: 'BAD_ARGUMENT', message: expect.stringContaining('policy: ttl') });
});
