/** Rates from loads that were made of known rates. */
import { expect, it } from 'vitest';
import { DIM, type FittedLoad, ratesFrom, SIZES } from '../../../src/fleet/planner/fit.js';

const SECTIONS = 20;
const TRUE = {
  ...{ pullRow: 0.25e-6, pushRow: 0.25e-6, rowFixed: 0.4, section: 20e-6 },
  ...{ parityRow: 0.5e-6, parityFixed: 0.2, deltaMessage: 10e-6 },
  ...{ clientRow: 0.6e-6, clientFixed: 0.7, clientSection: 15e-6 },
};

const grows = (fixed: number, ratio: number): number => fixed + (1 - fixed) * ratio;

function load(rows: number, dim: number, r: number): FittedLoad {
  const steps = 1000;
  const row = (TRUE.pullRow + TRUE.pushRow) * grows(TRUE.rowFixed, dim / DIM);
  const delta = TRUE.parityRow * grows(TRUE.parityFixed, (dim * 8 + 4) / 516);
  const client = TRUE.clientRow * grows(TRUE.clientFixed, dim / DIM);
  return {
    ...{ rows, dim, r, steps, sections: SECTIONS },
    psSeconds: steps * (rows * (row + r * delta) + SECTIONS * (2 * TRUE.section + r * TRUE.deltaMessage)),
    clientSeconds: steps * (rows * client + 2 * SECTIONS * TRUE.clientSection),
  };
}

const LOADS = [0, 1].flatMap((r) => SIZES.map(({ rows, dim }) => load(rows, dim, r)));

it('finds the rates that loads were made of', () => {
  const found = ratesFrom(LOADS);
  expect(Object.keys(found).sort()).toEqual(Object.keys(TRUE).sort());
  for (const [name, value] of Object.entries(TRUE))
    expect(found[name as keyof typeof TRUE]! / value, name).toBeCloseTo(1, 6);
});

it('is above zero whatever the noise, and shares are at most 1', () => {
  for (const parts of [
    [3, 0.1],
    [0.1, 3],
    [1, 0],
  ]) {
    const noisy = LOADS.map((one, i) => ({ ...one, psSeconds: one.psSeconds * parts[i % 2]! }));
    const found = ratesFrom(noisy);
    for (const value of Object.values(found)) expect(value).toBeGreaterThan(0);
    for (const share of [found.rowFixed, found.parityFixed, found.clientFixed])
      expect(share).toBeLessThanOrEqual(1);
  }
});

it('names a load that is missing', () => {
  expect(() => ratesFrom(LOADS.slice(1))).toThrow(/no load of steps of 4096 rows of dim 64/);
  expect(() => ratesFrom(LOADS.slice(0, -1))).toThrow(/no load of coded steps of 4096 rows of dim 8/);
});
