/**
 * What nobody may say any more, once something was said or is on a disk: checked at the moment of sending,
 * from the messages alone where they suffice. A protocol that breaks such a promise is wrong at that step,
 * however well the schedule goes on.
 */
import type { PsNode } from '../core/node/node.js';
import type { DurableState } from '../core/scheduler/scheduler.js';
import { unpackItems } from '../protocol/items.js';
import type { PeerId } from '../protocol/map.js';
import type { Message, MessageOf } from '../protocol/messages.js';
import type { NodeActor } from './actors.js';
import { membersOf } from './capabilities.js';
import { Violation } from './violation.js';

/** What the check looks at beside the messages. */
interface Truth {
  readonly nodes: readonly NodeActor[];
  readonly control: { readonly disk: Pick<DurableState, 'map' | 'sessions' | 'nextPeer'> };
  processOf(id: PeerId, inc: number): PsNode | undefined;
}

export class Promises {
  /** sink/member -> the highest generation that the sink has promised itself to (rule 12) */
  private readonly fences = new Map<string, number>();
  /** sink/member: the sink follows a stream of this member */
  private readonly following = new Set<string>();

  constructor(private readonly cluster: Truth) {}

  check(from: number, to: PeerId, message: Message): void {
    switch (message.t) {
      case 'openAck':
        this.promise(message);
        return;
      case 'startAck':
        this.promise(message);
        this.following.add(streamOf(message));
        return;
      case 'applied':
        this.checkFence(message);
        return;
      case 'pushAck':
        this.checkDurable(from, to, message);
        return;
      case 'map':
      case 'welcome':
        this.checkOnDisk(message.map.epoch);
        return;
      case 'mapDiff':
        this.checkOnDisk(message.to);
        return;
      case 'sessionsEnded':
        this.checkEnded(message);
        return;
      case 'shardSaved':
        this.checkSaved(from, message);
    }
  }

  private promise(message: MessageOf<'openAck'> | MessageOf<'startAck'>): void {
    const stream = streamOf(message);
    this.fences.set(stream, Math.max(message.gen, this.fences.get(stream) ?? 0));
  }

  /** A fenced owner gets no acknowledgement. */
  private checkFence(message: MessageOf<'applied'>): void {
    const fence = this.fences.get(streamOf(message)) ?? 0;
    if (message.gen < fence)
      throw new Violation(
        `sink ${message.sid} took a delta of generation ${message.gen} of member ${message.m} after its ` +
          `promise to ${fence}`,
      );
  }

  /**
   * Rule 9: what is acknowledged is in every living sink that the owner knows of and that follows the shard.
   */
  private checkDurable(from: number, to: PeerId, message: MessageOf<'pushAck'>): void {
    const { client = to } = message;
    const refusals = new Map(message.refused);
    const node = this.cluster.nodes[from - 1]?.node;
    for (const [index, [g = 0, m = 0, cseq = 0]] of unpackItems('pushAck', message.items).entries()) {
      // Not an answer of the stream: the session is over, whatever its pushes were.
      if (refusals.get(index) === 'SESSION_EXPIRED') continue;
      const group = node?.ownerAt(g, m)?.group;
      for (const entry of group?.sinks ?? []) {
        if (!group || !membersOf(entry, group).includes(m)) continue;
        const sink = this.cluster.processOf(entry.node, entry.inc)?.sinkAt(entry.sid);
        if (!sink || !(entry.init || this.following.has(`${entry.sid}/${m}`))) continue;
        const dedup = sink.dedupOf(m);
        if (dedup.last(client) < cseq && !dedup.hasEnded(client))
          throw new Violation(
            `push ${cseq} of client ${client} was acknowledged, sink ${entry.sid} has it not`,
          );
      }
    }
  }

  /** Rule 31: nobody hears of an end that is not durable, or that an open session is one of the ended. */
  private checkEnded({ ranges }: MessageOf<'sessionsEnded'>): void {
    const { sessions, nextPeer } = this.cluster.control.disk;
    for (const [first, last] of ranges) {
      if (last >= nextPeer) throw new Violation(`session ${last} was called ended, and is yet to come`);
      for (const id of sessions.keys())
        if (first <= id && id <= last) throw new Violation(`session ${id} was called ended, and is open`);
    }
  }

  /** Rule 34: what a checkpoint shows is in every living sink of the shard. */
  private checkSaved(from: number, { g, m, gen, position }: MessageOf<'shardSaved'>): void {
    const owner = this.cluster.nodes[from - 1]?.node?.ownerAt(g, m);
    if (owner?.gen !== gen) return;
    for (const entry of owner.group.sinks) {
      if (!membersOf(entry, owner.group).includes(m)) continue;
      const sink = this.cluster.processOf(entry.node, entry.inc)?.sinkAt(entry.sid);
      if (!sink || !(entry.init || this.following.has(`${entry.sid}/${m}`))) continue;
      const [, , , applied = 0] = sink.positions().find(([member]) => member === m) ?? [];
      if (applied < position)
        throw new Violation(`shard ${g}/${m} is saved at ${position}, sink ${entry.sid} is at ${applied}`);
    }
  }

  /** Rule 2. */
  private checkOnDisk(epoch: number): void {
    const durable = this.cluster.control.disk.map.epoch;
    if (epoch > durable) throw new Violation(`map ${epoch} was sent while the disk has ${durable}`);
  }
}

function streamOf({ sid, m }: { sid: number; m: number }): string {
  return `${sid}/${m}`;
}
