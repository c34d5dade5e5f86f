/**
 * Acknowledgements of pushes to several shards of this node. Those of one push leave together when its last
 * shard has it durably, because its client waits for all of them. After a failure they leave one by one: when
 * the client repeats a section, or when a shard lets the others wait for too long.
 */
import { shardKey } from '../../protocol/items.js';
import type { PeerId } from '../../protocol/map.js';
import type { Refusal } from '../../protocol/messages.js';

/** Passes an acknowledgement on. */
export type PushAckSender = (
  ...ack: [client: PeerId, g: number, m: number, cseq: number, refused: Refusal | undefined]
) => void;

/** A push of which acknowledgements are owed. */
interface OwedPush {
  readonly client: PeerId;
  /** Milliseconds of the newest tick when it came. */
  readonly since: number;
  /** The shards of its sections, by `shardKey`. */
  readonly shards: number[];
  /** Sections that are not acknowledged. */
  left: number;
  /** Acknowledgements that wait for the others. */
  readonly kept: [g: number, m: number, cseq: number, refused: Refusal | undefined][];
}

interface OwedSection {
  readonly cseq: number;
  readonly push: OwedPush;
}

export class OwedAcks {
  /** Client -> shard (`shardKey`) -> the sections that wait, one for each number. */
  private readonly sections = new Map<PeerId, Map<number, OwedSection[]>>();
  /** Oldest first. */
  private readonly pushes = new Set<OwedPush>();

  constructor(
    /** Longest time that an acknowledgement waits for others. */
    private readonly waitMs: number,
    private readonly send: PushAckSender,
  ) {}

  /** Pushes with acknowledgements that wait. */
  get size(): number {
    return this.pushes.size;
  }

  /** A push has come, to one shard after the other: see `add`. */
  begin(client: PeerId, now: number): OwedPush {
    return { client, since: now, shards: [], left: 0, kept: [] };
  }

  /** The push has this section, too. */
  add(push: OwedPush, g: number, m: number, cseq: number): void {
    let shards = this.sections.get(push.client);
    if (!shards) {
      shards = new Map();
      this.sections.set(push.client, shards);
    }
    const key = shardKey(g, m);
    const waiting = shards.get(key);
    const earlier = waiting?.find((section) => section.cseq === cseq);
    // The client sends again what it has no answer to: something that was on its way was lost.
    if (earlier) return this.release(earlier.push);
    if (waiting) waiting.push({ cseq, push });
    else shards.set(key, [{ cseq, push }]);
    push.shards.push(key);
    push.left++;
    this.pushes.add(push);
  }

  /** The section is durable, or refused. */
  settle(client: PeerId, g: number, m: number, cseq: number, refused?: Refusal): void {
    const push = this.take(client, g, m, cseq);
    if (!push) return this.send(client, g, m, cseq, refused);
    push.kept.push([g, m, cseq, refused]);
    if (--push.left === 0) this.end(push);
  }

  /** The push that owes this section, which no longer does. */
  private take(client: PeerId, g: number, m: number, cseq: number): OwedPush | undefined {
    const shards = this.sections.get(client);
    const key = shardKey(g, m);
    const section = shards?.get(key)?.find((each) => each.cseq === cseq);
    if (!section) return undefined;
    this.drop(client, key, (each) => each === section);
    return section.push;
  }

  private drop(client: PeerId, key: number, isGone: (section: OwedSection) => boolean): void {
    const shards = this.sections.get(client);
    const waiting = shards?.get(key)?.filter((section) => !isGone(section)) ?? [];
    if (waiting.length > 0) shards?.set(key, waiting);
    else shards?.delete(key);
    if (shards?.size === 0) this.sections.delete(client);
  }

  /** Lets go what the push has, and from now on each of its other sections alone. */
  private release(push: OwedPush): void {
    for (const key of push.shards) this.drop(push.client, key, (section) => section.push === push);
    this.end(push);
  }

  private end(push: OwedPush): void {
    this.pushes.delete(push);
    for (const ack of push.kept) this.send(push.client, ...ack);
    push.kept.length = 0;
  }

  tick(now: number): void {
    for (const push of this.pushes) {
      if (now - push.since < this.waitMs) return;
      this.release(push);
    }
  }
}
