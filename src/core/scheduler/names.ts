/**
 * Identities of nodes, by name and durable (rule 1): a new process of a name gets a new incarnation, one that
 * reconnects keeps its own unless a newer one exists. Nodes that are absent and hold nothing are forgotten
 * when there are too many of them.
 */
import type { PeerId } from '../../protocol/map.js';
import type { MessageOf } from '../../protocol/messages.js';
import type { SchedulerPolicy } from '../shared/policy.js';
import { nameKey } from './entries.js';
import type { Ledger } from './ledger.js';

export type Identity = { id: PeerId; inc: number };

export class Names {
  constructor(
    private readonly ledger: Ledger,
    private readonly policy: Pick<SchedulerPolicy, 'maxAbsentNodes'>,
  ) {}

  private get names() {
    return this.ledger.state.names;
  }

  /**
   * Identity of a process that joins. `stale`: the one that it claims is over, or belongs to another job.
   * `left`: this process was told to leave before.
   */
  identify(join: MessageOf<'join'>): Identity | 'stale' | 'left' {
    const known = this.names[join.name];
    const { state } = this.ledger;
    if (join.id !== undefined && join.inc !== undefined) {
      const foreign = join.job !== undefined && join.job !== state.map.job;
      if (known?.id !== join.id || known.inc !== join.inc || foreign) return 'stale';
      return known.left ? 'left' : { id: known.id, inc: known.inc };
    }
    const identity = { id: known?.id ?? state.nextPeer++, inc: (known?.inc ?? 0) + 1 };
    this.names[join.name] = identity;
    this.ledger.touch(nameKey(join.name));
    return { ...identity };
  }

  /** The process leaves. False: it has left before, or a newer process has its name. */
  leave(name: string, inc: number, restart = false): boolean {
    const known = this.names[name];
    if (known?.inc !== inc || known.left) return false;
    this.names[name] = { ...known, left: true, ...(restart && { restart }) };
    this.ledger.touch(nameKey(name));
    return true;
  }

  /** The goodbye that a process that has left is told as often as it is heard; undefined: it has not left. */
  goodbye(id: PeerId, inc: number): MessageOf<'leave'> | undefined {
    const known = Object.values(this.names).find((name) => name.id === id);
    if (!known?.left || known.inc !== inc) return undefined;
    return { t: 'leave', inc, ...(known.restart && { restart: true }) };
  }

  /**
   * Forgets the absent nodes with the lowest ids, so that `maxAbsentNodes` are left. Their ids are never
   * given again; a process that comes back with one is told that it is stale.
   */
  forgetAbsent(isAbsent: (id: PeerId, inc: number) => boolean): PeerId[] {
    const { maxAbsentNodes } = this.policy;
    const all = Object.entries(this.names);
    if (all.length <= maxAbsentNodes) return [];
    const absent = all.filter(([, { id, inc, left }]) => left === true || isAbsent(id, inc));
    const surplus = absent.sort(([, a], [, b]) => a.id - b.id).slice(0, absent.length - maxAbsentNodes);
    if (absent.length <= maxAbsentNodes) return [];
    for (const [name] of surplus) {
      delete this.names[name];
      this.ledger.touch(nameKey(name));
    }
    const gone = new Set(surplus.map(([, { id }]) => id));
    const nodes = this.ledger.map.nodes.filter(({ id }) => !gone.has(id));
    if (nodes.length < this.ledger.map.nodes.length)
      this.ledger.setMap({ nodes }, 'forgotten', { nodes: [...gone] });
    return [...gone];
  }
}
