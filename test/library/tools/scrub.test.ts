/** A parity whose bytes are wrong: found by a scrub, built anew by a repair. */
import { expect, test } from 'vitest';
import { loadNative } from '../../../src/engine/native.js';
import { scrub } from '../../../src/library/tools/scrub.js';
import { dial } from '../../../src/net/transport/index.js';
import { fill, keysOf, startJob } from './support.js';

/** The DELTA of a push of one row into a fresh shard, as a forger would make it. */
function forgedDelta(
  table: Parameters<ReturnType<typeof loadNative>['rowWidth']>[1] & object,
  dim: number,
  id: number,
) {
  const native = loadNative();
  const shard = native.createShard(native.createMemory(0), 0, 2, 1);
  const initializer = { kind: 'zeros' as const };
  shard.addTable({ id, dim, optimizer: table, initializer, seed: 0 });
  const keys = BigUint64Array.of(5n);
  const rows = new Float32Array(dim).fill(3);
  const part = { table: id, width: dim, keys, rows, order: Uint32Array.of(0), start: 0, end: 1 };
  shard.push(native.encodeRequest(0, [part]));
  return shard.flush();
}

test('finds and repairs a parity that was tampered with', async () => {
  const { cluster, client } = await startJob({ ps: 3, code: '2+1', groups: 1 });
  await fill(client);
  expect(await scrub(client)).toMatchObject({ mismatched: 0, wrong: [], repaired: 0 });

  const map = client.clusterMap;
  const group = map.groups[0]!;
  const sink = group.sinks[0]!;
  const owner = group.data[0]!;
  const table = map.tables.find(({ pool }) => pool === 'embedding')!;
  const node = map.nodes.find(({ id }) => id === sink.node)!;
  const [host, port] = node.address.split(':') as [string, string];
  let heard: (applied: number) => void = () => {};
  const forger = await dial({
    host,
    port: Number(port),
    handlers: {
      onOpen: () => {},
      onMessage: (_, { t, applied }) => {
        if (t === 'applied') heard(Number(applied));
      },
      onClose: () => {},
    },
  });
  forger.send({ t: 'hello', peer: 999_999, inc: 1, job: map.job });
  const stream = { t: 'delta', g: 0, m: 0, sid: sink.sid, gen: owner.gen, ids: [], committed: 0 };
  const send = (seq: number, delta: Uint8Array) =>
    new Promise<number>((resolve) => {
      heard = resolve;
      forger.send({ ...stream, seq }, [delta]);
    });
  // A number that the sink has is only answered with its position; the next one is the forged one.
  const delta = forgedDelta(table.optimizer, table.dim, table.id);
  const position = await send(1, delta);
  expect(await send(position + 1, delta)).toBe(position + 1);
  forger.close();
  // The owner's own delta of that number comes too late, and both stand at the same position again.
  await client.push([{ table: table.name, keys: keysOf(300), gradients: new Float32Array(300 * table.dim) }]);

  const found = await scrub(client);
  expect(found.mismatched).toBeGreaterThan(0);
  expect(found.wrong.map(({ g, sid }) => [g, sid])).toEqual([[0, sink.sid]]);
  expect(await scrub(client, { repair: true })).toMatchObject({
    mismatched: 0,
    blocksUnprotected: 0,
    repaired: 1,
  });
  expect(client.clusterMap.groups[0]!.sinks[0]!.sid).not.toBe(sink.sid);
  expect((await scrub(client)).wrong).toEqual([]);
  await cluster.close();
});
