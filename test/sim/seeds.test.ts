/**
 * Schedules that have shown a bug. A seed draws another story when the drawing changes; then what it showed
 * is left to the mutant of the same bug and to the seeds of the day.
 */
import { describe, expect, it } from 'vitest';
import { loadNative } from '../../src/engine/native.js';
import type { SimConfig } from '../../src/sim/config.js';
import { World } from '../../src/sim/world.js';

const native = loadNative();

/** As `--pin` gives them. */
const LOSSES_AND_DROPS = { profile: 'losses', extra: 'a7 r3 a5', deletions: false } as Partial<SimConfig>;

describe('a schedule that has shown a bug', () => {
  it.each<[number, string, Partial<SimConfig>?]>([
    [61_000_530, 'sinks of a shard beyond repair took the room of other sinks to ask the same node'],
    [62_002_139, 'the same, in another place'],
    [78_001_474, 'the same, until the schedule changed'],
    [9_000_331, 'a set that was repeated came after a newer one'],
    [9_000_550, 'a set was answered before an owner in FENCE had it'],
    [2_510_008_233, 'nodes asked faster and faster for what is beyond repair'],
    [33_000_745, 'a push of an earlier process came after a rate was set'],
    [34_000_167, 'small turns had no room for answers in slices, and clients asked again'],
    [34_002_066, 'a push of an earlier process came between two slices of an answer'],
    [
      51_000_262,
      'an owner that asked anew after a drop passed for one that asks too often',
      LOSSES_AND_DROPS,
    ],
    [3_564, 'a swap that was given up left a parity beside a shard of its group'],
    [3_000_012_459, 'an answer passed for one that lacks evictions, which were durable later in its turn'],
    [3_100_002_553, 'a parity of which a new scheduler had not heard yet passed for one that is complete'],
    [3_700_003_676, 'late answers had blocks asked for, and the background asked for them again'],
    [3_315_011_951, 'acknowledgements of before a load from a checkpoint passed for later ones'],
    [3_307_005_909, 'a schedule asked for more tables than its limit'],
    [
      3_816_011_194,
      'pushes that an owner applied for nothing, after it was cut off, passed for durable ones',
    ],
    [3_820_006_392, 'the loss of a node passed for a stalled sink that is given up unasked'],
    [3_810_000_305, 'the same, of a node that is silent'],
    [3_310_010_618, 'a mirror that was given up passed for the loss of the parity beside it'],
    [3_314_002_091, 'questions that a slow link held kept back the content that their answers need'],
    [3_317_012_998, 'the same, of a full parity'],
    [3_803_006_009, 'the same, without another fault'],
    [3_805_005_050, 'the same, in another place'],
    [3_816_010_703, 'the same, with one member lacking'],
    [3_821_012_047, 'the same, in the end of a schedule'],
    [3_403_013_791, 'shards beyond repair held up the parities of other groups on their node'],
    [3_916_009_906, 'cuts that failed one after the other left workers no time between them'],
    [770_293, 'a lost shard came beside a parity that had just arrived, to free a node out of reach'],
  ])('%i: %s', (seed, _, pinned = {}) => {
    const { result, message } = new World(seed, pinned, native).run();
    expect({ result, message }).not.toMatchObject({ result: 'violation' });
  });
});
