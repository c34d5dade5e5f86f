/**
 * `bench push`: gradients of 64 floats for 4,096 rows (SGD, no redundancy) through the library to one PS,
 * against the bare transport with frames of the same size and against the ways in which Redis can apply a
 * gradient (common/loopback/redis.ts).
 */
import type { Table } from '../../src/library/client/client.js';
import { BareTransport } from '../common/loopback/bare.js';
import { OnePs } from '../common/loopback/cluster.js';
import { fillRedis } from '../common/loopback/fill.js';
import { addGrowth } from '../common/loopback/growth.js';
import { addJavaScript } from '../common/loopback/javascript.js';
import { addLatencies, LATENCY_ROWS, type Size } from '../common/loopback/latency.js';
import { type Contender, compare } from '../common/loopback/measure.js';
import { DIM, type LoopbackOptions, REQUEST_ROWS } from '../common/loopback/options.js';
import { descend, evalSha, mget, mset, Redis, redisVersion } from '../common/loopback/redis.js';
import { gradients, keySets } from '../common/loopback/requests.js';
import { addComparison, BARE, LIBRARY, REDIS_MISSING } from '../common/loopback/result.js';
import { BenchReport } from '../common/report.js';

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
    redis.contender(LUA, (i) => redis.ok(scripts[i % scripts.length]!)),
    redis.contender(WRITE_BACK, async (i) => {
      const at = i % keys.length;
      const answer = await redis.mget(reads[at]!, REQUEST_ROWS, true);
      await redis.ok(mset(keys[at]!, descend(answer, REQUEST_ROWS, gradient, LR)));
    }),
  ];
}

export async function run(options: LoopbackOptions): Promise<void> {
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
    const library = ps.contender(LIBRARY, (i) => table.push(keys[i % keys.length]!, gradient));
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
      const push = ps.contender(LIBRARY, (i) => table.push(sets[i % sets.length]!, some));
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
