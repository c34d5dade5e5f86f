/**
 * Impostors: a client sends maps, reports and stream messages, and pushes under the session of another
 * client. A node of the job also sends clients a message that only the scheduler may send. Each such message
 * must be refused; the rest of the schedule shows that nothing else has changed. Impostors draw from
 * randomness of their own, so that the schedules are the same with and without them.
 */
import { packItems } from '../protocol/items.js';
import { type Group, type PeerId, SCHEDULER } from '../protocol/map.js';
import type { Heartbeat, Message } from '../protocol/messages.js';
import type { SimulatedCluster } from './cluster.js';
import type { Control } from './control.js';
import { Random } from './random.js';
import { Violation } from './violation.js';

/** Number of no question. */
const UNASKED = 4_000_000_000;
/** Chance per step. */
const RATE = 0.01;

export class Impostors {
  private readonly random: Random;

  constructor(
    private readonly cluster: SimulatedCluster,
    private readonly control: Control,
    seed: number,
  ) {
    this.random = new Random(seed + 0x1a2b3c);
  }

  strike(): void {
    if (!this.random.chance(RATE)) return;
    const { map } = this.control.disk;
    const from = this.random.pick(this.cluster.clients).id;
    if (from === undefined || map.groups.length === 0) return;
    const whom = this.random.below(3);
    if (whom === 0) this.toScheduler(from);
    else if (whom === 1) this.toNode(from);
    else this.toClient();
  }

  /** A sink of the group; 0: it has none for a while. */
  private anySink({ sinks }: Group): number {
    return sinks.length === 0 ? 0 : this.random.pick(sinks).sid;
  }

  /** Reports as the owner of a shard: it is complete, it is lost, its sink is slow. */
  private toScheduler(from: PeerId): void {
    const { random, control } = this;
    if (!control.scheduler) return;
    if (random.chance(0.3)) return this.release(from);
    const { map } = control.disk;
    const group = random.pick(map.groups);
    const m = random.below(group.data.length);
    const { gen, inc } = group.data[m]!;
    const sid = this.anySink(group);
    const stream = { g: group.id, m, sid, gen, v: group.version };
    const heartbeat: Heartbeat = {
      ...{ t: 'heartbeat', inc, epoch: map.epoch, bytes: 0, rows: 0, recoveries: [], owned: [] },
      completeSinks: map.groups.flatMap(({ sinks }) => sinks.map((sink) => sink.sid)),
      completeShards: map.groups.flatMap(({ id, data }) =>
        data.map((entry, member): [number, number, number] => [id, member, entry.gen]),
      ),
    };
    const message = random.pick<Message>([
      heartbeat,
      { t: 'unrecoverable', ...stream, blocks: 1 },
      { t: 'stalled', ...stream },
      { t: 'sessions' },
    ]);
    const passed = this.cluster.network.wire.passed(message);
    this.refused('a client to the scheduler', message, () =>
      control.scheduler!.step({ kind: 'message', from, role: 'client', message: passed }),
    );
  }

  /** Reports a range as finished that the client never had. The report is accepted and has no effect. */
  private release(from: PeerId): void {
    const [dataset] = this.control.disk.datasets ?? [];
    const [range] = dataset?.open.values() ?? [];
    if (!dataset || !range) return;
    const nobodys = { id: UNASKED, lease: UNASKED, session: 0 };
    const counts = { done: range.begun, begun: range.begun, samples: 1, redone: 0 };
    const { name } = dataset;
    this.cluster.count('impostor');
    this.control.told(from, {
      t: 'release',
      name,
      number: range.number,
      ...nobodys,
      ...counts,
      outcome: 'finished',
    });
  }

  private toNode(from: PeerId): void {
    const { random, cluster } = this;
    const { node } = random.pick(cluster.nodes);
    const { map, nextPeer } = this.control.disk;
    if (!node) return;
    const group = random.pick(map.groups);
    const m = random.below(group.data.length);
    const { gen } = group.data[m]!;
    const sid = this.anySink(group);
    const stream = { g: group.id, m, sid, gen };
    const message = random.pick<Message>([
      { t: 'map', map: { ...map, epoch: map.epoch + 1000, groups: [] } },
      { t: 'openSessions', next: nextPeer, open: [] },
      { t: 'sessionsEnded', ranges: [[1, nextPeer - 1]] },
      { t: 'confirmedLost', g: group.id, m, gen, v: group.version },
      { t: 'applied', ...stream, applied: 1 },
      { t: 'committed', ...stream, committed: 1 },
      { t: 'open', ...stream, v: 0, attempt: 1 },
      // The session is that of another client.
      { t: 'push', epoch: 0, client: from + 1, items: packItems('push', [[group.id, m, 1, 0]]) },
    ]);
    const passed = cluster.network.wire.passed(message);
    const parts = message.t === 'push' ? [new Uint8Array(0)] : [];
    this.refused('a client to a node', message, () =>
      node.step({ kind: 'message', from, role: 'client', message: passed, parts }),
    );
  }

  /** Sends a map, which only the scheduler may send, from a node to a client. */
  private toClient(): void {
    const { random, cluster } = this;
    const { map } = this.control.disk;
    const { core } = random.pick(cluster.clients);
    const from = random.pick(map.nodes).id;
    if (from === SCHEDULER) return;
    const message: Message = { t: 'map', map: { ...map, epoch: map.epoch + 1000, groups: [] } };
    const passed = cluster.network.wire.passed(message);
    this.refused('a node to a client', message, () =>
      core.step({ kind: 'message', from, message: passed, parts: [] }),
    );
  }

  private refused(who: string, { t }: Message, step: () => unknown): void {
    this.cluster.count('impostor');
    const limit = Error.stackTraceLimit;
    // The stack of a refusal is not needed, and costs time.
    Error.stackTraceLimit = 0;
    try {
      step();
    } catch (error) {
      if ((error as { code?: string }).code === 'FORBIDDEN') return;
      throw error;
    } finally {
      Error.stackTraceLimit = limit;
    }
    throw new Violation(`"${t}" of ${who} was taken`);
  }
}
