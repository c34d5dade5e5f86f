/**
 * Which processes of nodes are alive. All of it is soft state: it comes back with connections, heartbeats and
 * pulses (rules 29, 44).
 */
import type { Life, PulseMessage } from '../../protocol/liveness.js';
import type { NodeEntry, PeerId } from '../../protocol/map.js';
import type { SchedulerPolicy } from '../shared/policy.js';

/** The newest process of a node, as far as this scheduler knows it. */
export interface NodeLiveness {
  inc: number;
  /** A connection of the process is open. Only `Liveness.mark` changes `connected` and `dead`. */
  readonly connected: boolean;
  /** The process was given up: other nodes get its places. */
  readonly dead: boolean;
  /** The process was silent for too long, and was kept because a group cannot do without it (rule 30). */
  suspected: boolean;
  /** An event has told that its event loop does not turn. */
  stopped: boolean;
  /** Milliseconds of its last heartbeat or join. */
  heardAt: number;
  /** Epoch of the map that it has, by its last heartbeat; -1: none came. */
  epoch: number;
  /** Milliseconds of its last pulse; minus infinity: none came. */
  pulsedAt: number;
  /** Milliseconds of the newest turn of its event loop that a pulse told of; minus infinity: none did. */
  turnedAt: number;
  /** The spell of late turns: from when to when they came. Minus infinity: there was none. */
  lateFrom: number;
  lateAt: number;
  /** An event has told of this spell. */
  overloaded: boolean;
  /** Milliseconds at which its connection closed, or at which it was found to listen still. */
  closedAt: number;
}

/** A longer turn of an event loop is late: it delays a heartbeat. */
const LATE_MS = 250;
/** A spell of late turns is over when none came for this time. */
const SPELL_MS = 2000;

export class Liveness {
  private readonly nodes = new Map<PeerId, NodeLiveness>();
  /** The nodes of a list that are present; undefined when that may have changed. */
  private listed: { nodes: readonly NodeEntry[]; present: readonly NodeEntry[] } | undefined;

  constructor(
    private readonly policy: Pick<SchedulerPolicy, 'reconnectMs' | 'silentMs' | 'stoppedMs' | 'overloadedMs'>,
  ) {}

  /**
   * After a restart of the scheduler, a node counts as alive and not connected until it is heard of or is
   * late.
   */
  expect({ id, inc }: NodeEntry): void {
    this.nodes.set(id, newLiveness(inc, 0));
    this.listed = undefined;
  }

  /** The process is connected (again). */
  joined(id: PeerId, inc: number, now: number): void {
    const previous = this.nodes.get(id);
    const node = previous?.inc === inc ? previous : newLiveness(inc, now);
    node.heardAt = now;
    this.nodes.set(id, node);
    this.mark(node, { connected: true, dead: false });
  }

  /** A pulse of the process. It says nothing of its connections. */
  pulsed({ node: id, inc, ageMs, gapMs }: PulseMessage, now: number): void {
    const node = this.of(id, inc);
    if (!node) return;
    node.pulsedAt = now;
    node.turnedAt = Math.max(node.turnedAt, now - ageMs);
    const turnMs = Math.max(ageMs, gapMs);
    if (turnMs <= LATE_MS) return;
    // A process that had stopped was not overloaded meanwhile.
    if (now - node.lateAt > SPELL_MS || turnMs > this.policy.silentMs) node.lateFrom = now;
    node.lateAt = now;
  }

  /** Changes what `of` or `newest` gave. */
  mark(node: NodeLiveness, is: Partial<Pick<NodeLiveness, 'connected' | 'dead'>>): void {
    Object.assign(node, is);
    this.listed = undefined;
  }

  /** The process; undefined when a newer one has its name, or it was forgotten. */
  of(id: PeerId, inc: number): NodeLiveness | undefined {
    const node = this.nodes.get(id);
    return node?.inc === inc ? node : undefined;
  }

  newest(id: PeerId): NodeLiveness | undefined {
    return this.nodes.get(id);
  }

  isAlive(id: PeerId, inc: number): boolean {
    return this.of(id, inc)?.dead === false;
  }

  /** True if the process is alive and connected, so that something new can be placed there. */
  isPresent({ id, inc }: NodeEntry): boolean {
    return this.isAlive(id, inc) && this.nodes.get(id)?.connected === true;
  }

  /** The nodes of a list that are present. Lists of nodes are replaced and never changed, also this one. */
  presentOf(nodes: readonly NodeEntry[]): readonly NodeEntry[] {
    if (this.listed?.nodes !== nodes)
      this.listed = { nodes, present: nodes.filter((node) => this.isPresent(node)) };
    return this.listed.present;
  }

  forget(id: PeerId): void {
    this.nodes.delete(id);
    this.listed = undefined;
  }

  /** Called at the first tick: silence counts from now on. */
  startAt(now: number): void {
    for (const node of this.nodes.values()) node.heardAt = node.closedAt = now;
  }

  /** Milliseconds that do not count as silence of anybody. */
  slept(ms: number): void {
    if (ms === 0) return;
    for (const node of this.nodes.values()) {
      node.heardAt += ms;
      node.closedAt += ms;
      node.pulsedAt += ms;
      node.turnedAt += ms;
    }
  }

  /**
   * A scheduler that hears no node is cut off itself, and no node is there to take anything over. So such
   * time, beyond the time that a node has to reconnect, does not count as silence of the nodes.
   */
  excuse(now: number): void {
    let heardAt = Number.NEGATIVE_INFINITY;
    for (const node of this.nodes.values()) if (!node.dead) heardAt = Math.max(heardAt, lastHeard(node));
    if (heardAt > 0) this.slept(Math.max(0, now - this.policy.reconnectMs - heardAt));
  }

  /** Nodes of whose event loops nothing is known in the time that one has to come back. */
  silent(now: number): PeerId[] {
    return [...this.nodes].flatMap(([id, node]) =>
      !node.dead && now - lastTurn(node) > this.policy.reconnectMs ? [id] : [],
    );
  }

  /** Processes that were not heard of for too long, or do not turn for too long, with the reason. */
  late(now: number): [id: PeerId, reason: string][] {
    return [...this.nodes].flatMap(([id, node]): [PeerId, string][] => {
      const reason = node.dead ? undefined : this.reasonToLose(node, now);
      return reason === undefined ? [] : [[id, reason]];
    });
  }

  private reasonToLose(node: NodeLiveness, now: number): string | undefined {
    const { reconnectMs, silentMs, stoppedMs } = this.policy;
    const heardOf = Math.max(node.closedAt, node.pulsedAt);
    if (!node.connected && now - heardOf > reconnectMs) return 'did not reconnect';
    if (now - lastHeard(node) > silentMs) return 'silent';
    return node.pulsedAt - lastTurn(node) > Math.max(silentMs, stoppedMs) ? 'stopped' : undefined;
  }

  /** Living processes that have stopped to turn, or turn again, since this was last called. */
  turned(now: number): [id: PeerId, node: NodeLiveness][] {
    return [...this.nodes].filter(([id, node]) => {
      const life = this.lifeOf(id, now);
      if (life === 'gone' || (life === 'stopped') === node.stopped) return false;
      node.stopped = life === 'stopped';
      return true;
    });
  }

  /** True while the event loop of the newest process turns, but late. */
  isBusy(id: PeerId, now: number): boolean {
    const node = this.nodes.get(id);
    return node !== undefined && now - node.lateAt <= SPELL_MS && this.lifeOf(id, now) === 'turning';
  }

  /** True while it is busy, and has been for `overloadedMs`. */
  isOverloaded(id: PeerId, now: number): boolean {
    if (!this.isBusy(id, now)) return false;
    const { lateAt, lateFrom } = this.nodes.get(id)!;
    return lateAt - lateFrom >= this.policy.overloadedMs;
  }

  /** Nodes that are overloaded, and were not when this was last called. */
  overloaded(now: number): [id: PeerId, node: NodeLiveness][] {
    return [...this.nodes].filter(([id, node]) => {
      const before = node.overloaded;
      node.overloaded = this.isOverloaded(id, now);
      return node.overloaded && !before;
    });
  }

  /** The word for the newest process of a node (rule 44), but for what links say of its machine. */
  lifeOf(id: PeerId, now: number): Life {
    const node = this.nodes.get(id);
    const { silentMs } = this.policy;
    if (!node || node.dead || now - lastHeard(node) > silentMs) return 'gone';
    return node.pulsedAt - lastTurn(node) > silentMs ? 'stopped' : 'turning';
  }
}

/** Milliseconds at which the process was last heard: its event loop, or its thread for pulses. */
export function lastHeard({ heardAt, pulsedAt }: NodeLiveness): number {
  return Math.max(heardAt, pulsedAt);
}

/** Milliseconds of the last turn of its event loop that is known. */
export function lastTurn({ heardAt, turnedAt }: NodeLiveness): number {
  return Math.max(heardAt, turnedAt);
}

function newLiveness(inc: number, now: number): NodeLiveness {
  const never = Number.NEGATIVE_INFINITY;
  return {
    ...{ inc, connected: false, dead: false, suspected: false, stopped: false },
    ...{ heardAt: now, epoch: -1, closedAt: now, pulsedAt: never, turnedAt: never },
    ...{ lateFrom: never, lateAt: never, overloaded: false },
  };
}
