/** The scaling benchmark at the size of a smoke, and its pure parts. */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { measureScaling, type ScalingRunProgress, windowsOf } from '../../bench/scaling/measure.js';
import { SCALING_OPTIONS } from '../../bench/scaling/options.js';
import { scalingHtml } from '../../bench/scaling/picture.js';
import { kintsugi } from '../cli/support.js';

let directory = '';
beforeAll(() => {
  directory = mkdtempSync(join(tmpdir(), 'kintsugi-scaling-test-'));
});
afterAll(() => rmSync(directory, { recursive: true, force: true }));

it('a smoke grows and shrinks, loses nothing and draws it', async () => {
  const [json, html] = [join(directory, 'scaling.json'), join(directory, 'scaling.html')];
  const output = await kintsugi(['bench', 'scaling', '--smoke', '--quiet', '--json', json, '--html', html]);
  expect(output.code).toBe(0);
  const { goals, result } = JSON.parse(readFileSync(json, 'utf8')) as {
    goals: { name: string; value: number }[];
    result: { scalings: { from: number; to: number; shardsMoved: number }[]; pushes: { acked: number } };
  };
  expect(result.scalings).toMatchObject([
    { from: 5, to: 7 },
    { from: 7, to: 5 },
  ]);
  // The job has 35 data and parity shards: two sevenths of them move, both times. On the 5 PS that are left
  // each group has a seat on each, so what evens out data then are swaps, of two shards each.
  const [grown, shrunk] = result.scalings.map(({ shardsMoved }) => shardsMoved);
  expect(Math.abs(grown! - 10)).toBeLessThanOrEqual(3);
  expect(shrunk).toBeGreaterThanOrEqual(7);
  expect(shrunk).toBeLessThanOrEqual(10 + 3 + 2 * 3);
  expect(result.pushes.acked).toBeGreaterThan(0);
  expect(goals.at(-1)).toMatchObject({ name: 'lost or repeated pushes, wrong parity blocks', value: 0 });
  expect(readFileSync(html, 'utf8')).toContain('5 to 7 PS');
});

/** A sample per millisecond, none from 5.0 s to 5.2 s; one slow request is answered in each span. */
const progress: ScalingRunProgress[] = Array.from({ length: 101 }, (_, i) => {
  const mono = i * 100;
  return {
    mono,
    samples: mono - Math.min(200, Math.max(0, mono - 5000)),
    slowestMs: mono === 2000 ? 30 : mono === 5200 ? 210 : 5,
  };
});
const span = {
  from: 5,
  to: 7,
  before: { from: 1000, to: 4000 },
  after: { from: 7000, to: 9000 },
  begun: 4500,
  ended: 6500,
  shardsMoved: 10,
  bytesMoved: 4096,
};

it('measures the worst second and the slowest request of a scaling against the calm before it', () => {
  const measured = measureScaling(progress, span);
  expect(measured).toMatchObject({
    seconds: 2,
    steadySamplesPerSecond: 1000,
    slowestBeforeMs: 30,
    slowestMs: 210,
  });
  expect(measured.worstSecond).toBeCloseTo(0.8, 6);
  expect(measured.worstSecondBefore).toBeCloseTo(1, 6);
  expect(measured.worstSecondAfter).toBeCloseTo(1, 6);
  expect(
    measureScaling(progress, { ...span, before: { from: 1000, to: 5600 } }).worstSecondBefore,
  ).toBeLessThan(0.9);
  expect(
    measureScaling(progress, { ...span, after: { from: 4600, to: 5600 } }).worstSecondOfAfter,
  ).toBeCloseTo(1, 6);
  expect(measured.mean).toBeCloseTo(0.9, 6);
  expect(windowsOf(progress, 4800, 5400).map(Math.round)).toEqual([1000, 1000, 0, 0, 1000, 1000]);
});

it('the picture stands alone', () => {
  const html = scalingHtml(
    {
      scalings: [measureScaling(progress, span)],
      windows: windowsOf(progress, 0, 10_000),
      from: 0,
      bytes: 4096,
      pushes: { acked: 1, lost: 0, duplicated: 0 },
      mismatchedBlocks: 0,
    },
    'a < b',
  );
  expect(html).not.toMatch(/(?:src|href)=|@import|url\(|<script/);
  expect(html).not.toMatch(/NaN|Infinity|undefined/);
  expect(html).toContain('a &lt; b');
  expect(html.match(/class="band"/g)?.length).toBe(1);
});

it('says what is wrong with its flags', () => {
  expect(SCALING_OPTIONS.parse({ smoke: true })).toMatchObject({ ps: 5, to: 7, rows: 10_000 });
  expect(() => SCALING_OPTIONS.parse({ to: '5' })).toThrow(/--to more than --ps/);
});
