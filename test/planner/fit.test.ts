/** Rates from loads that were made of known rates. */
import { expect, it } from 'vitest';
import { DIM, FEW_ROWS, type Load, MANY_ROWS, NARROW_DIM, ratesFrom } from '../../src/planner/fit.js';

const SECTIONS = 20;
const TRUE = {
  ...{ pullRow: 0.2e-6, pushRow: 0.3e-6, parityRow: 0.5e-6, section: 20e-6, deltaMessage: 10e-6 },
  ...{ rowFixed: 0.4, clientRow: 0.6e-6, clientSection: 15e-6 },
};

function load(op: Load['op'], rows: number, dim: number, r = 0): Load {
  const grows = TRUE.rowFixed + ((1 - TRUE.rowFixed) * dim) / DIM;
  const row = (op === 'pull' ? TRUE.pullRow : TRUE.pushRow) + r * TRUE.parityRow;
  const requests = 1000;
  const section = TRUE.section + r * TRUE.deltaMessage;
  return {
    ...{ op, rows, dim, r, requests, sections: SECTIONS },
    psSeconds: requests * (rows * row * grows + SECTIONS * section),
    clientSeconds: requests * ((rows * TRUE.clientRow) / 2 + SECTIONS * TRUE.clientSection),
  };
}

const LOADS = [
  ...[MANY_ROWS, FEW_ROWS].flatMap((rows) => [load('pull', rows, DIM), load('push', rows, DIM)]),
  ...[load('pull', MANY_ROWS, NARROW_DIM), load('push', MANY_ROWS, NARROW_DIM)],
  ...[MANY_ROWS, FEW_ROWS].map((rows) => load('push', rows, DIM, 1)),
];

it('finds the rates that loads were made of', () => {
  const found = ratesFrom(LOADS);
  for (const [name, value] of Object.entries(TRUE))
    expect(found[name as keyof typeof TRUE]! / value, name).toBeCloseTo(1, 6);
});

it('is above zero whatever the noise', () => {
  const noisy = LOADS.map((one, i) => ({ ...one, psSeconds: one.psSeconds * (i % 2 ? 3 : 0.1) }));
  for (const value of Object.values(ratesFrom(noisy))) expect(value).toBeGreaterThan(0);
  expect(ratesFrom(noisy).rowFixed).toBeLessThanOrEqual(1);
});

it('names a load that is missing', () => {
  expect(() => ratesFrom(LOADS.slice(1))).toThrow(/no load of pull, 4096 rows/);
});
