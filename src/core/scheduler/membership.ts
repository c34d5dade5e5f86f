/**
 * Who is a member of the job: nodes that join, come back, close their connections, fall silent and are given
 * up; clients that attach. What follows for the placement of shards is decided by the scheduler, whom this
 * file tells through `MembershipHost`.
 */
import type { ClusterMap, Group, NodeEntry, PeerId } from '../../protocol/map.js';
import type { Message, MessageOf } from '../../protocol/messages.js';
import { nodesById } from '../placement/health.js';
import type { SchedulerPolicy } from '../shared/policy.js';
import type { Ledger } from './ledger.js';
import { Liveness, type NodeLiveness } from './liveness.js';
import type { Names } from './names.js';
import type { Samples } from './samples/samples.js';
import type { Scaler } from './scaling/scaler.js';
import type { Sessions } from './sessions.js';
import { byName } from './state.js';
import { neighbours, type Silence, Vanishing } from './vanishing.js';

/** What the scheduler lends to its membership. */
export interface MembershipHost {
  readonly ledger: Ledger;
  readonly policy: SchedulerPolicy;
  readonly names: Names;
  readonly sessions: Sessions;
  readonly samples: Samples;
  readonly scaler: Scaler;
  /** Where shards may be placed has changed, so repair must look again. */
  changed(): void;
  /** Forms the groups once enough nodes have joined. */
  form(): void;
  reconfigure(reason: string, fields?: Record<string, unknown>): void;
  /** The groups in which the node holds something. */
  heldBy(node: PeerId): readonly Group[];
  /**
   * More members of a group than it can do without would be missing without this node, and without those
   * `besides` (rule 30).
   */
  indispensable(node: PeerId, besides: readonly PeerId[]): boolean;
  /** What the node reported means nothing any more. */
  forgetReports(node: PeerId): void;
}

export class Membership {
  private readonly liveness: Liveness;
  private readonly vanishing: Vanishing;
  private readonly ledger: Ledger;
  private now = 0;

  constructor(
    private readonly host: MembershipHost,
    restarted: boolean,
  ) {
    this.ledger = host.ledger;
    this.liveness = new Liveness(host.policy);
    this.vanishing = new Vanishing(host.policy);
    if (restarted) for (const node of this.map.nodes) this.liveness.expect(node);
  }

  private get map(): ClusterMap {
    return this.ledger.map;
  }

  // ---- what is known

  isAlive(id: PeerId, inc: number): boolean {
    return this.liveness.isAlive(id, inc);
  }

  /** Nodes of the map that are alive and connected, so that something new can be placed there. */
  get present(): readonly NodeEntry[] {
    return this.liveness.presentOf(this.map.nodes);
  }

  /** What is known of this process; undefined when a newer one has its name, or it was forgotten. */
  of(id: PeerId, inc: number): NodeLiveness | undefined {
    return this.liveness.of(id, inc);
  }

  /** A process that closed its connection, or was given up, is heard. */
  isBack(known: NodeLiveness): void {
    this.liveness.mark(known, { connected: true, dead: false });
  }

  isKnown(id: PeerId): boolean {
    return this.liveness.newest(id) !== undefined;
  }

  // ---- coming

  join(link: number, join: MessageOf<'join'>): void {
    const { names, scaler } = this.host;
    const identity = names.identify(join);
    if (identity === 'stale') return this.refuse(link, { t: 'stale', code: 'STALE_NODE' });
    if (identity === 'left') return this.refuse(link, names.goodbye(join.id ?? 0, join.inc ?? 0)!);
    const { id, inc } = identity;
    const wasDead = this.liveness.of(id, inc)?.dead === true;
    this.liveness.joined(id, inc, this.now);
    const { name, host, address, machine, standby } = join;
    const entry: NodeEntry = { id, inc, name, host, address, ...(machine && { machine }), standby };
    const listed = this.map.nodes.find((node) => node.id === id);
    if (!listed || listed.inc !== inc || listed.address !== address) {
      const nodes = [...this.map.nodes.filter((node) => node.id !== id), entry];
      nodes.sort(byName);
      this.ledger.setMap({ nodes }, 'join', { node: id, name, inc });
    }
    if (listed?.inc !== inc) {
      const fields = { node: id, name, inc, host, standby };
      this.ledger.afterwards({ kind: 'event', name: 'node.joined', fields });
    }
    const running = this.map.groups.length > 0;
    this.host.form();
    this.host.reconfigure('join');
    const isEmpty = wasDead || !scaler.holders.has(id);
    if (running && (listed?.inc !== inc || isEmpty)) scaler.joined(entry);
    if (listed?.inc !== inc) this.forgetAbsent();
    this.admit(link, id, inc);
  }

  attach(link: number, attach: MessageOf<'attach'>): void {
    const { sessions, samples } = this.host;
    const known = attach.id !== undefined;
    const resumed = known && !this.isForeign(attach.job) && sessions.resume(attach.id!, link);
    const id = known ? (resumed ? attach.id : undefined) : sessions.lease(link, this.now);
    if (id === undefined) {
      return this.refuse(link, { t: 'stale', code: known ? 'SESSION_EXPIRED' : 'LIMIT' });
    }
    samples.attached(id);
    this.admit(link, id, 0);
  }

  /**
   * A process that was given up is heard again. Other nodes hold its shards by now, so it gets shards as a
   * new node does.
   */
  revived(node: PeerId): void {
    const entry = this.map.nodes.find(({ id }) => id === node);
    if (entry && this.map.groups.length > 0) this.host.scaler.joined(entry);
  }

  private refuse(link: number, message: Message): void {
    this.ledger.afterwards({ kind: 'reply', link, message });
  }

  private admit(link: number, peer: PeerId, inc: number): void {
    const message: Message = { t: 'welcome', id: peer, inc, map: this.map };
    this.ledger.afterwards({ kind: 'reply', link, message, admit: { peer, inc } });
  }

  /** A peer that comes back from another job, whose ids mean nothing here. */
  private isForeign(job: string | undefined): boolean {
    return job !== undefined && job !== this.map.job;
  }

  // ---- going

  closed(peer: PeerId, inc: number): void {
    const known = this.liveness.of(peer, inc);
    if (!known) return;
    this.liveness.mark(known, { connected: false });
    known.closedAt = this.now;
    const node = this.map.nodes.find((entry) => entry.id === peer);
    if (node) this.probe(node);
  }

  /**
   * The process lives: it is given up when it stays silent, and not because it does not come back at once.
   */
  listening(node: PeerId, inc: number): void {
    const known = this.liveness.of(node, inc);
    if (known) known.closedAt = this.now;
  }

  refused(node: PeerId, inc: number): void {
    if (this.liveness.of(node, inc)?.connected === false) this.giveUp([node, 'refused']);
  }

  /** Called at the first tick: silence counts from now on. */
  start(now: number): void {
    this.now = now;
    this.liveness.startAt(now);
    // At once, so that those that died while no scheduler ran are found. The others reconnect.
    for (const node of this.map.nodes) this.probe(node);
  }

  /** `slept`: milliseconds in which this process did not run. They do not count as silence of others. */
  tick(now: number, slept: number): void {
    this.now = now;
    this.liveness.slept(slept);
    this.liveness.excuse(now);
  }

  /** Gives up those that are late, and those whose machine has vanished. */
  lose(): void {
    this.giveUp(...this.vanished(), ...this.liveness.late(this.now));
  }

  /** Links to nodes on which nothing was acknowledged for a while; the others are acknowledged. */
  silent(links: readonly Silence[]): void {
    const { vanishedMs } = this.host.policy;
    const isQuiet = ({ node, inc }: Silence): boolean => {
      const known = this.liveness.of(node, inc);
      return known?.dead === false && this.now - known.heardAt >= vanishedMs / 4;
    };
    this.vanishing.learn(links.filter(isQuiet));
  }

  /** Nodes that may be gone: nothing is acknowledged, or nothing was heard for some time. */
  get silentOnes(): PeerId[] {
    return [...this.vanishing.all, ...this.liveness.silent(this.now)];
  }

  reached(from: PeerId, answer: MessageOf<'reached'>): void {
    this.vanishing.answered(from, answer, this.now);
  }

  /**
   * A scheduler that is cut off sees the same as one whose nodes have vanished. So when more nodes are silent
   * than the code restores, rule 33 gives up none of them, and they have `silentMs`.
   */
  private vanished(): [PeerId, string][] {
    if (this.vanishing.all.length === 0) return [];
    const present = nodesById(this.present);
    const witnesses = (node: PeerId) =>
      neighbours(node, this.host.heldBy(node)).filter((id) => present.has(id));
    for (const [to, message] of this.vanishing.ask(this.now, witnesses)) this.ledger.tell(to, message);
    const gone = this.vanishing.gone(this.now);
    const silent = this.vanishing.all;
    if (gone.some((node) => this.host.indispensable(node, silent))) return [];
    for (const node of gone) this.ledger.now({ kind: 'abandon', node, inc: this.liveness.newest(node)!.inc });
    return gone.map((node) => [node, 'vanished']);
  }

  /**
   * Nodes that are lost together are lost in one decision. Otherwise the repair of the first would count on
   * the second.
   */
  private giveUp(...late: [node: PeerId, reason: string][]): void {
    for (const fields of late.flatMap(([node, reason]) => this.giveUpOne(node, reason)))
      this.host.reconfigure('lost', fields);
  }

  private giveUpOne(node: PeerId, reason: string): Record<string, unknown>[] {
    const known = this.liveness.newest(node);
    if (!known || known.dead) return [];
    const name = this.map.nodes.find((entry) => entry.id === node)?.name;
    const silentMs = Math.round(this.now - known.heardAt);
    const lost = { node, name, inc: known.inc, reason, silentMs };
    if (reason !== 'refused' && this.host.indispensable(node, [])) {
      if (!known.suspected) this.ledger.now({ kind: 'event', name: 'node.suspected', fields: lost });
      known.suspected = true;
      return [];
    }
    this.host.changed();
    this.liveness.mark(known, { dead: true });
    if (!this.wasToldLost(known, node)) this.ledger.now({ kind: 'event', name: 'node.lost', fields: lost });
    return [{ node, name, inc: known.inc }];
  }

  /**
   * The events say that an earlier scheduler gave the node up: nothing was heard of the node since, and other
   * nodes have its shards.
   */
  private wasToldLost({ inc, connected, heardAt, closedAt }: NodeLiveness, node: PeerId): boolean {
    if (connected || closedAt !== heardAt || this.host.scaler.holders.has(node)) return false;
    for (const { kind, fields } of this.ledger.state.events.values())
      if (kind === 'node.lost' && fields.node === node && fields.inc === inc) return true;
    return false;
  }

  private probe({ id: node, inc, address }: NodeEntry): void {
    this.ledger.now({ kind: 'probe', node, inc, address });
  }

  /** Nodes that are given up and hold nothing are remembered up to a limit. */
  private forgetAbsent(): void {
    const { holders, leaving } = this.host.scaler;
    const isAbsent = (id: PeerId): boolean =>
      this.liveness.newest(id)?.dead !== false && !holders.has(id) && !leaving.has(id);
    for (const node of this.host.names.forgetAbsent(isAbsent)) this.forget(node);
  }

  forget(node: PeerId): void {
    this.liveness.forget(node);
    this.host.forgetReports(node);
  }
}
