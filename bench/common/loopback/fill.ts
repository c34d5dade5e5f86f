/** Fills Redis with the keys and as many bytes as the table has. */
import { DIM, REQUEST_ROWS } from './options.js';
import { mset, type Redis } from './redis.js';
import { consecutive } from './requests.js';

export async function fillRedis(redis: Redis, rows: number): Promise<void> {
  const zeros = new Float32Array(REQUEST_ROWS * DIM);
  for (let from = 0; from < rows; from += REQUEST_ROWS) {
    const count = Math.min(REQUEST_ROWS, rows - from);
    await redis.ok(mset(consecutive(from, count), zeros.subarray(0, count * DIM)));
  }
}
