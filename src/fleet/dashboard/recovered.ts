/**
 * The recovery that ended last. Its end is an event of the scheduler, so a takeover and a recovery that was
 * resumed change nothing. How many blocks it decoded is in the reports of the shards' owners, which go on
 * when the shards move away, so this is remembered by recovery.
 */
import type { JobEvent } from '../../protocol/events.js';
import type { SeenJob } from './cells.js';
import type { LastRecoveryView } from './view.js';

/** Blocks that the complete shards of a recovery have decoded. */
interface Decoded {
  shards: number;
  blocks: number;
  onDemand: number;
}

/** Recoveries whose blocks are remembered, the newest ones. */
const KEPT = 64;

export class Recovered {
  /** By the number of the recovery. */
  private readonly decoded = new Map<number, Decoded>();
  private job = '';

  /** Must be called with each new status, before {@link last}. */
  look({ map, status }: SeenJob): void {
    if (status.job !== this.job) this.decoded.clear();
    this.job = status.job;
    const seen = new Map<number, Decoded>();
    for (const { g, m, gen, keysReady, blocksLost, blocksPresent, blocksOnDemand } of status.recoveries) {
      const isComplete = keysReady && blocksPresent >= blocksLost;
      if (!isComplete || map.groups[g]?.data[m]?.gen !== gen) continue;
      // The generation of a recovered shard is the number of its recovery: the epoch of the decision.
      const all = seen.get(gen) ?? { shards: 0, blocks: 0, onDemand: 0 };
      all.shards++;
      all.blocks += blocksLost;
      all.onDemand += blocksOnDemand;
      seen.set(gen, all);
    }
    for (const [number, now] of seen) {
      const before = this.decoded.get(number);
      if (!before || now.shards >= before.shards) this.decoded.set(number, now);
    }
    const oldest = [...this.decoded.keys()].sort((a, b) => b - a).slice(KEPT);
    for (const number of oldest) this.decoded.delete(number);
  }

  /** `ended`: the newest event `recovery.complete`. */
  last({ at, fields }: JobEvent): LastRecoveryView {
    const [number, shards, tookMs] = [fields.recovery, fields.shards, fields.tookMs].map(Number) as [
      number,
      number,
      number,
    ];
    const decoded = this.decoded.get(number);
    // Shards that have moved on before the first look report nothing: then the number of blocks is unknown.
    const isKnown = decoded !== undefined && decoded.shards >= shards;
    return {
      ...{ recovery: number, at, shards, tookMs },
      ...(isKnown && { blocks: decoded.blocks, onDemand: decoded.onDemand }),
    };
  }
}
