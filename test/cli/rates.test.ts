/** Settings of tables that change while a job goes on: by `table set`, and by the flags of a worker. */

import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, expect, test } from 'vitest';
import { withoutFlags } from '../../src/common/arguments.js';
import type { OptimizerExtras } from '../../src/engine/optimizers.js';
import { type Client, connect, digest } from '../../src/index.js';
import { withoutEarlier } from '../../src/protocol/settings.js';
import { temporaryDirectory } from '../roles/support.js';
import { kintsugi, type Output, type Running, record, start } from './support.js';

const NODES = 4;
const running: Running[] = [];
const clients: Client[] = [];
afterEach(async () => {
  for (const client of clients.splice(0)) await client.close();
  for (const one of running.splice(0)) one.process.kill('SIGKILL');
});
const started = (args: string[]): Running => {
  running.push(start([...args, '--log-format', 'json']));
  return running.at(-1)!;
};

interface Job {
  directory: string;
  client: Client;
  nodes: Running[];
  run(...args: string[]): Promise<Output>;
  worker(...flags: string[]): Running;
}

/** A scheduler and PS in processes of their own, with data that a worker trains in the order of the file. */
async function startJob(): Promise<Job> {
  const directory = temporaryDirectory();
  const [schema, data] = [join(directory, 'schema.json'), join(directory, 'data.csv')];
  writeFileSync(schema, JSON.stringify({ label: 'y', sparse: ['t', 'u'] }));
  const line = (i: number) => `${i % 3 === 0 ? 1 : 0},t${i % 37},u${(i * i) % 101}`;
  writeFileSync(data, `y,t,u\n${Array.from({ length: 400 }, (_, i) => line(i)).join('\n')}\n`);
  const shape = ['--listen', '127.0.0.1:0', '--ps', `${NODES}`, '--code', '2+1'];
  const address = `${(await record(started(['scheduler', ...shape]), 'scheduler.ready')).address}`;
  const at = ['--scheduler', address];
  const nodes = Array.from({ length: NODES }, (_, i) => started(['ps', ...at, '--name', `ps-${i}`]));
  for (const node of nodes) await record(node, 'ps.ready');
  const client = await connect(address);
  clients.push(client);
  const model = ['--dim', '4', '--bottom', '8-4', '--top', '8-1', '--schema', schema, '--batch', '16'];
  return {
    ...{ directory, client, nodes },
    run: (...args) => kintsugi([...args, ...at]),
    worker: (...flags) => {
      const own = withoutFlags(model, flags);
      return started(['worker', ...at, '--data', data, ...own, '--deterministic', ...flags]);
    },
  };
}

/** Kills the PS that owns the first data shard. */
function killOwner({ client, nodes }: Job): void {
  const { groups, nodes: known } = client.clusterMap;
  const { name } = known.find(({ id }) => id === groups[0]!.data[0]!.node)!;
  nodes[Number(name.slice('ps-'.length))]!.process.kill('SIGKILL');
}

const ratesOf = ({ client }: Job) =>
  [...new Set(client.tables().map(({ optimizer }) => optimizer.lr))].sort((a, b) => a - b);
const trained = async (worker: Running) => {
  const { code, stderr } = await worker.ended;
  expect([code, code === 0 ? '' : stderr]).toEqual([0, '']);
  return stderr.split('\n').map((text) => JSON.parse(text) as Record<string, unknown>);
};
const optimizers = ['--optimizer', 'adam', '--dense-optimizer', 'adagrad'];

/** The digest of a job whose tables begin with the rows of `from`, and have its new rates from the start. */
async function reference(
  from: Client,
  rates: readonly [lr: number, denseLr: number],
  extras: OptimizerExtras = {},
): Promise<string> {
  const job = await startJob();
  for (const spec of from.tables()) {
    const { id: _, ...options } = withoutEarlier(spec);
    const changes = options.optimizer.kind === 'adam' ? { lr: rates[0], ...extras } : { lr: rates[1] };
    await job.client.createTable({ ...options, optimizer: { ...options.optimizer, ...changes } });
    for await (const { keys, rows } of from.scan(spec.name, { select: 'rows' }))
      await job.client.assign([{ table: spec.name, keys, gradients: rows }]);
  }
  await trained(job.worker('--run', 'd2', ...optimizers));
  return (await digest(job.client)).sha256;
}

test('a worker with another --lr trains on with it, also when a PS is killed at that moment', async () => {
  const job = await startJob();
  await trained(job.worker('--run', 'd1', '--lr', '0.02', ...optimizers));
  expect(ratesOf(job)).toEqual([0.001, 0.02]);
  const wanted = await reference(job.client, [0.01, 0.003]);
  const resumed = job.worker('--run', 'd2', '--lr', '0.01', '--dense-lr', '0.003', ...optimizers);
  await record(resumed, 'worker.ready');
  killOwner(job);
  await trained(resumed);
  expect([ratesOf(job), (await digest(job.client)).sha256]).toEqual([[0.003, 0.01], wanted]);

  // A worker that is restarted with its old flag undoes nothing, also not what `table set` has set.
  const { name } = job.client.tables()[0]!;
  const set = await job.run('table', 'set', name, 'lr=0.5');
  expect(set).toMatchObject({ code: 0, stderr: '' });
  for (const flags of [['--lr', '0.02'], ['--lr', '0.01', '--dense-lr', '0.003'], []]) {
    const records = await trained(job.worker('--run', 'd2', ...flags, ...optimizers));
    const told = records.filter(({ event, table }) => event === 'worker.setting' && table === name);
    expect(told).toMatchObject([{ lr: 0.5 }]);
    expect(job.client.table(name).spec.optimizer.lr).toBe(0.5);
  }
});

test('table set holds for what is pushed afterwards, also when a PS is killed at that moment', async () => {
  const job = await startJob();
  await trained(job.worker('--run', 'd1', '--lr', '0.02', ...optimizers));
  const wanted = await reference(job.client, [0.01, 0.01]);
  const names = job.client.tables().map(({ name }) => name);
  const setting = names.map((name) => job.run('table', 'set', name, 'lr=0.01', '--json'));
  killOwner(job);
  const answers = await Promise.all(setting);
  expect(answers.map(({ code, stdout }) => [code, JSON.parse(stdout)])).toEqual(
    names.map((table) => [0, { table, lr: 0.01, was: { lr: expect.any(Number) } }]),
  );
  await trained(job.worker('--run', 'd2', ...optimizers));
  expect([ratesOf(job), (await digest(job.client)).sha256]).toEqual([[0.01], wanted]);
});

test('clipping and schedule of a worker that resumes, and those that are set, are trained with', async () => {
  const job = await startJob();
  await trained(job.worker('--run', 'd1', '--lr', '0.02', ...optimizers));
  const schedule = { kind: 'cosine', steps: 50, floor: 0.5 } as const;
  const flags = ['--clip-norm', '0.001', '--lr-schedule', 'cosine,steps=50,floor=0.5'];
  const wanted = await reference(job.client, [0.02, 0.001], { clipNorm: 0.001, schedule });
  const resumed = job.worker('--run', 'd2', ...flags, ...optimizers);
  await record(resumed, 'worker.ready');
  killOwner(job);
  await trained(resumed);
  expect((await digest(job.client)).sha256).toBe(wanted);

  const { name } = job.client.tables().find(({ optimizer }) => optimizer.kind === 'adam')!;
  const set = await job.run('table', 'set', name, 'clip-norm=2', 'lr-schedule=none');
  const was = 'cosine,warmup=0,steps=50,floor=0.5';
  expect(set).toMatchObject({
    code: 0,
    stdout: `table ${name}: clip-norm 0.001 -> 2; lr-schedule ${was} -> none\n`,
  });
  const records = await trained(job.worker('--run', 'd3', ...flags, '--lr', '0.5', ...optimizers));
  const told = records.filter(({ event, table }) => event === 'worker.setting' && table === name);
  const again = expect.stringContaining(`"kintsugi table set ${name} clip-norm=0.001" sets it all the same`);
  expect(told).toMatchObject([
    { clipNorm: 2, asked: 0.001, message: again },
    { schedule: 'none', asked: was },
  ]);
  expect(job.client.table(name).spec.optimizer).toMatchObject({ lr: 0.5, clipNorm: 2, eps: 1e-8 });
  expect(job.client.table(name).spec.optimizer.schedule).toBeUndefined();
  const json = await job.run('table', 'set', name, 'clip-norm=none', '--json');
  expect(JSON.parse(json.stdout)).toEqual({ table: name, clipNorm: null, was: { clipNorm: 2 } });
});

test('a worker that is refused changes nothing, and one that has nothing to train sets nothing', async () => {
  const job = await startJob();
  await trained(job.worker('--run', 'd1', '--lr', '0.02', ...optimizers));
  const state = () => job.client.tables().map(({ name, optimizer }) => [name, optimizer]);
  const before = state();
  const asked = ['--lr', '0.777', '--dense-lr', '0.5', '--clip-norm', '3', ...optimizers];
  const { directory } = job;
  const other = join(directory, 'other.json');
  writeFileSync(other, JSON.stringify({ label: 'y', sparse: [{ column: 't', table: 'new' }, 'u'] }));
  const empty = join(directory, 'none.csv');
  for (const [flags, message] of [
    [['--run', 'd1', '--epochs', '7'], 'has epochs 1, not 7'],
    [['--run', 'd1', '--epochs', '7', '--schema', other], 'has epochs 1, not 7'],
    [['--run', 'd2', '--dim', '8', '--bottom', '8-8'], 'dim 4, not 8'],
    [['--run', 'd2', '--data', empty], 'none.csv'],
    [['--run', 'd2', '--schema', other, '--epochs', '9999999'], 'a data set has 1 to'],
    [['--run', 'd2', '--clip-norm', '0'], 'clip-norm'],
  ] as const) {
    const { code, stderr } = await job.worker(...asked, ...flags).ended;
    expect([code === 0, stderr]).toEqual([false, expect.stringContaining(message)]);
    expect(state()).toEqual(before);
  }
  // All samples of d1 are trained: what a worker asks for there is told, and not set.
  const records = await trained(job.worker('--run', 'd1', ...asked));
  expect(state()).toEqual(before);
  const told = records.filter(({ event, lr }) => event === 'worker.setting' && lr !== undefined);
  expect(new Set(told.map(({ lr, asked }) => `${lr} for ${asked}`))).toEqual(
    new Set(['0.02 for 0.777', '0.001 for 0.5']),
  );
  // A start that was refused has not begun its run: another batch is no difference.
  await trained(job.worker('--run', 'd2', '--batch', '8', ...asked));
  expect(ratesOf(job)).toEqual([0.5, 0.777]);
});

test('what may not change is refused with its field, and its old and new value', async () => {
  const job = await startJob();
  await trained(job.worker('--run', 'd1', '--optimizer', 'ftrl', '--lr', '0.02', '--clip-norm', '2'));
  const refused = async (...flags: string[]) => {
    const { code, stderr } = await job.worker('--clip-norm', '2', ...flags).ended;
    return [code === 0, stderr];
  };
  const cases = [
    [['--optimizer', 'ftrl', '--lr', '0.01'], 'optimizer.lr 0.02, not 0.01'],
    [['--optimizer', 'adam', '--lr', '0.02'], 'optimizer ftrl, not adam'],
    [['--optimizer', 'ftrl', '--seed', '2'], 'seed 1, not 2'],
    [['--optimizer', 'ftrl', '--dim', '8', '--bottom', '8-8'], 'dim 4, not 8'],
    [['--optimizer', 'adagrad', '--lr-schedule', 'constant,warmup=3'], 'optimizer ftrl, not adagrad'],
    [['--optimizer', 'ftrl', '--run', 'd1', '--staleness', '3'], 'has staleness none, not 3'],
  ] as const;
  for (const [flags, difference] of cases)
    expect(await refused(...flags)).toEqual([false, expect.stringContaining(difference)]);
  const schema = join(job.directory, 'other.json');
  for (const [other, difference] of [
    [{ sparse: ['t', 'u'], label: 'u' }, 'has a schema with label "y", not "u"'],
    [
      { label: 'y', sparse: ['t', { column: 'u', key: 'integer' }] },
      'has a schema with sparse ["t","u"], not ["t",{"column":"u","key":"integer"}]',
    ],
    [{ label: 'y', sparse: ['t', 'u'], weight: 'y' }, 'has a schema with weight none, not "y"'],
  ] as const) {
    writeFileSync(schema, JSON.stringify(other));
    const flags = ['--optimizer', 'ftrl', '--run', 'd1', '--schema', schema];
    expect(await refused(...flags)).toEqual([false, expect.stringContaining(difference)]);
  }
  writeFileSync(
    schema,
    JSON.stringify({ sparse: [{ key: 'string', column: 't' }, 'u'], label: { column: 'y' } }),
  );
  await trained(job.worker('--optimizer', 'ftrl', '--run', 'd1', '--clip-norm', '2', '--schema', schema));
  const { name } = job.client.tables().find(({ optimizer }) => optimizer.kind === 'ftrl')!;
  const set = (...args: string[]) => job.run('table', 'set', ...args);
  expect(await set(name, 'lr=0.01')).toMatchObject({
    code: 2,
    said: [expect.stringContaining('BAD_ARGUMENT: table')],
  });
  for (const args of [
    ['dim=3'],
    ['lr='],
    ['lr=x'],
    ['lr=0x10'],
    ['lr=Infinity'],
    ['lr=none'],
    ['lr=1', 'lr=2'],
    ['clip-norm=x'],
  ])
    expect((await set(name, ...args)).said).toEqual([expect.stringContaining('must be lr=NUMBER')]);
  for (const [setting, text] of [
    ['lr-schedule=cosine,steps=x', 'lr-schedule must be KIND,NAME=NUMBER'],
    ['lr-schedule=cosine,steps=9', 'schedule stays none and cannot become {"kind":"cosine"'],
    ['clip-norm=0', 'clipNorm must be a number in'],
    ['lr-schedule=cosine,steps=0x10', 'lr-schedule must be KIND,NAME=NUMBER'],
  ] as const)
    expect((await set(name, setting)).said).toEqual([expect.stringContaining(text)]);
  expect((await set('nobody', 'lr=1')).said).toEqual([expect.stringContaining('UNKNOWN_TABLE')]);
});
