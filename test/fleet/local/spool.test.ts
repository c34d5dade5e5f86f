/**
 * Standard input of real workers, followed by way of a spool: killed, stopped, ended; each line is trained
 * exactly once.
 */
import { appendFileSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { RoleEvent } from '../../../src/fleet/local/events.js';
import { finishedRanges } from '../../../src/fleet/local/samples.js';
import { type Client, connect } from '../../../src/library/client/client.js';
import { Dataset } from '../../../src/library/client/dataset.js';
import { checkPushes } from '../../../src/library/tools/audit.js';
import { startLocalCluster } from '../../../src/roles/cluster.js';
import { writeDemoData } from '../../../src/training/loop/demo-data.js';
import { kintsugi, type Output, type Running, record, start } from '../../cli/support.js';

const ROWS = 3000;
const JSON_LOG = ['--log-format', 'json'];
const MODEL = ['--dim', '8', '--bottom', '16-8', '--top', '16-1', '--batch', '32', '--audit'];
let directory = '';
let lines: string[] = [];

beforeAll(async () => {
  directory = mkdtempSync(join(tmpdir(), 'kintsugi-spool-'));
  const data = join(directory, 'all.tsv');
  await writeDemoData({ train: data, rows: ROWS, keys: 5000, seed: 1 });
  lines = readFileSync(data, 'utf8').trimEnd().split('\n');
});
afterAll(() => rmSync(directory, { recursive: true, force: true }));

const text = (from: number, to: number) => lines.slice(from, to).join('\n');
const linesIn = (file: string) => readFileSync(file, 'utf8').split('\n').length - 1;

/** Follows its standard input by way of a spool. */
function piped(scheduler: string, spool: string, flags: string[] = []): Running {
  const args = ['worker', '--scheduler', scheduler, '--data', '-', '--follow', '--spool', spool];
  return start([...args, '--range-batches', '4', ...MODEL, ...JSON_LOG, ...flags], {}, 'pipe');
}

/** Resolves when the worker has finished a range that ends behind a line. */
function finished(worker: Running, line: number): Promise<string> {
  const bytes = Buffer.byteLength(text(0, line));
  return worker.line((each) => {
    if (!each.includes('"event":"worker.range"')) return false;
    const { outcome, begin } = JSON.parse(each) as { outcome: string; begin: number };
    return outcome === 'finished' && begin >= bytes;
  });
}

const events = ({ stderr }: Output) =>
  stderr.split('\n').flatMap((line) => (line.startsWith('{') ? [JSON.parse(line) as RoleEvent] : []));

/** Every line once: by the scheduler's count, and by what was applied. */
async function expectOnce(client: Client, run: string, samples: number, ended: Output[]): Promise<void> {
  const status = await Dataset.status(client, run);
  expect(status).toMatchObject({ samples: [samples], setAside: [], open: 0 });
  expect(status?.finished).toBe(status?.ranges);
  const told = finishedRanges(ended.flatMap(events));
  expect(told).toHaveLength(status?.finished ?? -1);
  expect(await checkPushes(client, told)).toMatchObject({ lost: 0, duplicated: 0 });
}

test('a killed worker is restarted on its spool, trains the rest, and ends with its input', async () => {
  const spool = join(directory, 'killed.tsv');
  const shape = ['--dir', join(directory, 'scheduler'), '--ps', '3', '--code', '2+1'];
  const roles = [start(['scheduler', '--listen', '127.0.0.1:0', ...shape, ...JSON_LOG])];
  try {
    const address = String((await record(roles[0]!, 'scheduler.ready')).address);
    for (const name of ['a', 'b', 'c'])
      roles.push(start(['ps', '--scheduler', address, '--name', name, '--host-label', name, ...JSON_LOG]));
    const first = piped(address, spool);
    roles.push(first);
    const input = first.process.stdin!;
    input.on('error', () => {});
    input.write(text(0, 400));
    // The last one had no end yet.
    await finished(first, 200);
    input.write(`\n${text(400, 1200)}\n`);
    await finished(first, 500);
    // More than it can train before it is dead, the last one by half.
    input.write(`${text(1200, 2000)}\n${lines[2000]!.slice(0, 40)}`);
    await finished(first, 1200);
    first.process.kill('SIGKILL');
    const killed = await first.ended;
    // Another one follows the file that the first one fed; it does not mind that half a line comes and goes.
    const other = ['worker', '--scheduler', address, '--data', spool, '--follow', '--range-batches', '4'];
    const second = start([...other, ...MODEL, ...JSON_LOG]);
    roles.push(second);
    await record(second, 'worker.training');
    appendFileSync(spool, 'torn');
    const kept = linesIn(spool);
    const third = piped(address, spool, ['--spool-lead', '8KiB']);
    roles.push(third);
    expect(await record(third, 'worker.spool')).toMatchObject({ level: 'warn', cut: 4 });
    third.process.stdin!.end(text(kept, ROWS));
    const ended = await third.ended;
    expect(ended.said).toEqual([]);
    expect(ended.code).toBe(0);
    second.process.kill('SIGTERM');
    const stopped = await second.ended;
    expect(stopped.signal).toBe('SIGTERM');
    const client = await connect(address, { audit: true });
    expect(readFileSync(spool, 'utf8')).toBe(`${text(0, ROWS)}\n`);
    await expectOnce(client, 'train', ROWS, [killed, stopped, ended]);
    await client.close();
  } finally {
    for (const { process, ended } of roles) {
      process.kill('SIGKILL');
      await ended;
    }
  }
});

test('inputs that end, fail, are stopped or are nothing', async () => {
  const cluster = await startLocalCluster({ ps: 3, code: '2+1' });
  const client = await connect(cluster.address, { audit: true });
  try {
    const at = (name: string) => join(directory, `${name}.tsv`);
    const worker = (name: string) => piped(cluster.address, at(name), ['--run', name]);

    const empty = worker('empty');
    empty.process.stdin!.end();
    expect(await empty.ended).toMatchObject({ code: 0, said: [] });
    expect(await Dataset.status(client, 'empty')).toMatchObject({ samples: [0], ranges: 0 });

    // The lines before the one that is too long are trained.
    const long = worker('long');
    long.process.stdin!.on('error', () => {});
    long.process.stdin!.write(`${text(0, 300)}\n${'1'.repeat(70_000)}\n`);
    const failed = await long.ended;
    expect(failed.said).toEqual(['kintsugi: BAD_DATA: standard input: line 301 has more than 65536 bytes']);
    expect(failed.code).toBe(2);
    await expectOnce(client, 'long', 300, [failed]);

    const stopped = worker('stopped');
    stopped.process.stdin!.on('error', () => {});
    stopped.process.stdin!.write(`${text(0, 500)}\n${lines[500]!.slice(0, 9)}`);
    await finished(stopped, 0);
    stopped.process.kill('SIGTERM');
    const first = await stopped.ended;
    expect(first).toMatchObject({ signal: 'SIGTERM', said: [] });
    expect(events(first).find(({ event }) => event === 'worker.input')).toMatchObject({ dropped: 9 });
    expect(linesIn(at('stopped'))).toBe(500);
    // A line that nobody can train is kept, set aside and named, like one of any file.
    const again = worker('stopped');
    again.process.stdin!.end('no such line');
    const second = await again.ended;
    expect(second.said.at(-1)).toMatch(
      /^kintsugi: BAD_DATA: samples in bytes .* were not all trained: .*:501:/,
    );
    expect(second.code).toBe(2);
    expect((await Dataset.status(client, 'stopped'))?.setAside).toHaveLength(1);

    // Another file under the same name: what it brings would be taken for what was trained.
    rmSync(at('stopped'));
    const wrong = worker('stopped');
    expect(await wrong.ended).toMatchObject({ code: 2 });
    expect((await wrong.ended).said.at(-1)).toMatch(
      /BAD_DATA: .*stopped\.tsv: has 0 bytes, and \d+ were there before/,
    );
  } finally {
    await client.close();
    await cluster.close();
  }
});

test('what cannot be spooled is refused', async () => {
  const file = join(directory, 'all.tsv');
  const spool = join(directory, 'refused.tsv');
  for (const [flags, message] of [
    [['--data', '-'], /standard input can be read only once.*--follow --spool FILE/],
    [['--data', '-', '--follow'], /standard input can be read only once/],
    [['--data', '-', '--spool', spool], /standard input can be read only once/],
    [['--data', file, '--follow', '--spool', spool], /--spool needs --data -/],
    [['--data', file, '--spool-lead', '1MiB'], /--spool-lead needs --spool/],
    [['--data', '-', file, '--follow', '--spool', spool], /takes no further files/],
    [['--data', '-', '--follow', '--spool', `${spool}.gz`], /not compressed/],
    [['--data', '-', '--follow', '--spool', directory], /--spool .* cannot be written/],
    [['--data', '-', '--follow', '--spool', spool, '--spool-lead', '0'], /--spool-lead must be/],
    [['--data', '-', '--follow', '--spool', spool, '--epochs', '2'], /--follow goes on until/],
  ] as const) {
    const output = await kintsugi(['worker', ...flags]);
    expect(output.said.at(-1)).toMatch(/^kintsugi: BAD_ARGUMENT: /);
    expect(output.said.at(-1)).toMatch(message);
    expect(output.code).toBe(2);
  }
  const launched = { KINTSUGI_LIFELINE: 'stdin' };
  const child = start(['worker', '--data', '-', '--follow', '--spool', spool], launched, 'pipe');
  expect((await child.ended).said).toEqual([
    'kintsugi: BAD_ARGUMENT: --data -: standard input is what ties this worker to its launcher',
  ]);
});
