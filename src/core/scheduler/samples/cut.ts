/**
 * The queue of samples in a checkpoint: as it was at one moment, with all ranges that were handed out until
 * the last shard was saved. Shards are saved later than that moment, each at its own. So all saved shards
 * hold every batch that was durable at that moment, and each may hold some later batches. A restored job
 * trains the ranges of this list again, under their sessions. Each shard refuses what it holds, so every
 * batch is applied once.
 */
import type { SavedDataset, SavedRange, SavedSamples } from '../../../protocol/checkpoints.js';
import type { DurableState } from '../state.js';
import type { DatasetState, OpenRange } from './state.js';

/** The range is nobody's: its worker is not there after a restore. */
function savedRange(range: OpenRange): SavedRange {
  const { piece, ...rest } = range;
  return { ...rest, ...(piece && { piece: { ...piece } }), worker: 0, lease: 0 };
}

/** The state of a data set that was registered after the cut: no range was handed out before. */
function nothingOf({ name, spec }: DatasetState): SavedDataset {
  const samples = new Array<number>(spec.epochs).fill(0);
  return { name, spec, next: 0, open: [], finished: 0, samples, redone: 0, setAside: [] };
}

export class Cut {
  private readonly before: SavedDataset[];
  /** By data set: ranges that were handed out since. */
  private readonly since = new Map<number, SavedRange[]>();

  constructor(datasets: readonly DatasetState[]) {
    this.before = datasets.map((state) => {
      const { name, spec, next, open, finished, samples, redone, setAside } = state;
      return {
        ...{ name, spec, next, open: [...open.values()].map(savedRange), finished, redone },
        ...{ samples: [...samples], setAside: [...setAside] },
      };
    });
  }

  /** Nobody has had this range before. */
  handedOut(dataset: number, range: OpenRange): void {
    const given = this.since.get(dataset) ?? [];
    this.since.set(dataset, given);
    given.push(savedRange(range));
  }

  /** All shards are saved: what a restored job resumes. */
  result({ datasets, nextPeer }: DurableState): SavedSamples {
    const saved = datasets.map((state, index): SavedDataset => {
      const { next, growth } = state;
      const before = this.before[index] ?? nothingOf(state);
      const open = [...before.open, ...(this.since.get(index) ?? [])];
      return { ...before, next, open, ...(growth && { growth: growth.map((file) => ({ ...file })) }) };
    });
    const sessions = saved.flatMap(({ open }) => open.map(({ session }) => session));
    return { nextPeer, datasets: saved, sessions: sessions.sort((a, b) => a - b) };
  }
}
