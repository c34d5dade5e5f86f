/** Schedules draw these from randomness of its own, so that others are the same with and without it. */
import type { SimConfig } from './config.js';
import { Random } from './random.js';

/**
 * Draws the zones of a schedule, from randomness of its own, so that other schedules are the same with and
 * without zones.
 */
export function zonesOf(seed: number): Pick<SimConfig, 'zones'> {
  const random = new Random(seed + 0x20e5);
  return { zones: random.chance(0.25) ? 1 + random.below(3) : 0 };
}

/** Draws the slow connections of a schedule, from randomness of its own. */
export function slowOf(seed: number): Pick<SimConfig, 'slow'> {
  const random = new Random(seed + 0x510e);
  return { slow: random.chance(0.5) ? 1 + random.below(1 << 30) : 0 };
}

/** Draws the small limits for answers and the slow readers of a schedule, from randomness of its own. */
export function answersOf(seed: number): Pick<SimConfig, 'answers'> {
  const random = new Random(seed + 0xa25e);
  return { answers: random.chance(0.3) ? 1 + random.below(1 << 30) : 0 };
}

/** Draws the small turns of a schedule, from randomness of its own. */
export function turnsOf(seed: number): Pick<SimConfig, 'turns'> {
  const random = new Random(seed + 0x70e5);
  return { turns: random.chance(0.3) ? 1 + random.below(1 << 30) : 0 };
}

/** Draws the busy nodes of a schedule, from randomness of its own. */
export function busyOf(seed: number): Pick<SimConfig, 'busy'> {
  const random = new Random(seed + 0xb05e);
  return { busy: random.chance(0.5) ? 1 + random.below(1 << 30) : 0 };
}

/** Draws the seed of the setters of a schedule; 0: it has none. */
export function settingsOf(seed: number): { settings: number } {
  const random = new Random(seed + 0x5e7e);
  return { settings: random.chance(0.3) ? 1 + random.below(1 << 30) : 0 };
}

/** Draws the seed of the droppers of a schedule; 0: it has none. */
export function dropsOf(seed: number): { drops: number } {
  const random = new Random(seed + 0xd709);
  return { drops: random.chance(0.3) ? 1 + random.below(1 << 30) : 0 };
}

/** Draws the seed of the readers of evictions of a schedule; 0: it has none. */
export function evictionsOf(seed: number): { evictions: number } {
  const random = new Random(seed + 0xe71c);
  return { evictions: random.chance(0.3) ? 1 + random.below(1 << 30) : 0 };
}

/** Draws whether pushes of a schedule delete rows, from randomness of its own. */
export function deletionsOf(seed: number): Pick<SimConfig, 'deletions'> {
  return { deletions: new Random(seed + 0xde1e).chance(0.3) };
}

/** Draws whether rows of a table go by themselves, from randomness of its own. */
export function expiryOf(seed: number): Pick<SimConfig, 'expiry'> {
  return { expiry: new Random(seed + 0xe8b1).chance(0.3) };
}

/** Draws whether keys of tables wait for their row, from randomness of its own. */
export function filtersOf(seed: number): Pick<SimConfig, 'filters'> {
  return { filters: new Random(seed + 0xb100).chance(0.3) };
}

/** Draws whether rows of a table make room for others, from randomness of its own. */
export function crowdsOf(seed: number): Pick<SimConfig, 'crowds'> {
  return { crowds: new Random(seed + 0xc20d).chance(0.3) };
}

/** Draws whether rows of a table make room by their scores, from randomness of its own. */
export function scoresOf(seed: number): Pick<SimConfig, 'scores'> {
  return { scores: new Random(seed + 0x5c0e).chance(0.3) };
}
