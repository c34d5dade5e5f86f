import { expect, test } from 'vitest';
import { Throughput } from '../../../src/fleet/local/throughput.js';

test('samples between two reports grow evenly, and workers add up', () => {
  const throughput = new Throughput([
    { mono: 2000, worker: 'a', samples: 100 },
    { mono: 1000, worker: 'a', samples: 0 },
    { mono: 1000, worker: 'b', samples: 0 },
    { mono: 3000, worker: 'b', samples: 40 },
  ]);
  expect([500, 1000, 1500, 2000, 2500, 9000].map((at) => throughput.samplesAt(at))).toEqual([
    0, 0, 60, 120, 130, 140,
  ]);
  expect(throughput.rate(1000, 2000)).toBe(120);
  expect(throughput.rate(2000, 2000)).toBe(0);
  expect(throughput.windows(1000, 3500, 1000)).toEqual([120, 20]);
});
