/**
 * `bench pull`: rows of 64 floats through the library from one PS, against the bare transport with frames of
 * the same size and against Redis (pipelined MGET) on the same keys and bytes.
 */
import type { Table } from '../../src/library/client/client.js';
import { BareTransport } from '../common/loopback/bare.js';
import { OnePs } from '../common/loopback/cluster.js';
import { fillRedis } from '../common/loopback/fill.js';
import { addGrowth } from '../common/loopback/growth.js';
import { addJavaScript } from '../common/loopback/javascript.js';
import { addLatencies, LATENCY_ROWS, type Size } from '../common/loopback/latency.js';
import { compare, WINDOW } from '../common/loopback/measure.js';
import { DIM, type LoopbackOptions, REQUEST_ROWS } from '../common/loopback/options.js';
import { mget, Redis, redisVersion } from '../common/loopback/redis.js';
import { keySets } from '../common/loopback/requests.js';
import { addComparison, BARE, LIBRARY, REDIS_MISSING } from '../common/loopback/result.js';
import { BenchReport } from '../common/report.js';

export async function run(options: LoopbackOptions): Promise<void> {
  const report = new BenchReport('pull', options);
  const { rows, rounds, turnMs } = options;
  Object.assign(report.parameters, { rows, dim: DIM, requestRows: REQUEST_ROWS, rounds, turnMs });
  const keys = keySets(REQUEST_ROWS, rows);
  const at = (i: number) => keys[i % keys.length]!;
  const ps = await OnePs.start();
  const bare = await BareTransport.start();
  const version = redisVersion();
  const redis = version === undefined ? undefined : await Redis.start();
  try {
    const table = await ps.fill('pulled', rows);
    // As a trainer does: memory for so many rows as are under way, filled again and again.
    const places = Array.from({ length: WINDOW }, () => new Float32Array(REQUEST_ROWS * DIM));
    let used = 0;
    const place = () => places[used++ % WINDOW]!;
    const library = ps.contender(LIBRARY, (i) => ps.client.pull([{ table, keys: at(i), into: place() }]));
    const contenders = [library, bare.contender('pull', 24 + 8 * REQUEST_ROWS, 4 * DIM * REQUEST_ROWS)];
    if (redis) {
      await fillRedis(redis, rows);
      const commands = keys.map(mget);
      const request = (i: number) => redis.mget(commands[i % commands.length]!, REQUEST_ROWS);
      contenders.push(redis.contender('redis MGET', request));
    } else report.skip(REDIS_MISSING);
    const medians = await compare(contenders, rounds, turnMs);
    addComparison(report, 'pull', medians);
    report.goal('pull: library / bare transport', report.ratio('pull', LIBRARY, BARE), 0.8);
    const overRedis = report.ratio('pull per server core', LIBRARY, 'redis MGET');
    report.goal('pull: rows per server core, library / redis MGET', overRedis, 8);
    const sizes = LATENCY_ROWS.map((count): Size => {
      const sets = keySets(count, rows, 3);
      const pull = ps.contender(LIBRARY, (i) => table.pull(sets[i % sets.length]!));
      return [count, [pull, bare.contender('pull', 24 + 8 * count, 4 * DIM * count)]];
    });
    await addLatencies(report, 'pull', sizes, turnMs);
    await addJavaScript(report, 'pull', options.smoke);
    if (options.growTo > 0) {
      const request = (of: Table, wanted: BigUint64Array) => of.pull(wanted);
      const size = { smallRows: rows, largeRows: options.growTo, rounds, turnMs };
      await addGrowth(report, 'pull', { ps, small: table, ...size, request });
    }
  } finally {
    await redis?.close();
    await bare.close();
    await ps.close();
  }
  report.finish();
}
