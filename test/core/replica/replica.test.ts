// A replica against owners and a scheduler that are played by hand, for orders of events that random
// schedules hardly ever have; and what an owner does with replicas that do not keep up.
import { describe, expect, it } from 'vitest';
import { DEFAULT_REPLICA_POLICY, ReplicaCore } from '../../../src/core/replica/replica.js';
import { type ReplicatedShard, ShardReplicas, type StreamBatch } from '../../../src/core/shard/replicas.js';
import { oldestStream } from '../../../src/core/shard/takeover.js';
import { ContentBytes } from '../../../src/core/shared/content-bytes.js';
import { DeltaBytes } from '../../../src/core/shared/delta-bytes.js';
import { NONE_GONE } from '../../../src/core/shared/gone-tables.js';
import { Meter } from '../../../src/core/shared/meter.js';
import { type Effect, Outbox } from '../../../src/core/shared/outbox.js';
import { Pace } from '../../../src/core/shared/pace.js';
import { DEFAULT_POLICY } from '../../../src/core/shared/policy.js';
import { RateLimit } from '../../../src/core/shared/rate.js';
import { selected } from '../../../src/core/shared/sections.js';
import { loadNative, PushStatus } from '../../../src/engine/native.js';
import type { ClusterMap, TableSpec } from '../../../src/protocol/map.js';
import type { Message, MessageOf } from '../../../src/protocol/messages.js';

const native = loadNative();

const mapOf = (epoch: number, node: number, gen: number): ClusterMap => ({
  epoch,
  job: 'job',
  pools: [{ name: 'embedding', k: 1, r: 1, firstGroup: 0, groups: 1 }],
  groups: [{ id: 0, pool: 0, version: epoch, data: [{ node, inc: 1, gen, init: true }], sinks: [] }],
  nodes: [],
  tables: [],
});

const tableOf = (id: number, name: string): TableSpec => ({
  ...{ id, name, pool: 'embedding', dim: 4, seed: 0 },
  ...{ optimizer: { kind: 'sgd', lr: 1 }, initializer: { kind: 'zeros' } },
});

class Played {
  readonly core = new ReplicaCore(native, native.createMemory(0), DEFAULT_REPLICA_POLICY);
  readonly sent: { to: number; message: Message }[] = [];

  private take(effects: Effect[]): void {
    for (const effect of effects) if (effect.kind === 'send') this.sent.push(effect);
  }

  tick(now: number): void {
    this.take(this.core.step({ kind: 'tick', now }));
  }

  say(from: number, message: Message): void {
    this.take(this.core.step({ kind: 'message', from, message, parts: [] }));
  }

  map(epoch: number, node: number, gen: number): void {
    this.say(0, { t: 'map', map: mapOf(epoch, node, gen) });
  }

  newest<T extends Message['t']>(kind: T): MessageOf<T> {
    return this.sent.findLast(({ message }) => message.t === kind)!.message as MessageOf<T>;
  }

  /** The owner answers the newest question for its stream. */
  followed(from: number, how: 'fresh' | 'resumed' | 'gone', base: number): number {
    const { id, gen } = this.newest('follow');
    this.say(from, { t: 'followed', g: 0, m: 0, gen, id, how, base, extents: [] });
    return id;
  }

  /** Since when nothing acknowledged is missing. */
  get freshAt(): number | undefined {
    const position = this.core.position(0, 0);
    return position && this.core.now - position.lagMs;
  }
}

describe('a replica', () => {
  it('knows its age by what it asked, of the owner and of the map', () => {
    const played = new Played();
    played.tick(10);
    played.map(1, 5, 1);
    played.tick(11);
    const id = played.followed(5, 'fresh', 3);
    expect(played.core.position(0, 0)).toEqual({ gen: 1, seq: 3, lagMs: Number.POSITIVE_INFINITY });
    played.tick(100);
    const { n } = played.newest('followProbe');
    played.tick(105);
    played.say(5, { t: 'followProbed', n, items: [[id, 3]] });
    expect(played.freshAt).toBe(Number.NEGATIVE_INFINITY);
    played.say(0, { t: 'replicaHeard', n, epoch: 1 });
    expect(played.freshAt).toBe(100);
    played.core.close();
  });

  it('does not count for a new owner what the one before it said of itself', () => {
    const played = new Played();
    played.tick(10);
    played.map(1, 5, 1);
    played.tick(11);
    const id = played.followed(5, 'fresh', 3);
    played.tick(100);
    const { n } = played.newest('followProbe');
    played.say(0, { t: 'replicaHeard', n, epoch: 1 });
    // Another owner serves already; the one before it does not know, and answers later questions, too.
    played.tick(200);
    const later = played.newest('followProbe').n;
    played.say(5, { t: 'followProbed', n, items: [[id, 3]] });
    played.say(5, { t: 'followProbed', n: later, items: [[id, 3]] });
    expect(played.freshAt).toBe(100);
    played.map(2, 6, 2);
    expect(played.newest('follow').have).toEqual([1, 3, 3]);
    const next = played.followed(6, 'resumed', 3);
    played.tick(300);
    const last = played.newest('followProbe').n;
    played.say(0, { t: 'replicaHeard', n: last, epoch: 2 });
    expect(played.freshAt).toBe(100);
    played.say(6, { t: 'followProbed', n: last, items: [[next, 3]] });
    expect(played.freshAt).toBe(300);
    played.core.close();
  });

  it('takes the answer to a question that it has repeated meanwhile', () => {
    const played = new Played();
    played.tick(10);
    played.map(1, 5, 1);
    played.tick(11);
    const { id, gen } = played.newest('follow');
    played.tick(500);
    played.tick(1000);
    expect(played.sent.filter(({ message }) => message.t === 'follow')).toHaveLength(3);
    played.say(5, { t: 'followed', g: 0, m: 0, gen, id, how: 'fresh', base: 3, extents: [] });
    expect(played.core.position(0, 0)).toMatchObject({ gen: 1, seq: 3 });
    played.core.close();
  });

  it('asks with another number when the owner sends a stream whose beginning was lost', () => {
    const played = new Played();
    played.tick(10);
    played.map(1, 5, 1);
    const { id } = played.newest('follow');
    played.tick(500);
    const { n } = played.newest('followProbe');
    // The owner has not got the question, or does not serve yet.
    played.say(5, { t: 'followProbed', n, items: [] });
    played.tick(1000);
    expect(played.newest('follow').id).toBe(id);
    played.say(5, { t: 'followProbed', n, items: [[id, 3]] });
    played.tick(1500);
    const next = played.newest('follow').id;
    expect(next).toBeGreaterThan(id);
    expect(played.followed(5, 'fresh', 3)).toBe(next);
    expect(played.core.position(0, 0)).toMatchObject({ gen: 1, seq: 3 });
    played.core.close();
  });

  it('does not count an answer whose position it has not reached, and asks for the stream again', () => {
    const played = new Played();
    played.tick(10);
    played.map(1, 5, 1);
    played.tick(11);
    const id = played.followed(5, 'fresh', 3);
    played.tick(400);
    const { n } = played.newest('followProbe');
    played.say(0, { t: 'replicaHeard', n, epoch: 1 });
    played.say(5, { t: 'followProbed', n, items: [[id, 4]] });
    expect(played.freshAt).toBe(Number.NEGATIVE_INFINITY);
    played.tick(401);
    expect(played.newest('follow')).toMatchObject({ have: [1, 3, 3] });
    played.core.close();
  });

  it('takes content at the position that it is stamped with, and at no other', () => {
    const played = new Played();
    played.tick(10);
    const map = mapOf(1, 5, 1);
    map.tables.push(tableOf(1, 'rows'));
    played.say(0, { t: 'map', map });
    played.tick(11);
    const { id, gen } = played.newest('follow');
    const extents: [number, number, number][] = [[1, 16, 1]];
    played.say(5, { t: 'followed', g: 0, m: 0, gen, id, how: 'fresh', base: 3, extents });
    const blocks = new Uint8Array(Uint32Array.of(2, 0, 3, 0).buffer);
    const content = (seq: number) =>
      played.core.step({
        ...{ kind: 'message', from: 5, parts: [blocks, new Uint8Array(8192)] },
        message: { t: 'followContent', g: 0, m: 0, gen, id, seq },
      });
    for (const seq of [2, 4]) content(seq);
    expect(played.core.position(0, 0)).toBeUndefined();
    content(3);
    expect(played.core.position(0, 0)).toMatchObject({ gen: 1, seq: 3 });
    played.core.close();
  });

  it('answers from what it has until everything is there again', () => {
    const played = new Played();
    played.tick(10);
    played.map(1, 5, 1);
    played.tick(11);
    played.followed(5, 'fresh', 3);
    played.map(2, 6, 4);
    played.followed(6, 'gone', 0);
    expect(played.core.position(0, 0)).toMatchObject({ gen: 1, seq: 3 });
    played.tick(400);
    expect(played.newest('follow').have).toBeUndefined();
    played.followed(6, 'fresh', 9);
    expect(played.core.position(0, 0)).toMatchObject({ gen: 4, seq: 9 });
    played.core.close();
  });
});

describe('a replica of some tables', () => {
  it('holds shards of pools that have one of them, also one that is created later', () => {
    const policy = DEFAULT_REPLICA_POLICY;
    const core = new ReplicaCore(native, native.createMemory(0), policy, { tables: ['late'] });
    const say = (message: Message) => core.step({ kind: 'message', from: 0, message, parts: [] });
    const map = mapOf(1, 5, 1);
    map.tables.push(tableOf(1, 'early'));
    say({ t: 'map', map });
    expect(core.status().shards).toBe(0);
    expect(core.missingTables).toEqual(['late']);
    say({ t: 'map', map: { ...map, epoch: 2, tables: [...map.tables, tableOf(2, 'late')] } });
    expect(core.status().shards).toBe(1);
    expect(core.missingTables).toEqual([]);
    expect([core.leavesOut(1), core.leavesOut(2), core.leavesOut(3)]).toEqual([true, false, false]);
    core.close();
  });

  it('takes the deltas of these and no others', () => {
    const memory = native.createMemory(0);
    const owner = native.createShard(memory, 0, 1, 1);
    for (const table of [tableOf(1, 'a'), tableOf(2, 'b'), tableOf(3, 'c')]) owner.addTable(table);
    const keys = BigUint64Array.of(7n, 8n, 9n);
    const order = Uint32Array.of(0, 1, 2);
    const part = (table: number) => ({ table, width: 4, keys, order, start: 0, end: 3 });
    const rows = new Float32Array(12).fill(1);
    const parts = [1, 2, 3].map((table) => ({ ...part(table), rows }));
    expect(owner.push(native.encodeRequest(0, parts))).toBe(PushStatus.APPLIED);
    const delta = owner.flush();
    expect(selected(delta, () => true)).toBe(delta);
    const copy = native.createShard(memory, 0, 1, 1);
    copy.addTable(tableOf(2, 'b'));
    expect(copy.applyDelta(selected(delta, (table) => table === 2))).toBe(PushStatus.APPLIED);
    const asked = native.encodeRequest(0, [part(2)]);
    expect(copy.pull(asked)).toEqual(owner.pull(asked));
    const none = selected(delta, () => false);
    expect(copy.applyDelta(none)).toBe(PushStatus.APPLIED);
    for (let bytes = 0; bytes < delta.byteLength; bytes++)
      expect(() => selected(delta.subarray(0, bytes), () => true)).toThrow('shorter than its header says');
    owner.close();
    copy.close();
  });

  it('says goodbye to owners and scheduler', () => {
    const played = new Played();
    played.tick(10);
    played.map(1, 5, 1);
    played.tick(11);
    played.followed(5, 'fresh', 3);
    const sent = played.core.leave().map((effect) => effect.kind === 'send' && [effect.to, effect.message]);
    expect(sent).toMatchObject([
      [5, { t: 'followProbe', items: [] }],
      [0, { t: 'detach' }],
    ]);
    played.core.close();
  });
});

describe('the ownership that a new owner goes on with', () => {
  it('is the one that all sinks follow, not one whose Starts reached some of them', () => {
    const follower = (sgen: number) =>
      ({ none: sgen === 0, sgen }) as Parameters<typeof oldestStream>[0] extends Iterable<infer F>
        ? F
        : never;
    expect(oldestStream([follower(4), follower(2), follower(0)])).toBe(2);
    expect(oldestStream([follower(4), follower(4)])).toBe(4);
  });
});

describe('replicas of an owner', () => {
  function start() {
    const out = new Outbox();
    const host = {
      ...{ out, now: 0, pace: new Pace(), deltaBytes: new DeltaBytes(1 << 20), discard: () => {} },
      gone: NONE_GONE,
      contentBytes: new ContentBytes(1 << 20),
      policy: { ...DEFAULT_POLICY, maxReaderBytes: 100, readerSilentMs: 50 },
      moveRate: new RateLimit(0, new Pace(), 'move'),
      meter: new Meter(),
    };
    const stream = {
      ...{ phase: 'ACTIVE', seq: 0, committed: 0 },
      uncommitted: (above: number): StreamBatch[] =>
        above < 12 ? [{ seq: 12, delta: new Uint8Array(8) }] : [],
      before: undefined as { gen: number; base: number } | undefined,
    };
    const shard: ReplicatedShard = {
      ...{ gen: 1, member: 0, group: { id: 0 }, extents: () => [], stream, flush: () => {} },
    };
    const readers = new ShardReplicas(shard, host);
    readers.onFollow(9, { t: 'follow', g: 0, m: 0, gen: 1, id: 1, v: 1 });
    const batch = (): StreamBatch => ({ seq: ++stream.seq, delta: new Uint8Array(60) });
    const kinds = () => out.take().map((effect) => (effect.kind === 'send' ? effect.message.t : effect.kind));
    return { readers, host, batch, kinds, out, stream, shard };
  }

  it('one that does not take what it is sent is sent no more, and is told so when it asks', () => {
    const { readers, batch, kinds } = start();
    readers.appended(batch());
    expect(kinds()).toEqual(['followed', 'followDelta']);
    expect(readers.probed(9, 1, new Map([[1, 1]]))).toEqual([1, 1]);
    readers.appended(batch());
    expect(kinds()).toEqual(['followDelta']);
    readers.appended(batch());
    expect(kinds()).toEqual(['event']);
    expect(readers.any).toBe(false);
    expect(readers.probed(9, 1, new Map([[1, 1]]))).toBeUndefined();
  });

  it('one that missed an ownership does not go on: its positions meant something else', () => {
    const { readers, stream, out } = start();
    stream.before = { gen: 2, base: 9 };
    stream.seq = stream.committed = 9;
    out.take();
    let id = 1;
    const answerTo = (have: [number, number, number]) => {
      readers.onFollow(9, { t: 'follow', g: 0, m: 0, gen: 1, id: ++id, v: 1, have });
      const [effect] = out.take();
      return effect?.kind === 'send' && effect.message.t === 'followed' ? effect.message.how : undefined;
    };
    // Positions 8 to 10 of generation 0 were not durable; generation 2 has made others of 8 and 9.
    expect(answerTo([0, 7, 10])).toBe('gone');
    expect(answerTo([2, 7, 10])).toBe('resumed');
    expect(answerTo([2, 9, 9])).toBe('resumed');
    expect(answerTo([2, 7, 8])).toBe('gone');
    expect(answerTo([1, 7, 9])).toBe('resumed');
    stream.committed = stream.seq = 10;
    expect(answerTo([2, 7, 10])).toBe('gone');
    expect(answerTo([1, 7, 9])).toBe('gone');
  });

  it('one that goes on gets the batches that are not durable yet', () => {
    const { readers, stream, kinds } = start();
    kinds();
    stream.before = { gen: 2, base: 9 };
    stream.seq = 12;
    stream.committed = 9;
    readers.onFollow(9, { t: 'follow', g: 0, m: 0, gen: 1, id: 2, v: 1, have: [2, 9, 9] });
    expect(kinds()).toEqual(['followed', 'followDelta']);
  });

  it('is told where the owner is with what was pushed by then', () => {
    const { readers, shard, stream } = start();
    shard.flush = () => {
      stream.seq = 5;
    };
    expect(readers.probed(9, 1, new Map([[1, 0]]))).toEqual([1, 5]);
  });

  it('one that has not asked for long is sent no more', () => {
    const { readers, host, out } = start();
    host.now = 40;
    readers.probed(9, 1, new Map([[1, 0]]));
    host.now = 80;
    readers.tick();
    expect(readers.any).toBe(true);
    out.take();
    host.now = 91;
    readers.tick();
    expect(readers.any).toBe(false);
    // Deltas for a replica that does not read would stay in memory.
    expect(out.take()).toMatchObject([
      { kind: 'event', name: 'replica.dropped', fields: { reason: 'silent' } },
      { kind: 'hangUp', peer: 9 },
    ]);
  });
});
