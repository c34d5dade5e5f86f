/**
 * `kintsugi bench pull` and `push` end to end in their smoke modes, and the parts that could be wrong without
 * a trace.
 */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { predictedBytes } from '../../bench/common/loopback/growth.js';
import { addLatencies } from '../../bench/common/loopback/latency.js';
import { type Contender, ending, latency, turn } from '../../bench/common/loopback/measure.js';
import { DIM, LOOPBACK_OPTIONS } from '../../bench/common/loopback/options.js';
import { descend, evalSha, mget, mset, Redis, redisVersion } from '../../bench/common/loopback/redis.js';
import { consecutive, gradients, keySets } from '../../bench/common/loopback/requests.js';
import { BenchReport } from '../../bench/common/report.js';
import { median, quantile } from '../../bench/common/statistics.js';
import { BareTransport } from '../../dist/bench/common/loopback/bare.js';
import { OnePs } from '../../dist/bench/common/loopback/cluster.js';
import { describe as describeError } from '../../src/common/errors.js';
import { cpuSeconds } from '../../src/fleet/local/processor-time.js';
import { kintsugi } from '../cli/support.js';

let directory = '';
beforeAll(() => {
  directory = mkdtempSync(join(tmpdir(), 'kintsugi-loopback-test-'));
});
afterAll(() => rmSync(directory, { recursive: true, force: true }));

/** Fields of a contender whose server is this process. */
const ALIVE = { serverPid: process.pid, ended: new Promise<never>(() => {}) };

interface Written {
  name: string;
  results: { name: string; values: Record<string, number> }[];
  goals: { name: string; value: number; goal: number; met: boolean }[];
  skipped: string[];
}

describe.each([
  ['pull', 1],
  ['push', 2],
])('kintsugi bench %s --smoke', (name, redisGoals) => {
  it('measures every contender and writes its goals', async () => {
    const json = join(directory, `${name}.json`);
    const { code, said } = await kintsugi(['bench', name, '--smoke', '--json', json]);
    expect(said).toEqual([]);
    expect(code).toBe(0);
    const report = JSON.parse(readFileSync(json, 'utf8')) as Written;
    expect(report.name).toBe(name);
    const first = report.results.find((result) => result.name === name)!;
    expect(Object.keys(first.values).slice(0, 2)).toEqual(['library', 'bare transport']);
    for (const result of report.results) {
      for (const value of Object.values(result.values)) expect(value, result.name).toBeGreaterThan(0);
    }
    expect(report.goals.filter((goal) => goal.name.includes('bare transport'))).toHaveLength(1);
    const installed = redisVersion() !== undefined;
    expect(report.goals.filter((goal) => goal.name.includes('redis'))).toHaveLength(
      installed ? redisGoals : 0,
    );
    expect(report.skipped.length).toBe(installed ? 0 : 1);
    for (const goal of report.goals) expect(goal.met).toBe(goal.value >= goal.goal);
  });
});

describe('flags', () => {
  it('are refused when they are no numbers', () => {
    expect(() => LOOPBACK_OPTIONS.parse({ rows: 'many' })).toThrow(/many/);
    expect(LOOPBACK_OPTIONS.parse({ rows: '9000', growTo: '0' })).toMatchObject({
      rows: 9000,
      growTo: 0,
      smoke: false,
    });
  });
});

describe('measuring', () => {
  it('takes medians and quantiles', () => {
    expect(median([5, 1, 3])).toBe(3);
    expect(quantile([1, 2, 3, 4], 0.99)).toBe(4);
    expect(quantile([1, 2, 3, 4], 0.5)).toBe(3);
  });

  it('counts every request of a turn once, with consecutive numbers', async () => {
    const seen: number[] = [];
    const request = async (i: number) => void seen.push(i);
    const { requestsPerSecond } = await turn({ name: 'x', ...ALIVE, request }, 1, 10);
    expect(seen).toEqual(seen.map((_, i) => 10 + i));
    expect(requestsPerSecond).toBeGreaterThan(0);
  });

  it('sends at a fixed rate whether or not answers come', async () => {
    const answers: (() => void)[] = [];
    const request = () =>
      new Promise<void>((resolve) => {
        answers.push(resolve);
        if (answers.length === 10) for (const answer of answers) answer();
      });
    const took = await latency({ name: 'x', ...ALIVE, request }, 1000, 10);
    // None was answered before all were sent, or this would not end.
    expect(took.length).toBe(10);
    expect([...took]).toEqual([...took].sort((a, b) => a - b));
  });

  it('fails when a request fails', async () => {
    const request = () => Promise.reject(new Error('no'));
    await expect(latency({ name: 'x', ...ALIVE, request }, 1000, 2)).rejects.toThrow('no');
  });

  it('reads the processor time of a process whatever its name', () => {
    expect(cpuSeconds(process.pid)).toBeGreaterThan(0);
    expect(cpuSeconds(-1)).toBeNaN();
  });
});

describe('a contender that dies ends the measurement with an error', () => {
  /** Kills the server while a turn has requests under way. */
  async function killed(contender: Contender): Promise<string> {
    let asked = 0;
    const request = async (i: number) => {
      if (++asked === 8) process.kill(contender.serverPid, 'SIGKILL');
      await contender.request(i);
    };
    return turn({ ...contender, request }, 600_000).then(() => 'none', describeError);
  }

  it.each([
    ['a turn', (contender: Contender) => turn(contender, 600_000)],
    ['requests at a fixed rate', (contender: Contender) => latency(contender, 1000, 600_000)],
  ])('%s whose requests are never answered', async (_, measure) => {
    const { ended, end } = ending('fake');
    const request = (i: number) => {
      if (i === 3) end('its connection was closed');
      return new Promise<void>(() => {});
    };
    const measured = measure({ name: 'fake', serverPid: process.pid, ended, request });
    await expect(measured).rejects.toThrow('fake: its connection was closed');
  });

  it('the bare transport', async () => {
    const bare = await BareTransport.start();
    try {
      expect(await killed(bare.contender('push', 1000, 0))).toMatch(/bare transport/);
      // A measurement that begins afterwards fails as well.
      await expect(latency(bare.contender('push', 1000, 0), 1000, 10)).rejects.toThrow(/bare transport/);
    } finally {
      await bare.close();
    }
  });

  it('a PS', async () => {
    const ps = await OnePs.start();
    try {
      const table = await ps.fill('rows', 100);
      const keys = consecutive(0, 10);
      expect(await killed(ps.contender('library', () => table.pull(keys)))).toMatch(/ps-0/);
    } finally {
      await ps.close();
    }
  });

  it('a PS whose table is being filled', async () => {
    const ps = await OnePs.start();
    try {
      process.kill(ps.pid, 'SIGKILL');
      await expect(ps.fill('rows', 100)).rejects.toThrow(/ps-0/);
    } finally {
      await ps.close();
    }
  });

  it.skipIf(redisVersion() === undefined)('Redis', async () => {
    const redis = await Redis.start();
    try {
      const command = mset(consecutive(0, 1), new Float32Array(DIM));
      expect(await killed(redis.contender('redis', () => redis.ok(command)))).toMatch(/redis/);
    } finally {
      await redis.close();
    }
  });
});

it('the offered rate stays below what the slowest contender can do', async () => {
  let free = Promise.resolve();
  const slow = () => {
    free = free.then(() => new Promise((resolve) => setTimeout(resolve, 4)));
    return free;
  };
  const contenders = [
    { name: 'fast', ...ALIVE, request: () => new Promise<void>((resolve) => setImmediate(resolve)) },
    { name: 'slow', ...ALIVE, request: slow },
  ];
  const report = new BenchReport('test', { smoke: true });
  await addLatencies(report, 'test', [[1, contenders]], 40);
  // One request at a time and 3 ms or more for each; the fast one does thousands.
  expect(report.results[0]!.values['requests/s']).toBeLessThan(1000 / 3 / 2);
});

describe('requests', () => {
  it('name distinct keys that are in the table', () => {
    for (const keys of keySets(100, 150)) {
      expect(new Set(keys).size).toBe(100);
      expect(keys.every((key) => key < 150n)).toBe(true);
    }
    expect([...consecutive(7, 3)]).toEqual([7n, 8n, 9n]);
  });

  it('memory by the formula: key and row, and an index of a power of two of buckets', () => {
    expect(predictedBytes(5)).toBe(5 * (8 + 4 * DIM) + 96);
    expect(predictedBytes(1_000_000)).toBe(1_000_000 * (8 + 4 * DIM) + 2 ** 18 * 96);
  });
});

describe.skipIf(redisVersion() === undefined)('gradients in Redis', () => {
  it('come to the same by script and by writing back', async () => {
    const redis = await Redis.start();
    try {
      const count = 5;
      const [byScript, byClient] = [consecutive(0, count), consecutive(100, count)];
      const start = gradients(count, 3);
      const gradient = gradients(count, 4);
      await redis.ok(mset(byScript, start));
      await redis.ok(mset(byClient, start));
      await redis.ok(evalSha(await redis.loadScript(), byScript, gradient, 0.5));
      const read = async (keys: BigUint64Array) => await redis.mget(mget(keys), count, true);
      const written = descend(await read(byClient), count, gradient, 0.5);
      await redis.ok(mset(byClient, written));
      const [script, client] = [await read(byScript), await read(byClient)];
      const nothing = new Float32Array(count * DIM);
      const rows = descend(client, count, nothing, 0);
      for (const [i, value] of rows.entries()) expect(value).toBeCloseTo(start[i]! - 0.5 * gradient[i]!, 5);
      expect(descend(script, count, nothing, 0)).toEqual(rows);
    } finally {
      await redis.close();
    }
  });

  it('an error of the server is an error here', async () => {
    const redis = await Redis.start();
    try {
      await expect(redis.ok(Buffer.from('*1\r\n$4\r\nNOPE\r\n'))).rejects.toThrow(/unknown command/);
    } finally {
      await redis.close();
    }
  });
});
