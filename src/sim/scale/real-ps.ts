/**
 * One real PS with the real engine, which gets the scheduler's messages to one node of the simulation. Its
 * peers are simulated: they take its streams. It has rows in every table, so that its ticks and heartbeats
 * cost as much as in a job.
 */
import { PsNode } from '../../core/node/node.js';
import { joined } from '../../core/shared/bytes.js';
import type { Effect } from '../../core/shared/outbox.js';
import { DEFAULT_POLICY } from '../../core/shared/policy.js';
import type { NativeAddon, NativeMemory } from '../../engine/native.js';
import { decodeFrame, encodeFrame } from '../../protocol/frame.js';
import { packItems } from '../../protocol/items.js';
import { type ClusterMap, type PeerId, SCHEDULER, type TableSpec } from '../../protocol/map.js';
import type { Message } from '../../protocol/messages.js';
import { toMessage } from '../../protocol/validate.js';
import type { ScaleMeter } from './meter.js';

/** A PS ticks in this interval. */
const TICK_MS = 20;
/** Id of a client that no other process of the job has. */
const WRITER: PeerId = 1 << 30;

export class RealPs {
  private readonly memory: NativeMemory;
  private node: PsNode | undefined;
  private written = false;
  /** A batch of one row. */
  private batch: Uint8Array | undefined;
  /** Frame of its newest heartbeat. */
  heartbeat: Uint8Array | undefined;

  constructor(
    private readonly native: NativeAddon,
    private readonly meter: ScaleMeter,
    private readonly rows: number,
  ) {
    this.memory = native.createMemory(0);
  }

  get map(): ClusterMap | undefined {
    return this.node?.map;
  }

  receive(frame: Uint8Array): void {
    const message = this.meter.on('ps', 'decode', () => toMessage(decodeFrame(frame).header));
    if (message.t === 'welcome') {
      const { id, inc, map } = message;
      this.node ??= new PsNode(id, inc, this.native, this.memory, DEFAULT_POLICY);
      this.step(SCHEDULER, { t: 'map', map });
    } else if (this.node) this.step(SCHEDULER, message);
  }

  private step(from: PeerId, message: Message): void {
    const node = this.node!;
    const input = { kind: 'message' as const, from, role: 'scheduler' as const, message, parts: [] };
    this.run(this.meter.on('ps', 'core', () => node.step(input)));
  }

  tick(now: number): void {
    const { node } = this;
    if (!node || now % TICK_MS !== 0) return;
    this.run(this.meter.on('ps', 'core', () => node.step({ kind: 'tick', now })));
  }

  private run(effects: readonly Effect[]): void {
    for (const effect of effects) {
      if (effect.kind !== 'send') continue;
      if (effect.to === SCHEDULER) {
        const frame = this.meter.on('ps', 'encode', () => encodeFrame(effect.message));
        if (effect.message.t === 'heartbeat') this.heartbeat = frame;
      } else this.answer(effect.to, effect.message);
    }
  }

  /** Answers as a sink that has room and is never slow. */
  private answer(from: PeerId, message: Message): void {
    const node = this.node!;
    const reply = replyOf(message);
    if (reply) this.run(node.step({ kind: 'message', from, role: 'node', message: reply, parts: [] }));
  }

  /** Writes rows into every table of every shard, once, without being measured. */
  write(tables: readonly TableSpec[]): void {
    const { node, native } = this;
    if (!node || this.written || tables.length === 0) return;
    this.written = true;
    for (const group of node.map.groups) {
      for (const m of group.data.keys()) {
        if (!node.ownerAt(group.id, m)) continue;
        const section = native.encodeRequest(
          0,
          tables.map((table) => this.part(table, group.id * 64 + m)),
        );
        const push = {
          t: 'push' as const,
          epoch: node.map.epoch,
          items: packItems('push', [[group.id, m, 1, section.byteLength]]),
        };
        const role = 'client' as const;
        this.run(node.step({ kind: 'message', from: WRITER, role, message: push, parts: [section] }));
      }
    }
    while (node.needsTurn) this.run(node.step({ kind: 'turn' }));
    this.run(node.step({ kind: 'flush' }));
  }

  /** Pushes a batch under the session of a range to every shard, without being measured. */
  train(session: PeerId): void {
    const { node, native } = this;
    const [table] = node?.map.tables ?? [];
    if (!node || !this.written || !table) return;
    this.batch ??= native.encodeRequest(0, [{ ...this.part(table, 0), end: 1 }]);
    const shards = this.shards(node);
    const items = shards.map(([g, m]): [number, number, number, number] => [g, m, 1, this.batch!.byteLength]);
    const spans = shards.map(() => ({ memory: this.batch!, start: 0, size: this.batch!.byteLength }));
    const parts = [joined(spans)];
    const message = {
      t: 'push' as const,
      epoch: node.map.epoch,
      client: session,
      items: packItems('push', items),
    };
    this.run(node.step({ kind: 'message', from: WRITER, role: 'client', message, parts }));
    while (node.needsTurn) this.run(node.step({ kind: 'turn' }));
    this.run(node.step({ kind: 'flush' }));
  }

  private shards(node: PsNode): [g: number, m: number][] {
    return node.map.groups.flatMap(({ id, data }) =>
      [...data.keys()].filter((m) => node.ownerAt(id, m)).map((m): [number, number] => [id, m]),
    );
  }

  /** Most sessions that one of its shards remembers. */
  get remembered(): number {
    const { node } = this;
    if (!node) return 0;
    return Math.max(0, ...this.shards(node).map(([g, m]) => node.ownerAt(g, m)!.clients().length));
  }

  private part({ id, dim }: TableSpec, shard: number) {
    const keys = BigUint64Array.from({ length: this.rows }, (_, i) => BigInt(shard * this.rows + i + 1));
    const rows = new Float32Array(this.rows * dim).fill(1);
    const order = Uint32Array.from(keys, (_, i) => i);
    return { table: id, width: dim, keys, rows, order, start: 0, end: keys.length };
  }

  close(): void {
    this.node?.close();
  }
}

function replyOf(message: Message): Message | undefined {
  switch (message.t) {
    case 'start': {
      const { g, m, sid, gen, base } = message;
      return { t: 'startAck', g, m, sid, gen, applied: base, dedup: [], extents: [] };
    }
    case 'delta': {
      const { g, m, sid, gen, seq } = message;
      return { t: 'applied', g, m, sid, gen, applied: seq };
    }
    default:
      return undefined;
  }
}
