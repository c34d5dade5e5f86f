/**
 * Schedules have these beside what they had at first. Each is drawn from randomness of its own, so that all
 * others are the same with and without it.
 */
import type { SimConfig } from './config.js';
import { Random } from './random.js';

/** A seed, with this chance; else 0. */
function seedOf(from: number, chance: number): number {
  const random = new Random(from);
  return random.chance(chance) ? 1 + random.below(1 << 30) : 0;
}

/** Draws the zones of a schedule; 0: it has none. */
export function zonesOf(seed: number): Pick<SimConfig, 'zones'> {
  const random = new Random(seed + 0x20e5);
  return { zones: random.chance(0.25) ? 1 + random.below(3) : 0 };
}

/** Draws the slow connections of a schedule; 0: it has none. */
export function slowOf(seed: number): Pick<SimConfig, 'slow'> {
  return { slow: seedOf(seed + 0x510e, 0.5) };
}

/** Draws the small limits for answers and the slow readers of a schedule; 0: it has none. */
export function answersOf(seed: number): Pick<SimConfig, 'answers'> {
  return { answers: seedOf(seed + 0xa25e, 0.3) };
}

/** Draws the small turns of a schedule; 0: it has none. */
export function turnsOf(seed: number): Pick<SimConfig, 'turns'> {
  return { turns: seedOf(seed + 0x70e5, 0.3) };
}

/** Draws the busy nodes of a schedule; 0: it has none. */
export function busyOf(seed: number): Pick<SimConfig, 'busy'> {
  return { busy: seedOf(seed + 0xb05e, 0.5) };
}

/** Draws the seed of the setters of a schedule; 0: it has none. */
export function settingsOf(seed: number): { settings: number } {
  return { settings: seedOf(seed + 0x5e7e, 0.3) };
}

/** Draws the seed of the droppers of a schedule; 0: it has none. */
export function dropsOf(seed: number): { drops: number } {
  return { drops: seedOf(seed + 0xd709, 0.3) };
}

/** Draws the seed of the readers of evictions of a schedule; 0: it has none. */
export function evictionsOf(seed: number): { evictions: number } {
  return { evictions: seedOf(seed + 0xe71c, 0.3) };
}

/** Draws whether pushes of a schedule delete rows. */
export function deletionsOf(seed: number): Pick<SimConfig, 'deletions'> {
  return { deletions: new Random(seed + 0xde1e).chance(0.3) };
}

/** Draws whether rows of a table go by themselves. */
export function expiryOf(seed: number): Pick<SimConfig, 'expiry'> {
  return { expiry: new Random(seed + 0xe8b1).chance(0.3) };
}

/** Draws whether keys of tables wait for their row. */
export function filtersOf(seed: number): Pick<SimConfig, 'filters'> {
  return { filters: new Random(seed + 0xb100).chance(0.3) };
}

/** Draws whether rows of a table make room for others. */
export function crowdsOf(seed: number): Pick<SimConfig, 'crowds'> {
  return { crowds: new Random(seed + 0xc20d).chance(0.3) };
}

/** Draws whether rows of a table make room by their scores. */
export function scoresOf(seed: number): Pick<SimConfig, 'scores'> {
  return { scores: new Random(seed + 0x5c0e).chance(0.3) };
}

/** Draws whether rows of a table go by the seconds of the job. */
export function secondsOf(seed: number): Pick<SimConfig, 'seconds'> {
  return { seconds: new Random(seed + 0x5ec5).chance(0.3) };
}
