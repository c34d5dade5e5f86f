/**
 * Large pushes and pulls: memory of frames, sections and rows is used again or given back as soon as it is
 * free (release.ts and ws-socket.ts of net/transport), so what still travels must never be among it. Checked
 * against sums kept here.
 */
import { afterEach, expect, it } from 'vitest';
import { type Client, connect } from '../../../src/library/client/client.js';
import { type LocalCluster, startLocalCluster } from '../../../src/roles/cluster.js';

const DIM = 64;
const ROWS = 20_000;

let cluster: LocalCluster | undefined;
let client: Client | undefined;
afterEach(async () => {
  await client?.close();
  await cluster?.close();
});

async function table() {
  return await client!.createTable({
    name: 'rows',
    dim: DIM,
    optimizer: { kind: 'sgd', lr: 1 },
    initializer: { kind: 'zeros' },
  });
}

/** Keys from .. from + count - 1, wrapped around. */
const keysFrom = (from: number, count: number): BigUint64Array =>
  BigUint64Array.from({ length: count }, (_, i) => BigInt((from + i) % ROWS));

it.each([
  ['none', 1],
  ['2+1', 3],
  // An owner and its parity on one node, where messages do not pass a socket.
  ['1+1', 2],
])('with code %s every value arrives once and whole, many requests at a time', async (code, ps) => {
  cluster = await startLocalCluster({ ps, code });
  client = await connect(cluster.address);
  const rows = await table();
  const expected = new Float64Array(ROWS);
  const push = async (i: number) => {
    // From 70 KB to 3 MB, in an order that makes memory of one size serve another.
    const count = 256 + ((i * 2477) % 11_000);
    const from = (i * 7919) % ROWS;
    for (let k = 0; k < count; k++) expected[(from + k) % ROWS]! -= i + 1;
    await rows.push(keysFrom(from, count), new Float32Array(count * DIM).fill(i + 1));
  };
  for (let i = 0; i < 48; i += 8) await Promise.all(Array.from({ length: 8 }, (_, j) => push(i + j)));
  const check = async (from: number, count: number) => {
    const values = await rows.pull(keysFrom(from, count));
    const wrong = values.findIndex((value, at) => value !== expected[(from + Math.floor(at / DIM)) % ROWS]);
    expect(wrong, `rows from ${from}`).toBe(-1);
  };
  await Promise.all([0, 3000, 9000, 14_000].map((from) => check(from, 6000)));
  await check(0, ROWS);
});

it('pulls into memory that the caller has', async () => {
  cluster = await startLocalCluster({ ps: 2, code: 'none' });
  client = await connect(cluster.address);
  const rows = await table();
  const keys = keysFrom(5, 300);
  await rows.push(
    keys,
    Float32Array.from({ length: 300 * DIM }, (_, i) => -Math.floor(i / DIM)),
  );
  const into = new Float32Array(300 * DIM).fill(-1);
  const [first, second] = await client.pull([
    { table: rows, keys, into },
    { table: rows, keys: keysFrom(6, 1) },
  ]);
  expect(first).toBe(into);
  expect([...into]).toEqual(Array.from({ length: 300 * DIM }, (_, i) => Math.floor(i / DIM)));
  expect([...second!]).toEqual(new Array(DIM).fill(1));
});

it('refuses memory of another length or kind', async () => {
  cluster = await startLocalCluster({ ps: 1, code: 'none' });
  client = await connect(cluster.address);
  const rows = await table();
  const keys = keysFrom(0, 3);
  const short = client.pull([{ table: rows, keys, into: new Float32Array(3 * DIM - 1) }]);
  await expect(short).rejects.toMatchObject({ code: 'LENGTH_MISMATCH' });
  const other = client.pull([{ table: rows, keys, into: new Float64Array(3 * DIM) as never }]);
  await expect(other).rejects.toMatchObject({ code: 'BAD_ARGUMENT' });
});
