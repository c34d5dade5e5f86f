/**
 * The durable list of changes of the set of serving nodes, and the number of PS that are wanted when none
 * runs.
 */
import type { PeerId } from '../../../protocol/map.js';
import { SCALING_KEY } from '../entries.js';
import type { Ledger } from '../ledger.js';
import type { Change, Scaling } from '../state.js';

/** The number of ended changes that are kept for status. */
const KEEP = 16;

export class Changes {
  constructor(private readonly ledger: Ledger) {}

  private get scaling(): Scaling {
    const { scaling, nodesWanted } = this.ledger.state;
    return scaling ?? { wanted: nodesWanted, nextChange: 1, changes: [] };
  }

  get all(): readonly Change[] {
    return this.scaling.changes;
  }

  get running(): readonly Change[] {
    return this.scaling.changes.filter((change) => change.state === 'running');
  }

  /** Nodes that running changes empty. A newer process of the same node is not emptied. */
  get leaving(): ReadonlySet<PeerId> {
    const { nodes } = this.ledger.map;
    const leaving = new Set<PeerId>();
    for (const change of this.running) {
      for (const { node, inc } of change.leaving)
        if (nodes.some((entry) => entry.id === node && entry.inc === inc)) leaving.add(node);
    }
    return leaving;
  }

  get wanted(): number {
    return this.scaling.wanted;
  }

  begin(fields: Pick<Change, 'kind' | 'to' | 'timeoutMs' | 'leaving' | 'restart'>): number {
    const { scaling } = this;
    const change: Change = {
      ...fields,
      id: scaling.nextChange,
      from: scaling.wanted,
      state: 'running',
      reason: '',
      released: false,
      shardsMoved: 0,
      bytesMoved: 0,
    };
    const over = scaling.changes.filter((other) => other.state !== 'running');
    const forgotten = new Set(over.slice(0, Math.max(0, over.length - KEEP)));
    const changes = [...scaling.changes.filter((other) => !forgotten.has(other)), change];
    this.write({ ...scaling, nextChange: change.id + 1, changes });
    this.tell('change.begun', change);
    return change.id;
  }

  update(id: number, fields: Partial<Change>): void {
    const { scaling } = this;
    const changes = scaling.changes.map((change) => (change.id === id ? { ...change, ...fields } : change));
    this.write({ ...scaling, changes });
  }

  finish(id: number, wanted: number): void {
    this.update(id, { state: 'done' });
    this.write({ ...this.scaling, wanted });
    this.tell(
      'change.done',
      this.all.find((change) => change.id === id),
    );
  }

  cancel(id: number, reason: string): void {
    this.update(id, { state: 'cancelled', reason });
    this.tell(
      'change.cancelled',
      this.all.find((change) => change.id === id),
    );
  }

  private write(scaling: Scaling): void {
    this.ledger.state.scaling = scaling;
    this.ledger.touch(SCALING_KEY);
  }

  private tell(name: string, change: Change | undefined): void {
    if (!change) return;
    const { id, kind, from, to, reason, shardsMoved, bytesMoved } = change;
    this.ledger.afterwards({
      kind: 'event',
      name,
      fields: { change: id, kind, from, to, reason, shardsMoved, bytesMoved },
    });
  }
}
