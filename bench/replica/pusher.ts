/**
 * A client that pushes in a process of its own: nothing, at a steady rate, or as fast as acknowledgements
 * come, as its parent says. It tells when each push was acknowledged, and how long that took. It leaves when
 * its parent does.
 */

import { describe } from '../../src/common/errors.js';
import { connect } from '../../src/library/client/client.js';
import { monotonicMs } from '../../src/net/log.js';
import { TABLE } from '../common/training/keys.js';

export interface PusherOptions {
  scheduler: string;
  rows: number;
  dim: number;
  batch: number;
}

/** Pushes per second; 0: none; `all`: as many as can be. */
export type PusherOrder = { rate: number | 'all' };
/** Pushes acknowledged since the last report: when, and after how many milliseconds. */
export type PusherReport = [at: number, tookMs: number][] | 'ready' | 'idle';

/** Pushes that may be not yet durable, as a worker has them. */
const IN_FLIGHT = 4;
const REPORT_MS = 50;
const CONNECT_MS = 120_000;

async function main(): Promise<void> {
  const { scheduler, rows, dim, batch } = JSON.parse(process.argv[2]!) as PusherOptions;
  const client = await connect(scheduler, { connectTimeoutMs: CONNECT_MS });
  await client.createTable({ name: TABLE, dim });
  const gradients = Float32Array.from({ length: batch * dim }, (_, i) => Math.sin(i * 12.9898) * 0.1);
  const load: PusherOrder = { rate: 0 };
  let wake = () => {};
  process.on('message', (order: PusherOrder) => {
    load.rate = order.rate;
    wake();
  });
  let acknowledged: [number, number][] = [];
  setInterval(() => {
    if (acknowledged.length > 0) process.send?.(acknowledged);
    acknowledged = [];
  }, REPORT_MS);
  const open = new Set<Promise<void>>();
  const push = (first: number) => {
    const keys = BigUint64Array.from({ length: batch }, (_, i) => BigInt((first + i) % rows));
    const from = monotonicMs();
    const pushed = client.push([{ table: TABLE, keys, gradients }]).then(() => {
      const at = monotonicMs();
      acknowledged.push([at, at - from]);
      open.delete(pushed);
    });
    open.add(pushed);
  };
  for (let first = 0; first < rows; first += batch) {
    push(first);
    if (open.size >= IN_FLIGHT) await Promise.race(open);
  }
  await Promise.all(open);
  process.send?.('ready');
  let due = monotonicMs();
  for (let first = 0; ; first = (first + batch) % rows) {
    while (load.rate === 0) {
      await Promise.all(open);
      process.send?.('idle');
      await new Promise<void>((resolve) => {
        wake = resolve;
      });
      due = monotonicMs();
    }
    while (open.size >= IN_FLIGHT) await Promise.race(open);
    const { rate } = load;
    if (rate === 0) continue;
    if (typeof rate === 'number') {
      // A late pusher catches up for one second at most, or the load would not be steady.
      due = Math.max(due + 1000 / rate, monotonicMs() - 1000);
      const waitMs = due - monotonicMs();
      if (waitMs > 0) await new Promise((resolve) => setTimeout(resolve, waitMs));
    }
    push(first);
  }
}

process.on('disconnect', () => process.exit(0));
main().catch((error: unknown) => {
  process.stderr.write(`${describe(error)}\n`);
  process.exit(1);
});
