/** Open ranges by their holders, so that a lease costs the same however many ranges are open. */
import type { PeerId } from '../../../protocol/map.js';
import type { OpenRange } from './state.js';

export class Holders {
  /** Worker -> numbers of its ranges; never an empty set. Worker 0 has those of nobody. */
  private readonly held = new Map<PeerId, Set<number>>();

  constructor(private readonly open: ReadonlyMap<number, OpenRange>) {
    for (const range of open.values()) this.give(range, range.worker);
  }

  /** The worker's ranges by number; those of nobody: 0. */
  of(worker: PeerId): OpenRange[] {
    const numbers = [...(this.held.get(worker) ?? [])].sort((a, b) => a - b);
    return numbers.map((number) => this.open.get(number)!);
  }

  has(worker: PeerId): boolean {
    return this.held.has(worker);
  }

  give(range: OpenRange, worker: PeerId): void {
    this.drop(range);
    range.worker = worker;
    if (!this.held.has(worker)) this.held.set(worker, new Set());
    this.held.get(worker)!.add(range.number);
  }

  /** The range is not open any more. */
  drop({ worker, number }: OpenRange): void {
    const numbers = this.held.get(worker);
    numbers?.delete(number);
    if (numbers?.size === 0) this.held.delete(worker);
  }
}
