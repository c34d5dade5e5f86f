/**
 * Promises: messages that rule out later messages, and decisions that must be on a disk before a message.
 * They are checked at the moment of sending, from the messages alone where these suffice. A protocol that
 * breaks a promise is wrong at that step, however well the schedule ends.
 */
import type { PsNode } from '../core/node/node.js';
import type { DurableState } from '../core/scheduler/scheduler.js';
import { unpackItems } from '../protocol/items.js';
import type { PeerId } from '../protocol/map.js';
import type { Message, MessageOf } from '../protocol/messages.js';
import type { NodeActor } from './actors.js';
import { membersOf } from './capabilities.js';
import { Violation } from './violation.js';

/** The parts of the cluster that the checks need beside the messages. */
interface PromisesHost {
  readonly nodes: readonly NodeActor[];
  readonly control: { readonly disk: Pick<DurableState, 'map' | 'sessions' | 'nextPeer'> };
  processOf(id: PeerId, inc: number): PsNode | undefined;
}

export class Promises {
  /** Sink/member -> the fence: the sink has promised to take nothing from an older generation (rule 12). */
  private readonly fences = new Map<string, number>();
  /** "sink/member", if the sink follows a stream of this member. */
  private readonly following = new Set<string>();

  constructor(private readonly cluster: PromisesHost) {}

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

  /** Checks that a fenced owner gets no acknowledgement. */
  private checkFence(message: MessageOf<'applied'>): void {
    const fence = this.fences.get(streamOf(message)) ?? 0;
    if (message.gen < fence)
      throw new Violation(
        `sink ${message.sid} took a delta of generation ${message.gen} of member ${message.m} after its ` +
          `promise to ${fence}`,
      );
  }

  /**
   * Rule 9: an acknowledged push is in every living sink that the owner knows and that follows the shard.
   */
  private checkDurable(from: number, to: PeerId, message: MessageOf<'pushAck'>): void {
    const { client = to } = message;
    const refusals = new Map(message.refused);
    const node = this.cluster.nodes[from - 1]?.node;
    for (const [index, [g = 0, m = 0, cseq = 0]] of unpackItems('pushAck', message.items).entries()) {
      // This is no answer of the stream: the session has ended, whatever its pushes were.
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

  /** Rule 31: nobody is told of the end of a session that is open on the disk, or not yet given. */
  private checkEnded({ ranges }: MessageOf<'sessionsEnded'>): void {
    const { sessions, nextPeer } = this.cluster.control.disk;
    for (const [first, last] of ranges) {
      if (last >= nextPeer) throw new Violation(`session ${last} was called ended, and is yet to come`);
      for (const id of sessions.keys())
        if (first <= id && id <= last) throw new Violation(`session ${id} was called ended, and is open`);
    }
  }

  /** Rule 34: a snapshot counts when its position is committed, so every living sink of the shard has it. */
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

  /** Rule 2: a map is durable before anyone sees it. */
  private checkOnDisk(epoch: number): void {
    const durable = this.cluster.control.disk.map.epoch;
    if (epoch > durable) throw new Violation(`map ${epoch} was sent while the disk has ${durable}`);
  }
}

function streamOf({ sid, m }: { sid: number; m: number }): string {
  return `${sid}/${m}`;
}
