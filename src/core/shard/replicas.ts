/**
 * The replicas that follow a shard. Rule 39: they get the deltas that sinks get, and the owner waits for
 * nothing from them. They are in no map, and give no bytes to a recovery. A replica that does not keep up is
 * forgotten. It learns that from the answer to its next probe, and begins again.
 */
import type { BlockList, Extent } from '../../engine/native.js';
import type { PeerId } from '../../protocol/map.js';
import type { MessageOf } from '../../protocol/messages.js';
import type { CoreHost } from '../shared/host.js';

/** A batch as replicas get it. */
export interface StreamBatch {
  seq: number;
  delta: Uint8Array;
}

/** The parts of an owner that its replicas need. */
export interface ReplicatedShard {
  readonly gen: number;
  readonly member: number;
  readonly group: { readonly id: number };
  extents(): Extent[];
  readonly stream: {
    readonly phase: string;
    readonly seq: number;
    readonly committed: number;
    /** The ownership whose stream this one resumes, and the position; undefined: there was no take-over. */
    readonly before: { gen: number; base: number } | undefined;
    uncommitted(above: number): StreamBatch[];
  };
  flush(): void;
}

interface ShardReplica {
  /** Number of its question for a stream. Later questions of the replica have higher ones. */
  id: number;
  /** Batches that were sent and that the replica has not confirmed with a probe, ascending. */
  sent: { seq: number; size: number }[];
  /** Bytes of `sent`; over `maxReaderBytes` the replica is forgotten, unless it is a single batch. */
  bytes: number;
  /** When the replica last probed, or began, in milliseconds. */
  heardAt: number;
}

export class ShardReplicas {
  /** Replicas that are sent the stream. No replica is in `early`, too. */
  private readonly replicas = new Map<PeerId, ShardReplica>();
  /** Newest question of each replica that asked before the owner was active. Empty once it is. */
  private readonly early = new Map<PeerId, MessageOf<'follow'>>();

  constructor(
    private readonly shard: ReplicatedShard,
    private readonly host: CoreHost,
  ) {}

  get any(): boolean {
    return this.replicas.size > 0;
  }

  onFollow(from: PeerId, message: MessageOf<'follow'>): void {
    const known = this.replicas.get(from)?.id ?? this.early.get(from)?.id ?? 0;
    if (message.id <= known) return;
    this.replicas.delete(from);
    if (this.shard.stream.phase === 'ACTIVE') this.begin(from, message);
    else this.early.set(from, message);
  }

  /** The owner serves. */
  activated(): void {
    for (const [from, message] of this.early) this.begin(from, message);
    this.early.clear();
  }

  private begin(from: PeerId, { id, have }: MessageOf<'follow'>): void {
    const { group, member: m, gen, stream } = this.shard;
    const answer = { t: 'followed' as const, g: group.id, m, gen, id };
    if (!have) {
      this.shard.flush();
      const extents = this.shard.extents();
      this.add(from, id);
      this.host.out.send(from, { ...answer, how: 'fresh', base: stream.seq, extents });
      return;
    }
    const base = this.resumeAt(have);
    if (base === undefined) {
      this.host.out.send(from, { ...answer, how: 'gone', base: 0, extents: [] });
      return;
    }
    this.add(from, id);
    this.host.out.send(from, { ...answer, how: 'resumed', base, extents: [] });
    for (const batch of stream.uncommitted(base)) this.send(from, this.replicas.get(from), batch);
  }

  /**
   * The position from which the replica can resume; undefined: it has to begin again. In this ownership it
   * must be at or above the committed position, because committed batches are not kept. A state of an earlier
   * ownership is of use only if this ownership took over from that one, and if the replica is at the base or
   * can roll back to it: above the base the two streams differ.
   */
  private resumeAt([gen, trim, applied]: [gen: number, trim: number, applied: number]): number | undefined {
    const { committed, seq, before } = this.shard.stream;
    if (gen === this.shard.gen) return committed <= applied && applied <= seq ? applied : undefined;
    if (gen !== before?.gen || committed > before.base) return undefined;
    return trim <= before.base && before.base <= applied ? before.base : undefined;
  }

  private add(from: PeerId, id: number): void {
    this.replicas.set(from, { id, sent: [], bytes: 0, heardAt: this.host.now });
  }

  /** A batch of this shard has left. */
  appended(batch: StreamBatch): void {
    for (const [from, replica] of this.replicas) this.send(from, replica, batch);
  }

  private send(from: PeerId, replica: ShardReplica | undefined, { seq, delta }: StreamBatch): void {
    if (!replica) return;
    replica.sent.push({ seq, size: delta.byteLength });
    replica.bytes += delta.byteLength;
    if (replica.bytes > this.host.policy.maxReaderBytes && replica.sent.length > 1) {
      this.drop(from, 'bytes');
      return;
    }
    const { group, member: m, gen, stream } = this.shard;
    const { committed } = stream;
    this.host.out.send(from, { t: 'followDelta', g: group.id, m, gen, id: replica.id, seq, committed }, [
      delta,
    ]);
  }

  private drop(from: PeerId, reason: string): void {
    this.replicas.delete(from);
    const { group, member } = this.shard;
    this.host.out.event('replica.dropped', { group: group.id, member, replica: from, reason });
  }

  /** Sends content that a replica wants. `read` is called after a flush (rule 18), so at position `seq`. */
  onWant(
    from: PeerId,
    { id }: MessageOf<'followWant'>,
    read: () => { present: BlockList; parts: readonly Uint8Array[] },
  ): void {
    if (this.replicas.get(from)?.id !== id) return;
    this.shard.flush();
    // The batch that the flush made may have been too much for this replica.
    if (this.replicas.get(from)?.id !== id) return;
    const { present, parts } = read();
    if (present.length === 0) return;
    const { group, member: m, gen, stream } = this.shard;
    const servedRatio = this.host.pace.give();
    this.host.out.send(
      from,
      {
        ...{ t: 'followContent' as const, g: group.id, m, gen, id, seq: stream.seq },
        ...(servedRatio !== undefined && { servedRatio }),
      },
      parts,
    );
  }

  /** Position of this shard, for a replica that probes; undefined: the replica does not follow this shard. */
  probed(
    from: PeerId,
    upTo: number,
    has: ReadonlyMap<number, number>,
  ): [id: number, seq: number] | undefined {
    const replica = this.replicas.get(from);
    if (!replica) return undefined;
    const applied = has.get(replica.id);
    if (applied === undefined && replica.id <= upTo) {
      this.drop(from, 'left');
      return undefined;
    }
    replica.heardAt = this.host.now;
    let count = 0;
    for (const { seq, size } of replica.sent) {
      if (seq > (applied ?? 0)) break;
      replica.bytes -= size;
      count++;
    }
    replica.sent.splice(0, count);
    // Rule 40: the answer counts every push that came before the probe.
    this.shard.flush();
    return this.replicas.get(from) === replica ? [replica.id, this.shard.stream.seq] : undefined;
  }

  /** The link of a client is closed: no delta reaches it any more. It asks again when it is back. */
  gone(client: PeerId): void {
    this.early.delete(client);
    if (this.replicas.has(client)) this.drop(client, 'disconnected');
  }

  tick(): void {
    const { now, policy } = this.host;
    for (const [from, { heardAt }] of this.replicas) {
      if (now - heardAt <= policy.readerSilentMs) continue;
      this.drop(from, 'silent');
      // The replica does not read, so the bytes that were sent to it would stay in memory.
      this.host.out.hangUp(from);
    }
  }
}
