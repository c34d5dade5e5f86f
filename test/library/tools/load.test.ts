/** Loading rows of checkpoints that are no saves: chains of increments, exports, checkpoints of a job. */
import { describe, expect, test } from 'vitest';
import { setSavePlan } from '../../../src/library/tools/checkpoints.js';
import { digest } from '../../../src/library/tools/digest.js';
import { load } from '../../../src/library/tools/load.js';
import type { Manifest, SavedShard, SavedTable } from '../../../src/protocol/checkpoints.js';
import { locate } from '../../../src/protocol/map.js';
import { publishCheckpoint, readManifest, storeSegment } from '../../../src/stores/checkpoint/checkpoints.js';
import { DirectoryPlace } from '../../../src/stores/checkpoint/directory.js';
import { initialState } from '../../../src/stores/checkpoint/layout.js';
import { statePartsOf, type TableToWrite } from '../../../src/stores/checkpoint/segment.js';
import { fill, keysOf, startJob, TABLES, temporaryDirectory } from './support.js';

describe('checkpoints of other kinds', () => {
  const POOL = { name: 'embedding', k: 1, r: 0, firstGroup: 0, groups: 1 };
  const HOME = { ...locate(POOL, 0), position: 1 };
  const TABLE: SavedTable = {
    name: 'items',
    pool: 'embedding',
    dim: 2,
    optimizer: { kind: 'adagrad', lr: 0.1, eps: 1e-8, initialAccumulator: 0.25 },
    initializer: { kind: 'zeros' },
    seed: 1,
  };

  /** Writes a checkpoint of one shard onto the segments of the one before it. */
  async function write(
    place: DirectoryPlace,
    { number, kind, before }: { number: number; kind: Manifest['kind']; before: SavedShard['segments'] },
    parts: { keys: bigint[]; value: number; removed?: bigint[] }[],
  ): Promise<SavedShard['segments']> {
    const segments = [...before];
    for (const [part, { keys, value, removed = [] }] of parts.entries()) {
      const isJob = kind === 'full job';
      const floats = (fill: number) => [new Float32Array(2 * keys.length).fill(fill)];
      const rows: TableToWrite = {
        ...{ name: 'items', dim: 2, stateParts: isJob ? statePartsOf(2, TABLE.optimizer) : [] },
        ...{
          keys: [BigUint64Array.from(keys)],
          values: floats(value),
          state: isJob ? floats(value + 0.5) : [],
        },
        removed: [BigUint64Array.from(removed)],
      };
      const name = `${String(number).padStart(6, '0')}/part${part}.safetensors`;
      segments.push(await storeSegment(place, name, [rows], isJob ? [] : undefined, HOME));
    }
    await publishCheckpoint(place, {
      ...{
        number,
        kind,
        attempt: '0123abcd',
        job: 'j',
        createdAt: '2026-11-23T00:00:00.000Z',
        barrier: false,
      },
      ...{ pools: [POOL], tables: [TABLE] },
      shards: [{ pool: 'embedding', shard: 0, ...HOME, since: before.length, segments }],
    });
    return segments;
  }

  async function rowsAfter(url: string, number?: number): Promise<Map<bigint, number[]>> {
    const { client } = await startJob({ ps: 2, code: '1+1' });
    const found = new Map<bigint, number[]>();
    const { rows } = await load(client, url, { number });
    for await (const { keys, rows: all } of client.scan('items', { select: 'rows' }))
      for (const [i, key] of keys.entries()) found.set(key, [...all.subarray(4 * i, 4 * i + 4)]);
    expect(found.size).toBe(rows);
    return found;
  }

  const row = (value: number) => [value, value, value + 0.5, value + 0.5];

  test('a chain of increments: the newest row of each key, nothing that was removed', async () => {
    const directory = temporaryDirectory();
    const place = new DirectoryPlace(directory);
    const kind = 'full job';
    const first = await write(place, { number: 1, kind, before: [] }, [
      { keys: [1n, 2n, 3n], value: 1 },
      { keys: [4n, 5n], value: 1 },
    ]);
    const second = await write(place, { number: 2, kind, before: first }, [
      { keys: [2n], value: 2 },
      { keys: [6n, 5n], value: 2, removed: [1n] },
    ]);
    await write(place, { number: 3, kind, before: second }, [{ keys: [6n, 1n], value: 3, removed: [4n] }]);
    const newest = { 1: 3, 2: 2, 3: 1, 5: 2, 6: 3 };
    const expected = (values: Record<string, number>) =>
      new Map(Object.entries(values).map(([key, value]) => [BigInt(key), row(value)]));
    const sorted = (map: Map<bigint, number[]>) => new Map([...map].sort(([a], [b]) => Number(a - b)));
    expect(sorted(await rowsAfter(directory))).toEqual(expected(newest));
    expect(sorted(await rowsAfter(directory, 2))).toEqual(expected({ 2: 2, 3: 1, 4: 1, 5: 2, 6: 2 }));
    expect(sorted(await rowsAfter(directory, 1))).toEqual(expected({ 1: 1, 2: 1, 3: 1, 4: 1, 5: 1 }));
    const { client } = await startJob({ ps: 1, code: 'none' });
    await expect(load(client, directory, { number: 4 })).rejects.toMatchObject({
      code: 'CHECKPOINT_MISSING',
    });
  });

  test('an export: rows begin with the state of new rows', async () => {
    const directory = temporaryDirectory();
    const place = new DirectoryPlace(directory);
    await write(place, { number: 1, kind: 'export', before: [] }, [{ keys: [1n, 2n], value: 7 }]);
    const state = [...initialState(2, TABLE.optimizer)];
    expect(state).toEqual([0.25, 0.25]);
    expect(await rowsAfter(directory)).toEqual(
      new Map([
        [1n, [7, 7, ...state]],
        [2n, [7, 7, ...state]],
      ]),
    );
  });

  test('a checkpoint of a job, of which rows alone are loaded', async () => {
    const { client } = await startJob({ ps: 3, code: '2+1' }, { audit: true });
    await fill(client);
    const directory = temporaryDirectory();
    await expect(client.checkpoint()).rejects.toMatchObject({ code: 'BAD_ARGUMENT' });
    await setSavePlan(client, 'checkpoint', {
      url: directory,
      everyMs: 0,
      keep: 3,
      rate: 0,
      kind: 'full job',
    });
    await client.checkpoint();
    await client.push([{ table: 't/adam', keys: keysOf(400), gradients: new Float32Array(2800).fill(0.5) }]);
    await client.checkpoint();
    const { number, tables, parents } = await readManifest(new DirectoryPlace(directory));
    expect([number, parents]).toEqual([2, [1]]);
    expect(tables.some(({ name }) => name.startsWith('__audit/'))).toBe(true);
    const other = (await startJob({ ps: 2, code: '1+1' })).client;
    expect(await load(other, directory)).toEqual({ tables: TABLES, rows: TABLES * 300 + 100, lost: 0 });
    expect(await digest(other)).toEqual(await digest(client));
  });
});
