/**
 * A file that grows while real workers train it, one is killed, one is told to stop: each line is trained
 * exactly once.
 */
import { appendFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { RoleEvent } from '../../../src/fleet/local/events.js';
import { finishedRanges } from '../../../src/fleet/local/samples.js';
import { connect } from '../../../src/library/client/client.js';
import { Dataset } from '../../../src/library/client/dataset.js';
import { checkPushes } from '../../../src/library/tools/audit.js';
import { startLocalCluster } from '../../../src/roles/cluster.js';
import { writeDemoData } from '../../../src/training/loop/demo-data.js';
import { kintsugi, type Running, record, start } from '../../cli/support.js';

const ROWS = 4000;
const MODEL = ['--dim', '8', '--bottom', '16-8', '--top', '16-1', '--batch', '32', '--audit'];
let directory = '';
let lines: string[] = [];

beforeAll(async () => {
  directory = mkdtempSync(join(tmpdir(), 'kintsugi-follow-'));
  const data = join(directory, 'all.tsv');
  await writeDemoData({ train: data, rows: ROWS, keys: 5000, seed: 1 });
  lines = readFileSync(data, 'utf8').trimEnd().split('\n');
});
afterAll(() => rmSync(directory, { recursive: true, force: true }));

/** Resolves when the worker has finished a range that begins at or behind a byte. */
const finished = (worker: Running, from: number) =>
  worker.line((line) => {
    if (!line.includes('"event":"worker.range"')) return false;
    const { outcome, begin } = JSON.parse(line) as { outcome: string; begin: number };
    return outcome === 'finished' && begin >= from;
  });
const events = (log: string) =>
  log.split('\n').flatMap((line) => (line.startsWith('{') ? [JSON.parse(line) as RoleEvent] : []));

test('a worker follows a file; killed, another resumes; stopped, it hands back; all just once', async () => {
  const file = join(directory, 'stream.tsv');
  writeFileSync(file, '');
  let written = 0;
  let bytes = 0;
  /**
   * The next lines, the last one without its end: it belongs to the next part. Returns how many bytes there
   * were before.
   */
  const write = (count: number): number => {
    const before = bytes;
    const text = `${lines.slice(written, written + count).join('\n')}\n`;
    written += count;
    bytes += text.length;
    appendFileSync(file, text.slice(0, 100));
    appendFileSync(file, text.slice(100));
    return before;
  };
  const cluster = await startLocalCluster({ ps: 3, code: '2+1' });
  const client = await connect(cluster.address, { audit: true });
  try {
    const args = [
      'worker',
      '--scheduler',
      cluster.address,
      '--data',
      file,
      '--follow',
      '--range-batches',
      '4',
    ];
    const worker = () => start([...args, ...MODEL, '--log-format', 'json']);
    const first = worker();
    await first.line((line) => line.includes('"event":"worker.training"'));
    // Alone with an empty file, it waits; then it trains what comes, part after part.
    for (const part of [500, 7]) {
      write(part);
      for (let samples = 0; samples < written; ) {
        const status = await Dataset.status(client, 'train');
        samples = status?.samples[0] ?? 0;
      }
    }
    // Killed with most of a part before it.
    await finished(first, write(1500));
    first.process.kill('SIGKILL');
    const killed = await first.ended;
    const second = worker();
    await finished(second, write(1000));
    // Half a line is nobody's yet.
    const half = lines[written]!;
    appendFileSync(file, half.slice(0, 30));
    second.process.kill('SIGTERM');
    const stopped = await second.ended;
    expect(stopped.said).toEqual([]);
    expect(stopped.signal).toBe('SIGTERM');
    const third = worker();
    appendFileSync(file, `${half.slice(30)}\n`);
    written += 1;
    bytes += half.length + 1;
    await finished(third, write(ROWS - written));
    // A range that began in the second worker's time may end with another worker: the books say when all is
    // done.
    for (;;) {
      const status = await Dataset.status(client, 'train');
      if (status?.finished === status?.ranges) break;
    }
    third.process.kill('SIGTERM');
    const ended = await third.ended;
    expect(ended.signal).toBe('SIGTERM');
    const status = await Dataset.status(client, 'train');
    expect(status).toMatchObject({ samples: [ROWS], setAside: [], open: 0, complete: false });
    const told = finishedRanges([killed, stopped, ended].flatMap(({ stderr }) => events(stderr)));
    expect(told).toHaveLength(status!.finished);
    expect(await checkPushes(client, told)).toMatchObject({ lost: 0, duplicated: 0 });
  } finally {
    await client.close();
    await cluster.close();
  }
});

test('a scheduler that was killed knows how far the file was trained; its workers go on', async () => {
  const file = join(directory, 'restart.tsv');
  const part = (from: number, to: number) => `${lines.slice(from, to).join('\n')}\n`;
  writeFileSync(file, part(0, 600));
  const json = ['--log-format', 'json'];
  const shape = ['--dir', join(directory, 'scheduler'), '--ps', '3', '--code', '2+1'];
  const schedulerAt = (listen: string) => start(['scheduler', '--listen', listen, ...shape, ...json]);
  const roles = [schedulerAt('127.0.0.1:0')];
  try {
    const address = String((await record(roles[0]!, 'scheduler.ready')).address);
    for (const name of ['a', 'b', 'c'])
      roles.push(start(['ps', '--scheduler', address, '--name', name, '--host-label', name, ...json]));
    const args = ['worker', '--scheduler', address, '--data', file, '--follow', '--range-batches', '4'];
    const worker = start([...args, ...MODEL, ...json]);
    roles.push(worker);
    await finished(worker, 1);
    roles[0]!.process.kill('SIGKILL');
    await roles[0]!.ended;
    const before = Buffer.byteLength(part(0, 600));
    appendFileSync(file, part(600, 1000));
    roles[0] = schedulerAt(address);
    await finished(worker, before);
    const client = await connect(address, { audit: true });
    let status = await Dataset.status(client, 'train');
    while (status?.samples[0] !== 1000) status = await Dataset.status(client, 'train');
    expect(status).toMatchObject({ setAside: [], complete: false });
    worker.process.kill('SIGTERM');
    const { signal, stderr } = await worker.ended;
    expect(signal).toBe('SIGTERM');
    expect(await checkPushes(client, finishedRanges(events(stderr)))).toMatchObject({
      lost: 0,
      duplicated: 0,
    });
    await client.close();
  } finally {
    for (const { process, ended } of roles) {
      process.kill('SIGKILL');
      await ended;
    }
  }
});

test('what cannot be followed is refused', async () => {
  const file = join(directory, 'all.tsv');
  for (const [flags, message] of [
    [['--data', file, '--follow', '--epochs', '2'], /--follow goes on until it is stopped/],
    [['--data', file, '--follow', '--test', file], /--follow goes on until it is stopped/],
    [['--data', `${file}.gz`, '--follow'], /is compressed/],
  ] as const) {
    const output = await kintsugi(['worker', ...flags]);
    expect(output.code).toBe(2);
    expect(output.said.at(-1)).toMatch(/^kintsugi: BAD_ARGUMENT: /);
    expect(output.said.at(-1)).toMatch(message);
  }
});
