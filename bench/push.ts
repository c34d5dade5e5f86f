/**
 * `bench push`: gradients of 64 floats for 4,096 rows (SGD, no redundancy) through the library to one PS,
 * against the bare transport with frames of the same size and against the ways in which Redis can apply a
 * gradient (loopback/redis.ts).
 */
import type { Table } from '../src/client/client.js';
import { BareTransport } from './loopback/bare.js';
import { OnePs } from './loopback/cluster.js';
import { fillRedis } from './loopback/fill.js';
import { addGrowth } from './loopback/growth.js';
import { addJavaScript } from './loopback/javascript.js';
import { addLatencies, LATENCY_ROWS, type Size } from './loopback/latency.js';
import { type Contender, compare } from './loopback/measure.js';
import { DIM, loopbackOptions, REQUEST_ROWS } from './loopback/options.js';
import { descend, evalSha, mget, mset, Redis, redisVersion } from './loopback/redis.js';
import { gradients, keySets } from './loopback/requests.js';
import { addComparison, BARE, LIBRARY, REDIS_MISSING } from './loopback/result.js';
import { BenchReport } from './report.js';

const LR = 0.01;
const LUA = 'redis Lua';
const WRITE_BACK = 'redis MGET+MSET';

async function redisContenders(
  redis: Redis,
  keys: BigUint64Array[],
  gradient: Float32Array,
): Promise<Contender[]> {
  const script = await redis.loadScript();
  // Few of them: each is a megabyte, and slow enough that caches do not matter.
  const scripts = keys.slice(0, 16).map((set) => evalSha(script, set, gradient, LR));
  const reads = keys.map(mget);
  return [
    {
      name: LUA,
      serverPid: redis.pid,
      request: (i) => redis.ok(scripts[i % scripts.length]!),
    },
    {
      name: WRITE_BACK,
      serverPid: redis.pid,
      request: async (i) => {
        const at = i % keys.length;
        const answer = await redis.mget(reads[at]!, REQUEST_ROWS, true);
        await redis.ok(mset(keys[at]!, descend(answer, REQUEST_ROWS, gradient, LR)));
      },
    },
  ];
}

export async function run(flags: Record<string, unknown>): Promise<void> {
  const options = loopbackOptions(flags);
  const report = new BenchReport('push', options);
  const { rows, rounds, turnMs } = options;
  Object.assign(report.parameters, { rows, dim: DIM, requestRows: REQUEST_ROWS, rounds, turnMs });
  const keys = keySets(REQUEST_ROWS, rows);
  const gradient = gradients(REQUEST_ROWS);
  const ps = await OnePs.start();
  const bare = await BareTransport.start();
  const redis = redisVersion() === undefined ? undefined : await Redis.start();
  try {
    const table = await ps.fill('pushed', rows);
    const library: Contender = {
      name: LIBRARY,
      serverPid: ps.pid,
      request: (i) => table.push(keys[i % keys.length]!, gradient),
    };
    const contenders = [library, bare.contender('push', 24 + (8 + 4 * DIM) * REQUEST_ROWS, 0)];
    if (redis) {
      await fillRedis(redis, rows);
      contenders.push(...(await redisContenders(redis, keys, gradient)));
    } else report.skip(REDIS_MISSING);
    addComparison(report, 'push', await compare(contenders, rounds, turnMs));
    report.goal('push: library / bare transport', report.ratio('push', LIBRARY, BARE), 0.7);
    for (const peer of [LUA, WRITE_BACK]) {
      const ratio = report.ratio('push per server core', LIBRARY, peer);
      report.goal(`push: rows per server core, library / ${peer}`, ratio, 20);
    }
    const sizes = LATENCY_ROWS.map((count): Size => {
      const sets = keySets(count, rows, 3);
      const some = gradients(count);
      const push: Contender = { ...library, request: (i) => table.push(sets[i % sets.length]!, some) };
      return [count, [push, bare.contender('push', 24 + (8 + 4 * DIM) * count, 0)]];
    });
    await addLatencies(report, 'push', sizes, turnMs);
    await addJavaScript(report, 'push', options.smoke);
    if (options.growTo > 0) {
      const request = (of: Table, wanted: BigUint64Array) => of.push(wanted, gradient);
      const size = { smallRows: rows, largeRows: options.growTo, rounds, turnMs };
      await addGrowth(report, 'push', { ps, small: table, ...size, request });
    }
  } finally {
    await redis?.close();
    await bare.close();
    await ps.close();
  }
  report.finish();
}
