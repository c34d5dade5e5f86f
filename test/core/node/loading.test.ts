/** The order in which a node loads its shards from a checkpoint, and what it does when a file fails. */
import { beforeEach, describe, expect, it } from 'vitest';
import type { NodeHost } from '../../../src/core/node/host.js';
import { Loading } from '../../../src/core/node/loading.js';
import type { Owner } from '../../../src/core/shard/owner.js';
import type { FetchEffect } from '../../../src/core/shared/outbox.js';
import { type NativeAddon, PushStatus } from '../../../src/engine/native.js';
import type { Message } from '../../../src/protocol/messages.js';

const FILES = 3;
let now = 0;
let fetches: FetchEffect[] = [];
let sent: Message[] = [];
/** Files in the order in which they were put into their shards: shard and first key. */
let taken: string[] = [];
let status: number = PushStatus.APPLIED;
/** Files whose bytes were discarded. */
let discarded: string[] = [];
const nameOf = new Map<Uint8Array, string>();
/** The marks of the map: shards that are to be loaded. */
let marked: { restore?: number }[] = [];
let loading: Loading;

function ownerOf(m: number): Owner {
  const owner = {
    ...{ group: { id: 0, pool: 0 }, member: m, gen: 1, phase: 'RESTORE', isLoaded: false },
    native: {
      filters: () => [],
      loadRows: (_: number, keys: BigUint64Array) => {
        if (status === PushStatus.APPLIED) taken.push(`${m}/${keys[0]}`);
        return status;
      },
      unloadRows: (_: number, keys: BigUint64Array) => {
        taken.push(`${m}/-${keys[0]}`);
        return PushStatus.APPLIED;
      },
    },
    loaded: () => {
      owner.isLoaded = true;
    },
  };
  return owner as unknown as Owner;
}

beforeEach(() => {
  [now, fetches, sent, taken, status] = [0, [], [], [], PushStatus.APPLIED];
  [discarded, marked] = [[], []];
  const owners = [0, 1, 2].map(ownerOf);
  const host = {
    get now() {
      return now;
    },
    get map() {
      const groups = [{ data: marked }];
      return { tables: [{ id: 0, name: 't' }], pools: [{ name: 'embedding' }], groups };
    },
    // Bytes that are discarded too early turn to garbage.
    discard: (bytes: Uint8Array) => {
      bytes.fill(0xa5);
      discarded.push(nameOf.get(bytes)!);
    },
    out: {
      fetchFile: (effect: FetchEffect) => fetches.push(effect),
      send: (_: number, message: Message) => sent.push(message),
    },
  } as unknown as NodeHost;
  loading = new Loading(host, { at: (_, m) => owners[m] }, {} as NativeAddon);
});

function load(m: number): void {
  const segments = Array.from({ length: FILES }, (_, i) => {
    return { name: `${m}/${i}`, bytes: 1, sha256: '', rows: 1 };
  });
  const parts = [{ group: 0, member: m, segments }];
  loading.onLoad({ t: 'loadShard', epoch: 1, g: 0, m, gen: 1, url: 'memory', parts, reshaped: false });
}

const names = () => fetches.map(({ segment }) => segment.name);

function arrive(name: string, code?: 'PLACE_FAILED', removed?: BigUint64Array): void {
  const at = names().indexOf(name);
  const [{ token }] = fetches.splice(at, 1) as [FetchEffect];
  if (code) return loading.onFetch({ kind: 'fetchFailed', token, code, message: `${name} ${code}` });
  const nothing = new Float32Array(0);
  const content = new Uint8Array(8);
  nameOf.set(content, name);
  const keys = new BigUint64Array(content.buffer).fill(BigInt(name.at(-1)!));
  const tables = [{ name: 't', keys, values: nothing, state: nothing, ...(removed && { removed }) }];
  const isLast = name.endsWith(`/${FILES - 1}`);
  loading.onFetch({ kind: 'fetched', token, tables, content, ...(isLast && { sessions: [] }) });
}

describe('shards that a node loads', () => {
  it('are read one after the other, a few files ahead', () => {
    for (const m of [0, 1, 2]) load(m);
    expect(names()).toEqual(['0/0', '0/1', '0/2', '1/0']);
    arrive('0/0');
    expect(names()).toEqual(['0/1', '0/2', '1/0', '1/1']);
    for (const name of ['0/1', '0/2']) arrive(name);
    expect(sent).toMatchObject([{ t: 'shardLoaded', m: 0 }]);
    expect(names()).toEqual(['1/0', '1/1', '1/2', '2/0']);
  });

  it('get their files in their order, in whatever order these come', () => {
    load(0);
    arrive('0/2');
    arrive('0/1');
    expect(taken).toEqual([]);
    arrive('0/0');
    expect(taken).toEqual(['0/0', '0/1', '0/2']);
    expect(sent).toMatchObject([{ t: 'shardLoaded', m: 0 }]);
  });

  it('lose the rows that a file removes before its own rows come', () => {
    load(0);
    arrive('0/0');
    arrive('0/1', undefined, BigUint64Array.of(7n));
    arrive('0/2');
    expect(taken).toEqual(['0/0', '0/-7', '0/1', '0/2']);
  });

  it('wait after a failure until they are asked for again, and keep what they have', () => {
    for (const m of [0, 1]) load(m);
    arrive('0/0');
    arrive('0/1', 'PLACE_FAILED');
    expect(sent).toMatchObject([
      { t: 'loadFailed', m: 0, code: 'PLACE_FAILED', message: '0/1 PLACE_FAILED' },
    ]);
    // A file that was on its way for it is not waited for, and does no harm.
    arrive('0/2');
    for (const name of ['1/0', '1/1', '1/2']) arrive(name);
    expect(sent.slice(1)).toMatchObject([{ t: 'shardLoaded', m: 1 }]);
    expect(names()).toEqual([]);
    load(0);
    expect(names()).toEqual(['0/1', '0/2']);
    arrive('0/1');
    arrive('0/2');
    expect(taken.filter((name) => name.startsWith('0/'))).toEqual(['0/0', '0/1', '0/2']);
    expect(sent.at(-1)).toMatchObject({ t: 'shardLoaded', m: 0 });
  });

  it('say once for each question that they cannot be loaded', () => {
    load(0);
    load(1);
    status = PushStatus.MEMORY_LIMIT;
    arrive('0/0');
    expect(sent).toMatchObject([{ t: 'loadFailed', m: 0, code: 'MEMORY_LIMIT' }]);
    status = PushStatus.APPLIED;
    arrive('1/0');
    expect(sent.length).toBe(1);
    load(0);
    expect(names().filter((name) => name === '0/0').length).toBe(1);
  });

  it('discard the bytes of a file when its rows are in the shard, and not before', () => {
    load(0);
    arrive('0/2');
    arrive('0/1');
    expect(discarded).toEqual([]);
    arrive('0/0');
    expect(taken).toEqual(['0/0', '0/1', '0/2']);
    expect(discarded).toEqual(['0/0', '0/1', '0/2']);
  });

  it('discard the bytes of files that nobody wants any more, each once', () => {
    load(0);
    arrive('0/2');
    arrive('0/0', 'PLACE_FAILED');
    expect(discarded).toEqual(['0/2']);
    arrive('0/1');
    expect(discarded).toEqual(['0/2', '0/1']);
    load(0);
    status = PushStatus.MEMORY_LIMIT;
    arrive('0/0');
    expect(discarded).toEqual(['0/2', '0/1', '0/0']);
    status = PushStatus.APPLIED;
    load(0);
    arrive('0/0');
    arrive('0/2');
    loading.dropped(ownerOf(0));
    expect(discarded).toEqual(['0/2', '0/1', '0/0', '0/0', '0/2']);
    expect(loading.fileBytes).toBe(0);
  });

  it('keep parities waiting as long as other nodes have loaded one after the other, too', () => {
    marked = [{ restore: 1 }, { restore: 1 }, { restore: 1 }, {}];
    now = 10_000;
    loading.tick();
    // This node loads nothing, so it does not wait for the others.
    marked[2] = {};
    loading.tick();
    expect(loading.isBusy).toBe(false);
    load(0);
    for (const name of ['0/0', '0/1', '0/2']) arrive(name);
    expect(loading.isBusy).toBe(true);
    now += 999;
    marked[0] = {};
    loading.tick();
    now += 999;
    expect(loading.isBusy).toBe(true);
    now += 1;
    expect(loading.isBusy).toBe(false);
    // Parities no longer wait for shards that come this slowly.
    marked[1] = {};
    loading.tick();
    expect(loading.isBusy).toBe(false);
    load(1);
    expect(loading.isBusy).toBe(true);
    for (const name of ['1/0', '1/1', '1/2']) arrive(name);
    expect(loading.isBusy).toBe(false);
  });

  it('keep parities waiting as long as files come', () => {
    expect(loading.isBusy).toBe(false);
    now = 10_000;
    load(0);
    expect(loading.isBusy).toBe(true);
    now += 999;
    expect(loading.isBusy).toBe(true);
    arrive('0/0');
    now += 999;
    expect(loading.isBusy).toBe(true);
    now += 1;
    expect(loading.isBusy).toBe(false);
    arrive('0/1');
    expect(loading.isBusy).toBe(true);
    arrive('0/2');
    expect(loading.isBusy).toBe(false);
  });
});
