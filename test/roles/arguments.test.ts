// Errors of every public function about options and arguments of a wrong type: BAD_ARGUMENT with the name, at
// the call. Plain JavaScript has no types, and what is found out later ends the caller's process.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { KintsugiError } from '../../src/common/errors.js';
import * as library from '../../src/index.js';
import type { Client } from '../../src/library/client/client.js';
import { internalsOf } from '../../src/library/client/connected.js';
import { client, cluster, keysOf, rejection } from './support.js';

type Work = () => unknown;

/** Text of each case, the error, and whether its message has the word. */
async function refused(cases: readonly (readonly [word: string, work: Work])[]): Promise<void> {
  const found: unknown[] = [];
  for (const [word, work] of cases) {
    try {
      await work();
      found.push([`${work}`, 'nothing was thrown']);
    } catch (error) {
      const { code, message } = error as KintsugiError;
      const known = error instanceof KintsugiError ? code : `${error}`;
      found.push([`${work}`, known, message.includes(word) ? word : message]);
    }
  }
  expect(found).toEqual(cases.map(([word, work]) => [`${work}`, 'BAD_ARGUMENT', word]));
}

/** A place that there is not. */
function place(): string {
  const directory = mkdtempSync(join(tmpdir(), 'kintsugi-arguments-'));
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  return join(directory, 'none');
}

async function job(): Promise<{ address: string; one: Client; url: string }> {
  const { address } = await cluster({ code: '1+1' });
  const one = await client(address);
  await one.createTable({ name: 't', dim: 2 });
  return { address, one, url: place() };
}

/** A value whose type no option has: a signal would have one method more. */
const WRONG = { aborted: false, addEventListener: () => {} } as never;

it('signals, callbacks, switches and logs', async () => {
  const { address, one, url } = await job();
  const [keys, gradients] = [keysOf(1), new Float32Array(2)];
  const table = one.table('t');
  const { connect, save, load, importRows, openExport, scrub, scale, drain, rebalance, restart } = library;
  await refused([
    ['signal', () => connect(address, { signal: 'x' as never })],
    ['signal', () => connect(address, { signal: null as never })],
    ['signal', () => table.pull(keys, { signal: WRONG })],
    ['signal', () => table.push(keys, gradients, { signal: WRONG })],
    ['signal', () => one.pullFull([{ table, keys }], { signal: WRONG })],
    ['signal', () => one.assign([{ table, keys, gradients }], { signal: WRONG })],
    ['signal', () => one.scan('t', { signal: WRONG })],
    ['signal', () => one.events({ signal: WRONG })],
    ['signal', () => one.restore(url, { onlyLost: true, signal: WRONG })],
    ['signal', () => save(one, url, { signal: WRONG })],
    ['signal', () => load(one, url, { signal: WRONG })],
    ['signal', () => importRows(one, ['x.csv'], { table: 't', signal: WRONG })],
    ['signal', () => openExport(url, { signal: WRONG })],
    ['onAnswer', () => table.pull(keys, { onAnswer: WRONG })],
    ['onProgress', () => save(one, url, { onProgress: WRONG })],
    ['onProgress', () => load(one, url, { onProgress: WRONG })],
    ['onProgress', () => importRows(one, ['x.csv'], { table: 't', onProgress: WRONG })],
    ['onProgress', () => scale(one, 2, { onProgress: WRONG })],
    ['onProgress', () => drain(one, 'ps-0', { onProgress: WRONG })],
    ['onProgress', () => rebalance(one, { onProgress: WRONG })],
    ['onRestarted', () => restart(one, { onRestarted: WRONG })],
    ['onChange', () => openExport(url, { onChange: WRONG })],
    ['missing', () => openExport(url, { missing: 1e39 })],
    ['missing', () => connect(address, { replica: { missing: -1e39 } })],
    ['lr of a push', () => table.push(keys, gradients, { lr: 1e-60 })],
    ['onFailed', () => library.startLocalCluster({ onFailed: WRONG })],
    ['waitForJob', () => connect(address, { waitForJob: 'no' as never })],
    ['audit', () => connect(address, { audit: WRONG })],
    ['owners', () => connect(address, { replica: { owners: WRONG } })],
    ['follow', () => one.events({ follow: WRONG })],
    ['partial', () => save(one, url, { partial: WRONG })],
    ['repair', () => scrub(one, { repair: WRONG })],
    ['log', () => connect(address, { log: {} as never })],
    ['log', () => library.startLocalCluster({ log: 'x' as never })],
  ]);
  // A signal that another library made, which only has to work like one.
  const { signal } = new AbortController();
  const other = { aborted: false, addEventListener: () => {}, removeEventListener: () => {} };
  await table.push(keys, gradients, { signal });
  await table.pull(keys, { signal: other as unknown as AbortSignal });
  expect((await one.status()).scaling.changes).toEqual([]);
});

it('what the keys of imported rows are', async () => {
  const { one } = await job();
  const file = `${place()}.csv`;
  writeFileSync(file, 'key,a,b\n10,1,2\n');
  const [column] = library.parseSchema({ label: 'y', sparse: ['c'] }, 'schema').sparse;
  const load = (options: object) => () => library.importRows(one, [file], options as never);
  await refused([
    ['key', load({ table: 't', key: 'x' })],
    ['key', load({ table: 't', key: 'toString' })],
    ['key', load({ column: { ...column!, table: 't', key: 'x' } })],
    ['key', load({ column: {} })],
    ['key', load({ column: 'c' })],
    ['column', load({ column: null })],
    ['key', load({ table: 't', key: null })],
    ['shared', load({ column: { ...column!, shared: undefined } })],
    ['name', load({ column: { ...column!, name: undefined } })],
    ['table', load({ column: { ...column!, table: 5 } })],
    ['values', load({ table: 't', values: 5 })],
    ['keys', load({ table: 't', keys: 5 })],
    ['files', () => library.importRows(one, [5 as never], { table: 't' })],
    ['key', () => library.keyOf(1 as never, 1)],
    ['key', () => library.keyOf(undefined as never, 1)],
  ]);
  expect(await load({ table: 't' })()).toEqual({ files: 1, rows: 1 });
  // Read as decimal and not as hexadecimal: 10, not 16.
  expect(await one.table('t').pull(keysOf(10))).toEqual(Float32Array.of(1, 2));
});

it('times that no timer can wait for, and what a rolling restart and an observer are told', async () => {
  const { one, url } = await job();
  const { drain, Observer, openExport, plannedMoves, rebalance, restart, scale } = library;
  const timeoutMs = 2 ** 40;
  const observer = (options: object) => () => new Observer(one, options as never);
  await refused([
    ['timeoutMs', () => scale(one, 2, { timeoutMs })],
    ['timeoutMs', () => drain(one, 'ps-0', { timeoutMs })],
    ['timeoutMs', () => rebalance(one, { timeoutMs })],
    ['timeoutMs', () => plannedMoves(one, { timeoutMs })],
    ['timeoutMs', () => restart(one, { timeoutMs })],
    ['timeoutMs', () => one.observe({ timeoutMs })],
    ['everyMs', () => openExport(url, { everyMs: timeoutMs })],
    ['intervalMs', observer({ intervalMs: timeoutMs })],
    ['intervalMs', observer({ intervalMs: '1' })],
    ['interval"', observer({ interval: 1 })],
    ['shards', observer({ shards: 'x' })],
    ['onError', observer({ onError: 1 })],
    ['options', observer([])],
    ['options', () => new Observer(one, null as never)],
    ['observe', () => new Observer({} as never)],
    ['listener', () => new Observer(one).on(5 as never)],
    ['nodes', () => restart(one, { nodes: 'ps-0' as never })],
    ['nodes', () => restart(one, { nodes: 1 as never })],
    ['nodes', () => restart(one, { nodes: [1 as never] })],
  ]);
  // The longest time that there is, to the scheduler and back.
  expect((await rebalance(one, { timeoutMs: 2 ** 31 - 1 })).state).toBe('done');
  // A caller without a limit of its own may give any.
  const { session } = internalsOf(one);
  expect((await session.status(Number.POSITIVE_INFINITY)).nodes).toHaveLength(2);
});

it('policies and secrets', async () => {
  const { address } = await job();
  const { connect, startLocalCluster } = library;
  const start = (options: object) => async () => (await startLocalCluster(options as never)).close();
  const dial = (options: object) => async () => (await connect(address, options as never)).close();
  const wrong = [Number.NaN, -1, 0, 0.5, Number.POSITIVE_INFINITY, 2 ** 53, 'x', null, undefined];
  await refused([
    ...wrong.map((retryMs) => ['retryMs', dial({ policy: { retryMs } })] as const),
    ...wrong.map((maxParked) => ['maxParked', start({ policy: { maxParked } })] as const),
    ...wrong.map((silentMs) => ['silentMs', start({ schedulerPolicy: { silentMs } })] as const),
    ...[0.5, -1].map((recoveryRate) => ['recoveryRate', start({ policy: { recoveryRate } })] as const),
    ...[0, 1, 3].map(
      (backgroundShare) => ['backgroundShare', start({ policy: { backgroundShare } })] as const,
    ),
    ['balanceJoining', start({ schedulerPolicy: { balanceJoining: 'x' } })],
    ['requireRedundancy', start({ policy: { requireRedundancy: 1 } })],
    ['token', dial({ token: 0 })],
    ['token', dial({ token: null })],
    ['token', start({ token: 5 })],
    ['nodeToken', start({ nodeToken: 5 })],
    ['metricsToken', start({ metricsToken: {} })],
  ]);
  // An environment variable that is empty.
  await dial({ token: '' })();
  await start({ policy: { recoveryRate: 0, backgroundShare: 0.5, recoveryWindow: 1 } })();
});

it('null is no default, and a Map has no options', async () => {
  const { address, one, url } = await job();
  const { connect, importRows, Observer, openExport, startLocalCluster } = library;
  const table = (options: object) => () => one.createTable({ name: 'u', dim: 2, ...options } as never);
  await refused([
    ...['optimizer', 'initializer', 'seed', 'pool', 'policy'].map(
      (name) => [name, table({ [name]: null })] as const,
    ),
    ['tables', () => openExport(url, { tables: null as never })],
    ['tables', () => openExport(url, { tables: '' as never })],
    ['everyMs', () => openExport(url, { everyMs: null as never })],
    ['ps', () => startLocalCluster({ ps: null as never })],
    ['intervalMs', () => new Observer(one, { intervalMs: null as never })],
    ['connectTimeoutMs', () => connect(address, { connectTimeoutMs: null as never })],
    ['replica', () => connect(address, { replica: null as never })],
    ['into', () => one.pull([{ table: 't', keys: keysOf(1), into: null as never }])],
    ['batchRows', () => one.scan('t', { batchRows: null as never })],
    ['lr', () => one.table('t').set({ lr: null as never })],
    ['options', () => connect(address, new Map() as never)],
    ['options', () => openExport(url, new Date() as never)],
    ['options', () => importRows(one, ['x.csv'], [] as never)],
  ]);
  await one.table('t').set({ clipNorm: null, lr: 1 });
  // Options may be of any class.
  class Waiting {
    signal = AbortSignal.timeout(60_000);
  }
  await one.table('t').pull(keysOf(1), new Waiting());
});

it('objects of the caller are its own again after the call', async () => {
  const policy = { heartbeatMs: 150 };
  const options = { code: '1+1', policy, token: 'right' };
  const local = await cluster(options);
  Object.assign(policy, { heartbeatMs: Number.NaN });
  options.token = 'wrong';
  await local.add();
  const dialled = { token: 'right', replica: { owners: true }, policy: { retryMs: 50 } };
  const connecting = client(local.address, dialled);
  dialled.token = 'wrong';
  dialled.replica.owners = false;
  dialled.policy.retryMs = 2 ** 40;
  const one = await connecting;
  const table = await one.createTable({ name: 't', dim: 2 });
  expect(await table.pull(keysOf(1))).toHaveLength(2);
  const looked: object[] = [];
  const looking = {
    shards: true,
    onError: (error: unknown) => {
      throw error;
    },
  };
  const look = (asked: object) => {
    looked.push(asked);
    return one.observe(asked);
  };
  const observer = new library.Observer({ observe: look }, looking);
  looking.shards = false;
  await observer.look();
  expect(looked).toEqual([{ shards: true }]);
});

it('nodes of a local cluster that there are not, or that are up', async () => {
  const local = await cluster({ code: '1+1' });
  await refused([
    ...[99, -1, Number.NaN, undefined].map((index) => ['kill', () => local.kill(index as never)] as const),
    ['restart', () => local.restart(99)],
    ['kill', () => local.kill('length' as never)],
    ['kill', () => local.kill('0' as never)],
    ['ps', () => library.startLocalCluster({ ps: 1n as never })],
    ['ps', () => library.startLocalCluster({ ps: '2' as never })],
    ['groups', () => library.startLocalCluster({ ps: 5, groups: 1n as never })],
    ['up', () => local.restart(0)],
  ]);
  await local.kill(0);
  const [first, second] = [local.restart(0), rejection(local.restart(0))];
  expect((await second).code).toBe('BAD_ARGUMENT');
  await first;
  await local.nodes[1]!.close();
  await local.restart(1);
  await local.close();
  for (const work of [() => local.add(), () => local.restart(0)])
    expect((await rejection(work())).code).toBe('CLOSED');
});

it('tables that would not be what they say', async () => {
  const { one } = await job();
  const table = (options: object) => () => one.createTable({ name: 'u', dim: 2, ...options } as never);
  const initializer = (spec: object) => table({ initializer: spec });
  await refused([
    ['name', table({ name: 'a\nb' })],
    ['name', table({ name: 'a\u0000' })],
    ['name', table({ name: '\ud800' })],
    ['low', initializer({ kind: 'uniform', low: 1, high: -1 })],
    ['std', initializer({ kind: 'normal', mean: 0, std: -1 })],
    ['value', initializer({ kind: 'constant', value: 1e39 })],
    ['mean', initializer({ kind: 'normal', mean: -1e39, std: 1 })],
    ['std', initializer({ kind: 'normal', mean: 0, std: 3e38 })],
    ['std', initializer({ kind: 'normal', mean: -3.4e38, std: 1e37 })],
    ['dim', () => one.rowWidth({} as never)],
    ['dim', () => one.rowWidth(undefined as never)],
    ['dim', () => one.rowWidth({ ...one.table('t').spec, dim: 0 })],
    ['optimizer', () => one.rowWidth({ ...one.table('t').spec, optimizer: 'sgd' as never })],
  ]);
  expect(one.tables().map(({ name }) => name)).toEqual(['t']);
  const same = { kind: 'constant', value: 1 };
  const whole = await table({ name: '\u{1f600}', initializer: same })();
  expect(await whole.pull(keysOf(1))).toEqual(Float32Array.of(1, 1));
});

it('what is no client, no optimizer, no schema, no snapshot', async () => {
  const { one, url } = await job();
  const { checkPushes, digest, importRows, load, optimizerOf, parseSchema, quantile, ratesBetween } = library;
  const { drain, plannedMoves, restart, save, scale, scrub } = library;
  const { listTables, plannedEvictions, showTable } = library;
  const histogram = { counts: [1], sumSeconds: 1 };
  await refused([
    ...[undefined, null, {}, 5].flatMap((wrong) => {
      const no = wrong as never;
      const works: Work[] = [
        () => save(no, url),
        () => load(no, url),
        () => importRows(no, ['x.csv'], { table: 't' }),
        () => scrub(no),
        () => digest(no),
        () => checkPushes(no, []),
        () => scale(no, 1),
        () => drain(no, 'ps-0'),
        () => plannedMoves(no),
        () => restart(no),
        () => listTables(no),
        () => showTable(no, 't'),
        () => plannedEvictions(no, 't'),
      ];
      return works.map((work) => ['client', work] as const);
    }),
    ['counts', () => checkPushes(one, undefined as never)],
    ['counts', () => checkPushes(one, 'x' as never)],
    ['counts', () => checkPushes(one, [undefined as never])],
    ['client', () => checkPushes(one, [{} as never])],
    ['counts', () => checkPushes(one, [{ client: 1 } as never])],
    ['optimizer', () => optimizerOf('x' as never, 1)],
    ['optimizer', () => optimizerOf('toString' as never, 1)],
    ['lr', () => optimizerOf('sgd', '1' as never)],
    ['where', () => parseSchema({}, undefined as never)],
    ['must', () => parseSchema({}, 'schema')],
    ['part', () => quantile(undefined as never, histogram)],
    ['histograms', () => quantile(0.5, undefined as never)],
    ['histograms', () => quantile(0.5, histogram, {} as never)],
    ['observe', () => ratesBetween(undefined as never, undefined as never)],
    ['observe', () => ratesBetween({} as never, {} as never)],
  ]);
});
