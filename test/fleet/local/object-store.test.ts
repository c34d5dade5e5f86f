/** Whole jobs whose checkpoints are in an object store that fails requests and cuts answers. */
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from 'vitest';
import type { KilledReport } from '../../../src/fleet/local/killed.js';
import type { RunReport } from '../../../src/fleet/local/report.js';
import { type Client, connect } from '../../../src/library/client/client.js';
import { setSavePlan } from '../../../src/library/tools/checkpoints.js';
import { CHECKPOINT_PLAN } from '../../../src/protocol/saving.js';
import { startLocalCluster } from '../../../src/roles/cluster.js';
import { checkpointNumbers, listCheckpoints } from '../../../src/stores/checkpoint/checkpoints.js';
import type { Place } from '../../../src/stores/checkpoint/place.js';
import { verifyCheckpoint } from '../../../src/stores/checkpoint/verify.js';
import { writeDemoData } from '../../../src/training/loop/demo-data.js';
import { kintsugi, type Output } from '../../cli/support.js';
import { ENDPOINT, makeBucket, s3Place, startProxy } from '../../stores/checkpoint/s3-server.js';
import { random } from '../../stores/checkpoint/support.js';

const SHAPE = ['--ps', '3', '--code', '2+1', '--dim', '8', '--bottom', '16-8', '--top', '16-1'];
/** Five of a hundred requests fail, and five more break on their way. */
const [FAILED, BROKEN] = [5, 5];
let directory = '';
let data = '';

beforeAll(async () => {
  directory = mkdtempSync(join(tmpdir(), 'kintsugi-object-store-'));
  data = join(directory, 'train.tsv');
  const test = join(directory, 'test.tsv');
  await writeDemoData({ train: data, test, rows: 6000, testRows: 10, keys: 3000, seed: 1 });
});
afterAll(() => rmSync(directory, { recursive: true, force: true }));

function badConnection(): ReturnType<typeof startProxy> {
  const next = random(5);
  const refused = ['busy', 'failed'] as const;
  const broken = ['halfAnswer', 'halfRequest', 'lost'] as const;
  return startProxy(() => {
    const at = next() % 100;
    if (at < FAILED) return refused[next() % refused.length];
    return at < FAILED + BROKEN ? broken[next() % broken.length] : undefined;
  });
}

async function local<T>(name: string, endpoint: string, args: string[]): Promise<[Output, T]> {
  const json = join(directory, `${name}.json`);
  const flags = ['local', '--data', data, ...SHAPE, '--epochs', '3', ...args, '--json', json, '--quiet'];
  // The SDK warns of the versions of Node that it will not run on.
  const env = { KINTSUGI_S3_ENDPOINT: endpoint, AWS_REGION: 'us-east-1', NODE_NO_WARNINGS: '1' };
  const output = await kintsugi(flags, env);
  const report = existsSync(json) ? JSON.parse(readFileSync(json, 'utf8')) : undefined;
  return [output, report as T];
}

/** Numbers of all checkpoints of a place, seen without the bad connection: every one of them is whole. */
async function whole(url: string): Promise<number[]> {
  const place = await s3Place(url);
  const numbers: number[] = [];
  for (const { number, problem } of await listCheckpoints(place)) {
    const found = problem ?? (await problemsOf(place, number));
    // Older ones are removed after the answer to a newer one, each manifest before its files.
    if (found !== undefined && !(await checkpointNumbers(place)).includes(number)) continue;
    expect(found, `checkpoint ${number}`).toBeUndefined();
    numbers.push(number);
  }
  return numbers;
}

async function problemsOf(place: Place, number: number): Promise<string | undefined> {
  try {
    const { bad } = await verifyCheckpoint(place, number);
    return bad.length === 0 ? undefined : JSON.stringify(bad);
  } catch (error) {
    return String(error);
  }
}

/** The newest checkpoint may be complete without the job having heard of it before it ended. */
function expectNewest({ checkpoints }: Pick<RunReport, 'checkpoints'>, numbers: readonly number[]): void {
  const { newest } = checkpoints!;
  expect([newest, newest! + 1]).toContain(numbers.at(-1));
}

describe.skipIf(!ENDPOINT)('a job with its checkpoints in an object store', () => {
  test('behind a bad connection: killed, verified, and restored, each sample exactly once', async () => {
    const url = `s3://${await makeBucket()}/job`;
    const { endpoint, counts } = await badConnection();
    const place = ['--checkpoint', url, '--every', '200ms', '--keep', '2'];
    const [killed, before] = await local<KilledReport>('killed', endpoint, [...place, '--kill', 'all@60%']);
    expect(killed).toMatchObject({ code: 137, stderr: '' });
    const listed = await whole(url);
    expectNewest(before, listed);

    const [output, report] = await local<RunReport>('restored', endpoint, ['--restore', url, ...place]);
    expect(output).toMatchObject({ code: 0, stderr: '' });
    const { samples, pushes, parity, restored, checkpoints } = report;
    expect(restored).toMatchObject({ place: url, number: listed.at(-1) });
    expect(samples).toMatchObject({ trained: 18_000, expected: 18_000, exactlyOnce: true, problems: [] });
    expect(pushes).toMatchObject({ lost: 0, duplicated: 0 });
    expect(parity).toMatchObject({ mismatched: 0, blocksUnprotected: 0 });
    expectNewest(report, await whole(url));
    // Every kind of failure was seen, and none cost a checkpoint.
    expect(Object.keys(counts).sort()).toEqual(['busy', 'failed', 'halfAnswer', 'halfRequest', 'lost']);
    expect(checkpoints!.failed).toEqual([]);
  }, 240_000);

  test('two jobs in one place behind it: of two writers of a number one wins', async () => {
    const url = `s3://${await makeBucket()}/two`;
    const { endpoint } = await badConnection();
    vi.stubEnv('KINTSUGI_S3_ENDPOINT', endpoint).stubEnv('AWS_REGION', 'us-east-1');
    onTestFinished(() => void vi.unstubAllEnvs());
    const jobs = await Promise.all([1, 2].map(() => jobIn(url)));
    const winners = new Map<number, number>();
    let taken = 0;
    // Whether two meet at a number is a matter of moments, so they go on until they did, and both have won.
    for (let round = 0; round < 8 || taken === 0 || new Set(winners.values()).size < 2; round++) {
      const outcomes = await Promise.allSettled(jobs.map((job) => job.checkpoint()));
      for (const [index, outcome] of outcomes.entries()) {
        if (outcome.status === 'rejected') {
          // The other one was first: with this number, or with a later one, which removes what is older.
          expect(outcome.reason).toMatchObject({
            code: expect.stringMatching(/^(CHECKPOINT_TAKEN|BAD_CHECKPOINT)$/),
          });
          taken++;
        } else {
          expect(winners).not.toContain(outcome.value.number);
          winners.set(outcome.value.number, index);
        }
      }
    }
    await whole(url);
  }, 120_000);
});

/** A job in this process, with a table, whose place this is. */
async function jobIn(url: string): Promise<Client> {
  const cluster = await startLocalCluster({ ps: 1, code: 'none' });
  onTestFinished(() => cluster.close());
  const job = await connect(cluster.address);
  onTestFinished(() => job.close());
  const table = await job.createTable({ name: 'counts', dim: 2, optimizer: { kind: 'sgd', lr: -1 } });
  const keys = BigUint64Array.from({ length: 1000 }, (_, i) => BigInt(i));
  await table.push(keys, new Float32Array(2000).fill(1));
  await setSavePlan(job, CHECKPOINT_PLAN, { url, everyMs: 0, keep: 3, rate: 0, kind: 'full job' });
  return job;
}
