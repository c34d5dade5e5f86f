/**
 * The replicas that follow a shard. They are told what its sinks are told, and nothing waits for them: they
 * are in no map, give no bytes to a recovery, and one that does not keep up is forgotten. A forgotten replica
 * learns it from the answer to its next probe, and begins again.
 */
import type { BlockList, Extent } from '../../native.js';
import type { PeerId } from '../../protocol/map.js';
import type { MessageOf } from '../../protocol/messages.js';
import { bytes } from '../shared/bytes.js';
import type { CoreHost } from '../shared/host.js';

/** A batch as readers get it. */
export interface ReadBatch {
  seq: number;
  delta: Uint8Array;
}

/** What a shard lends to its readers. */
export interface ReadShard {
  readonly gen: number;
  readonly member: number;
  readonly group: { readonly id: number };
  extents(): Extent[];
  readonly stream: {
    readonly phase: string;
    readonly seq: number;
    readonly committed: number;
    /** The ownership whose stream this one goes on with, and where; undefined: the shard was born here. */
    readonly before: { gen: number; base: number } | undefined;
    uncommitted(above: number): ReadBatch[];
  };
  flush(): void;
}

interface Reader {
  id: number;
  /** Batches that it was sent and has not said that it has. */
  sent: { seq: number; size: number }[];
  bytes: number;
  heardAt: number;
}

export class Readers {
  private readonly readers = new Map<PeerId, Reader>();
  /** Who asked before the owner was active. */
  private readonly early = new Map<PeerId, MessageOf<'follow'>>();

  constructor(
    private readonly shard: ReadShard,
    private readonly host: CoreHost,
  ) {}

  get any(): boolean {
    return this.readers.size > 0;
  }

  onFollow(from: PeerId, message: MessageOf<'follow'>): void {
    const known = this.readers.get(from)?.id ?? this.early.get(from)?.id ?? 0;
    if (message.id <= known) return;
    this.readers.delete(from);
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
    for (const batch of stream.uncommitted(base)) this.send(from, this.readers.get(from), batch);
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
    this.readers.set(from, { id, sent: [], bytes: 0, heardAt: this.host.now });
  }

  /** A batch of this shard has left. */
  appended(batch: ReadBatch): void {
    for (const [from, reader] of this.readers) this.send(from, reader, batch);
  }

  private send(from: PeerId, reader: Reader | undefined, { seq, delta }: ReadBatch): void {
    if (!reader) return;
    reader.sent.push({ seq, size: delta.byteLength });
    reader.bytes += delta.byteLength;
    if (reader.bytes > this.host.policy.maxReaderBytes && reader.sent.length > 1) {
      this.drop(from, 'bytes');
      return;
    }
    const { group, member: m, gen, stream } = this.shard;
    const { committed } = stream;
    this.host.out.send(from, { t: 'followDelta', g: group.id, m, gen, id: reader.id, seq, committed }, [
      delta,
    ]);
  }

  private drop(from: PeerId, reason: string): void {
    this.readers.delete(from);
    const { group, member } = this.shard;
    this.host.out.event('replica.dropped', { group: group.id, member, replica: from, reason });
  }

  /** The content that a reader asks for; `read`: at the position where the shard is after a flush. */
  onWant(
    from: PeerId,
    { id }: MessageOf<'followWant'>,
    read: () => { present: BlockList; bytes: Uint8Array },
  ): void {
    if (this.readers.get(from)?.id !== id) return;
    this.shard.flush();
    // The batch that the flush made may have been too much for this reader.
    if (this.readers.get(from)?.id !== id) return;
    const { present, bytes: content } = read();
    if (present.length === 0) return;
    const { group, member: m, gen, stream } = this.shard;
    const servedRatio = this.host.pace.give();
    this.host.out.send(
      from,
      {
        ...{ t: 'followContent' as const, g: group.id, m, gen, id, seq: stream.seq },
        ...(servedRatio !== undefined && { servedRatio }),
      },
      [bytes(present), content],
    );
  }

  /** Where this shard is, for a reader that asks; undefined: it does not follow this shard. */
  probed(
    from: PeerId,
    upTo: number,
    has: ReadonlyMap<number, number>,
  ): [id: number, seq: number] | undefined {
    const reader = this.readers.get(from);
    if (!reader) return undefined;
    const applied = has.get(reader.id);
    if (applied === undefined && reader.id <= upTo) {
      this.drop(from, 'left');
      return undefined;
    }
    reader.heardAt = this.host.now;
    let count = 0;
    for (const { seq, size } of reader.sent) {
      if (seq > (applied ?? 0)) break;
      reader.bytes -= size;
      count++;
    }
    reader.sent.splice(0, count);
    // What was pushed before the probe came counts.
    this.shard.flush();
    return this.readers.get(from) === reader ? [reader.id, this.shard.stream.seq] : undefined;
  }

  tick(): void {
    const { now, policy } = this.host;
    for (const [from, { heardAt }] of this.readers) {
      if (now - heardAt <= policy.readerSilentMs) continue;
      this.drop(from, 'silent');
      // The replica does not read, so the bytes that were sent to it would stay in memory.
      this.host.out.hangUp(from);
    }
  }
}
