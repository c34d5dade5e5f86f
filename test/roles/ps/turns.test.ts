// Requests over sockets, where each has a turn of the event loop for itself: all are served, in order.
import { expect, it } from 'vitest';
import type { Client } from '../../../src/library/client/client.js';
import { COUNTING, client, cluster, firstKeys } from '../support.js';

const CLIENTS = 6;
const ROUNDS = 8;
const ROWS = 4096;

it('all requests are served, each push once, however few fit a turn', async () => {
  const policy = { maxTurnRows: 64, maxTurnBytes: 4096 };
  const { address } = await cluster({ ps: 3, code: '2+1', policy });
  const first = await client(address);
  const table = await first.createTable({ name: 't', ...COUNTING });
  const keys = firstKeys(ROWS);
  const ones = new Float32Array(ROWS * COUNTING.dim).fill(1);
  const others: Client[] = await Promise.all(Array.from({ length: CLIENTS }, () => client(address)));
  await Promise.all(
    others.map(async (other) => {
      const own = await other.table('t');
      const done = Array.from({ length: ROUNDS }, () => [own.push(keys, ones), own.pull(keys)]);
      await Promise.all(done.flat());
      // A pull shows the pushes of its own client that were durable before.
      const [row] = await own.pull(firstKeys(1));
      expect(row).toBeGreaterThanOrEqual(ROUNDS);
    }),
  );
  const rows = await table.pull(keys);
  expect(new Set(rows)).toEqual(new Set([CLIENTS * ROUNDS]));
  // No request waits any more, and no bytes are held.
  const { nodes } = await first.observe();
  for (const { telemetry } of nodes)
    expect([telemetry.parkedRequests, telemetry.memory.partBytes.received]).toEqual([0, 0]);
}, 60_000);
