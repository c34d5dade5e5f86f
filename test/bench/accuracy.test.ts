/** The comparison with PyTorch: its best AUC is that of the definition, and a short run of it agrees. */
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { ACCURACY_OPTIONS } from '../../bench/accuracy/options.js';
import { aucWithin } from '../../bench/accuracy/ours.js';
import { bestAuc, convolve, TEACHER_ITEMS, Teacher } from '../../bench/accuracy/teacher.js';
import type { Goal, Result } from '../../bench/common/report.js';
import { PACKAGE_ROOT } from '../../src/common/package-root.js';
import { auc } from '../../src/training/loop/metrics.js';
import { kintsugi } from '../cli/support.js';

const own = join(PACKAGE_ROOT, 'python/.venv/bin/python');
const candidates = [process.env.KINTSUGI_TEST_PYTHON, existsSync(own) ? own : undefined, 'python3'];
const python = candidates.find(
  (each) => each && spawnSync(each, ['-c', 'import torch'], { stdio: 'ignore' }).status === 0,
);
if (!python) console.error('LEFT OUT: AUCs against PyTorch. No Python here has it (KINTSUGI_TEST_PYTHON)');

interface Report {
  results: Result[];
  goals: Goal[];
  skipped: string[];
}

async function smoke(...flags: string[]): Promise<Report> {
  const directory = mkdtempSync(join(tmpdir(), 'kintsugi-accuracy-test-'));
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  const json = join(directory, 'accuracy.json');
  const output = await kintsugi(['bench', 'accuracy', '--smoke', '--quiet', '--json', json, ...flags]);
  expect([output.code, output.stderr]).toEqual([0, '']);
  return JSON.parse(readFileSync(json, 'utf8')) as Report;
}

describe('the best AUC', () => {
  it('of a coin with two odds is that of its formula', () => {
    // Samples are of two kinds with as many of each, and one in five labels of a kind is the other one: a
    // positive sample is above a negative one in 0.8 x 0.8 of all pairs, and level with it in 2 x 0.8 x 0.2.
    const odds = Math.log(4);
    const kinds = new Map([
      [-1, 0.5],
      [1, 0.5],
    ]);
    expect(bestAuc(kinds, odds)).toBeCloseTo(0.8 * 0.8 + 0.8 * 0.2, 12);
  });

  it('of classes that are two bells is that of linear discriminant analysis', () => {
    // Classes are N(-d/2, 1) and N(d/2, 1), so the logit of a sample at x is d x. The AUC is Phi(d / sqrt 2).
    const [d, step] = [1.5, 1 / 256];
    const bell = (x: number, mean: number) => Math.exp(-((x - mean) ** 2) / 2);
    const at = Array.from({ length: 6001 }, (_, index) => index - 3000);
    const weights = at.map((each) => bell((each * step) / d, d / 2) + bell((each * step) / d, -d / 2));
    const total = weights.reduce((sum, each) => sum + each, 0);
    const logits = new Map(at.map((each, index) => [each, weights[index]! / total]));
    // Phi(1.5 / sqrt 2) of a table of the normal distribution.
    expect(bestAuc(logits, step)).toBeCloseTo(0.855578, 5);
  });

  it('is of a sum of independent parts', () => {
    const die = new Map([1, 2, 3].map((each) => [each, 1 / 3]));
    const sum = convolve(die, die);
    expect([...sum].sort(([a], [b]) => a - b).map(([at, p]) => [at, Math.round(p * 9)])).toEqual([
      [2, 1],
      [3, 2],
      [4, 3],
      [5, 2],
      [6, 1],
    ]);
  });

  it.each([1, 2, 3])('of teacher %i is that of its probabilities on many samples', (seed) => {
    const teacher = new Teacher(seed);
    const samples = teacher.samples(200_000);
    const labels = Float32Array.from(samples, ({ label }) => label);
    const truth = auc(
      labels,
      Float32Array.from(samples, ({ probability }) => probability),
    );
    // The standard error is 0.001 here.
    expect(Math.abs(truth - teacher.bound)).toBeLessThan(0.004);
    expect(teacher.bound).toBeGreaterThan(0.7);
    expect(teacher.bound).toBeLessThan(0.95);
  });

  it('within queries is of pairs of the same query', () => {
    const labels = Float32Array.of(1, 0, 0, 0, 1, 1);
    // One pair is in order and one is not; then one is level and one is in order.
    expect(aucWithin(labels, Float32Array.of(0.5, 0.4, 0.6, 9, 9, 10), 3)).toBe(2.5 / 4);
    const samples = new Teacher(1).queries(50, 4);
    const own = ({ fields }: { fields: Record<string, number> }) => {
      const query = Object.entries(fields).filter(([column]) => !TEACHER_ITEMS.includes(column));
      return JSON.stringify(query);
    };
    expect(new Set(samples.map(own)).size).toBe(50);
    expect(new Set(samples.map(({ fields }) => JSON.stringify(fields))).size).toBeGreaterThan(150);
  });

  it('and samples follow from the seed', () => {
    const [one, again, other] = [new Teacher(5), new Teacher(5), new Teacher(6)];
    expect(one.samples(20)).toEqual(again.samples(20));
    expect(other.bound).not.toBe(one.bound);
  });
});

it.skipIf(!python)(
  'models begin alike and end alike',
  async () => {
    const { results, goals } = await smoke('--python', python!);
    expect(goals.map(({ name, met }) => [name, met])).toEqual([
      ['generated: deepfm: AUCs apart by', true],
      ['generated: deepfm: first losses apart by', true],
      ['generated: finalmlp: AUCs apart by', true],
      ['generated: finalmlp: first losses apart by', true],
    ]);
    for (const { values } of results) {
      // Chance is 0.5.
      expect(values.ours).toBeGreaterThan(0.65);
      expect(values.ours).toBeLessThan(values.bound!);
    }
  },
  180_000,
);

it('without PyTorch it says so, and has the bound', async () => {
  const { results, goals, skipped } = await smoke(
    '--models',
    'dlrm',
    '--rows',
    '1000',
    '--python',
    '/nowhere/python',
  );
  expect(skipped).toContain('PyTorch: --python has no torch (pip install torch numpy)');
  expect(goals).toEqual([]);
  expect(Object.keys(results[0]!.values)).toEqual(['ours', 'bound', 'the teacher on these samples']);
});

it('says what is wrong with its flags', () => {
  expect(ACCURACY_OPTIONS.parse({}).models).toHaveLength(6);
  for (const [flags, message] of [
    [{ models: 'deepfm,fm' }, /--models must be all, or some of dlrm,/],
    [{ rows: '0' }, /--rows/],
    [{ testRows: 'many' }, /--test-rows/],
  ] as const)
    expect(() => ACCURACY_OPTIONS.parse(flags)).toThrow(message);
});
