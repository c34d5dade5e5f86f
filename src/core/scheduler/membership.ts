/**
 * Members of the job: nodes join, come back, close their connections, fall silent and are given up.
 */
import type { Life } from '../../protocol/liveness.js';
import type { ClusterMap, NodeEntry, PeerId } from '../../protocol/map.js';
import type { MessageOf } from '../../protocol/messages.js';
import { nodesById } from '../placement/health.js';
import type { SchedulerPolicy } from '../shared/policy.js';
import type { ClusterFacts } from './facts.js';
import { admit, turnAway } from './introductions.js';
import type { Ledger } from './ledger.js';
import { type Liveness, lastHeard, lastTurn, type NodeLiveness } from './liveness.js';
import type { Names } from './names.js';
import type { Placing } from './placing.js';
import type { Scaler } from './scaling/scaler.js';
import { byName } from './state.js';
import { neighbours, type Silence, Vanishing } from './vanishing.js';

export class Membership {
  private readonly vanishing: Vanishing;
  /** Milliseconds of the newest tick. */
  private now = 0;

  constructor(
    private readonly ledger: Ledger,
    private readonly policy: SchedulerPolicy,
    private readonly names: Names,
    private readonly liveness: Liveness,
    private readonly facts: ClusterFacts,
    private readonly placing: Placing,
    private readonly scaler: Scaler,
    restarted: boolean,
  ) {
    this.vanishing = new Vanishing(policy);
    if (restarted) for (const node of this.map.nodes) liveness.expect(node);
  }

  private get map(): ClusterMap {
    return this.ledger.map;
  }

  // ---- coming

  join(link: number, join: MessageOf<'join'>): void {
    const identity = this.names.identify(join);
    if (identity === 'stale') return turnAway(this.ledger, link, { t: 'stale', code: 'STALE_NODE' });
    if (identity === 'left')
      return turnAway(this.ledger, link, this.names.goodbye(join.id ?? 0, join.inc ?? 0)!);
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
    this.placing.form();
    this.placing.reconfigure('join');
    const isEmpty = wasDead || !this.facts.holders.has(id);
    if (running && (listed?.inc !== inc || isEmpty)) this.scaler.joined(entry);
    if (listed?.inc !== inc) this.forgetAbsent();
    admit(this.ledger, link, id, inc);
  }

  /**
   * A process that was given up is heard again. Other nodes hold its shards by now, so it gets shards as a
   * new node does.
   */
  revived(node: PeerId): void {
    const entry = this.map.nodes.find(({ id }) => id === node);
    if (entry && this.map.groups.length > 0) this.scaler.joined(entry);
  }

  /** A pulse of a node of this job: ids and incarnations of another job look like those of this one. */
  pulsed(pulse: MessageOf<'pulse'>): void {
    if (pulse.job === this.map.job) this.liveness.pulsed(pulse, this.now);
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
    // Nodes that died while no scheduler ran are found at once. The others reconnect.
    for (const node of this.map.nodes) this.probe(node);
  }

  /** `slept`: milliseconds in which this process did not run. They do not count as silence of others. */
  tick(now: number, slept: number): void {
    this.now = now;
    this.liveness.slept(slept);
    this.liveness.excuse(now);
  }

  /** The word for the process of a node (rule 44). */
  lifeOf(node: PeerId): Life {
    return this.vanishing.isSuspect(node) ? 'gone' : this.liveness.lifeOf(node, this.now);
  }

  /**
   * The process turns, but late, so it is behind with everything. What waits for it, for `forMs` by now,
   * waits as long as for a process that has stopped.
   */
  isOnlyBusy(node: PeerId, forMs: number): boolean {
    return forMs < this.policy.stoppedMs && this.liveness.isBusy(node, this.now);
  }

  isOverloaded(node: PeerId): boolean {
    return this.liveness.isOverloaded(node, this.now);
  }

  /** Gives up nodes that are late, and nodes whose machine has vanished. */
  lose(): void {
    for (const [node, known] of this.liveness.turned(this.now)) this.tellTurn(node, known);
    for (const [node, { inc, lateFrom }] of this.liveness.overloaded(this.now)) {
      const fields = { node, name: this.nameOf(node), inc, forMs: Math.round(this.now - lateFrom) };
      this.ledger.now({ kind: 'event', name: 'node.overloaded', fields });
    }
    this.giveUp(...this.vanished(), ...this.liveness.late(this.now));
  }

  /** `links`: all links to nodes on which nothing was acknowledged for a while. */
  silent(links: readonly Silence[]): void {
    const { vanishedMs } = this.policy;
    const isQuiet = ({ node, inc }: Silence): boolean => {
      const known = this.liveness.of(node, inc);
      return known?.dead === false && this.now - lastHeard(known) >= vanishedMs / 4;
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
    const present = nodesById(this.facts.present);
    const witnesses = (node: PeerId) =>
      neighbours(node, this.facts.heldBy(node)).filter((id) => present.has(id));
    for (const [to, message] of this.vanishing.ask(this.now, witnesses)) this.ledger.tell(to, message);
    const gone = this.vanishing.gone(this.now);
    const silent = this.vanishing.all;
    if (gone.some((node) => this.facts.isIndispensable(node, silent))) return [];
    for (const node of gone) this.ledger.now({ kind: 'abandon', node, inc: this.liveness.newest(node)!.inc });
    return gone.map((node) => [node, 'vanished']);
  }

  private tellTurn(node: PeerId, known: NodeLiveness): void {
    const { inc, stopped } = known;
    const fields = { node, name: this.nameOf(node), inc };
    const silentMs = Math.round(this.now - lastTurn(known));
    if (stopped) this.ledger.now({ kind: 'event', name: 'node.stopped', fields: { ...fields, silentMs } });
    else this.ledger.now({ kind: 'event', name: 'node.turning', fields });
  }

  private nameOf(node: PeerId): string | undefined {
    return this.map.nodes.find((entry) => entry.id === node)?.name;
  }

  /**
   * Nodes that are lost together are lost in one decision. Otherwise the repair of the first would count on
   * the second.
   */
  private giveUp(...late: [node: PeerId, reason: string][]): void {
    for (const fields of late.flatMap(([node, reason]) => this.giveUpOne(node, reason)))
      this.placing.reconfigure('lost', fields);
  }

  private giveUpOne(node: PeerId, reason: string): Record<string, unknown>[] {
    const known = this.liveness.newest(node);
    if (!known || known.dead) return [];
    const name = this.nameOf(node);
    const silentMs = Math.round(this.now - lastTurn(known));
    const lost = { node, name, inc: known.inc, reason, silentMs };
    if (reason !== 'refused' && this.facts.isIndispensable(node, [])) {
      if (!known.suspected) this.ledger.now({ kind: 'event', name: 'node.suspected', fields: lost });
      known.suspected = true;
      return [];
    }
    this.facts.changed();
    this.liveness.mark(known, { dead: true });
    if (!this.wasToldLost(known, node)) this.ledger.now({ kind: 'event', name: 'node.lost', fields: lost });
    return [{ node, name, inc: known.inc }];
  }

  /**
   * The events say that an earlier scheduler gave the node up: nothing was heard of the node since, and other
   * nodes have its shards.
   */
  private wasToldLost({ inc, connected, heardAt, closedAt }: NodeLiveness, node: PeerId): boolean {
    if (connected || closedAt !== heardAt || this.facts.holders.has(node)) return false;
    for (const { kind, fields } of this.ledger.state.events.values())
      if (kind === 'node.lost' && fields.node === node && fields.inc === inc) return true;
    return false;
  }

  private probe({ id: node, inc, address }: NodeEntry): void {
    this.ledger.now({ kind: 'probe', node, inc, address });
  }

  /** Nodes that are given up and hold nothing are remembered up to a limit. */
  private forgetAbsent(): void {
    const { holders, leaving } = this.facts;
    const isAbsent = (id: PeerId): boolean =>
      this.liveness.newest(id)?.dead !== false && !holders.has(id) && !leaving.has(id);
    for (const node of this.names.forgetAbsent(isAbsent)) this.facts.forget(node);
  }
}
