/**
 * Which processes of nodes are alive. All of it is soft state: it comes back with connections and heartbeats
 * (rule 29).
 */
import type { NodeEntry, PeerId } from '../../protocol/map.js';
import type { SchedulerPolicy } from '../shared/policy.js';

/** What is known of a node's newest process. */
export interface NodeLiveness {
  inc: number;
  /** Changed by `Liveness.mark` only, likewise `dead`. */
  readonly connected: boolean;
  readonly dead: boolean;
  /** It was silent for too long, and was not given up because a group cannot do without it (rule 30). */
  suspected: boolean;
  heardAt: number;
  closedAt: number;
}

export class Liveness {
  private readonly nodes = new Map<PeerId, NodeLiveness>();
  /** Those of a list that are present; undefined when that may have changed. */
  private listed: { nodes: readonly NodeEntry[]; present: readonly NodeEntry[] } | undefined;

  constructor(private readonly policy: Pick<SchedulerPolicy, 'reconnectMs' | 'silentMs'>) {}

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

  /** Of a node that `of` or `newest` gave. */
  mark(node: NodeLiveness, is: Partial<Pick<NodeLiveness, 'connected' | 'dead'>>): void {
    Object.assign(node, is);
    this.listed = undefined;
  }

  /** What is known of this process; undefined when a newer one has its name, or it was forgotten. */
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

  /** Those that are present. Lists are replaced, never changed, and so is what this returns. */
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

  slept(ms: number): void {
    if (ms === 0) return;
    for (const node of this.nodes.values()) {
      node.heardAt += ms;
      node.closedAt += ms;
    }
  }

  /**
   * A scheduler that hears no node is cut off itself, and no node is there to take anything over. So such
   * time, beyond the time that a node has to reconnect, does not count as silence of the nodes.
   */
  excuse(now: number): void {
    let heardAt = Number.NEGATIVE_INFINITY;
    for (const node of this.nodes.values()) if (!node.dead) heardAt = Math.max(heardAt, node.heardAt);
    if (heardAt > 0) this.slept(Math.max(0, now - this.policy.reconnectMs - heardAt));
  }

  /** Nodes that have said nothing in the time that one has to come back. */
  silent(now: number): PeerId[] {
    return [...this.nodes].flatMap(([id, { dead, heardAt }]) =>
      !dead && now - heardAt > this.policy.reconnectMs ? [id] : [],
    );
  }

  /** Processes that were not heard of for too long, with the reason. */
  late(now: number): [id: PeerId, reason: string][] {
    const late: [PeerId, string][] = [];
    for (const [id, node] of this.nodes) {
      if (node.dead) continue;
      const gone = !node.connected && now - node.closedAt > this.policy.reconnectMs;
      if (gone || now - node.heardAt > this.policy.silentMs)
        late.push([id, gone ? 'did not reconnect' : 'silent']);
    }
    return late;
  }
}

function newLiveness(inc: number, now: number): NodeLiveness {
  return { inc, connected: false, dead: false, suspected: false, heardAt: now, closedAt: now };
}
