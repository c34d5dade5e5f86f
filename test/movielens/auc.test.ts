/**
 * Whole jobs of each built-in model against an independent implementation of the same definition with PyTorch
 * (bench/accuracy/reference.py): test AUCs are as far apart as random initial values put them. It needs a
 * Python with torch: of KINTSUGI_TEST_PYTHON, of python/.venv, or any.
 */
import { execFile, spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, describe, expect, test } from 'vitest';
import { PACKAGE_ROOT } from '../../src/common/package-root.js';
import { MODEL_NAMES } from '../../src/training/models/dlrm.js';
import { FINAL_MLP } from '../../src/training/models/final-mlp-graph.js';
import { TWO_TOWERS } from '../../src/training/models/two-towers-graph.js';
import { job, MULTI, present, SINGLE, TEST, TRAIN, whole, writeSchema } from './support.js';

const EPOCHS = 2;
/** Seeds of the reference. Jobs have the first KINTSUGI_TEST_SEEDS of them. */
const SEEDS = ['1', '2', '3'];
const JOBS = Number(process.env.KINTSUGI_TEST_SEEDS ?? 1);
const NEAR = 0.005;
/**
 * Tolerance for two towers. Their loss puts the items of one query in order, and an AUC compares samples of
 * all users. So the AUCs of the reference are up to 0.04 apart themselves.
 */
const NEAR_TOWERS = 0.04;

const own = join(PACKAGE_ROOT, 'python/.venv/bin/python');
const candidates = [process.env.KINTSUGI_TEST_PYTHON, existsSync(own) ? own : undefined, 'python3'];
const python = candidates.find(
  (each) => each && spawnSync(each, ['-c', 'import torch'], { stdio: 'ignore' }).status === 0,
);
if (!python)
  console.error('LEFT OUT: AUCs against a reference. No Python here has torch (KINTSUGI_TEST_PYTHON)');

const mean = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0) / values.length;

async function referenceOf(schema: string, model: string, items: readonly string[]): Promise<number[]> {
  const script = join(PACKAGE_ROOT, 'bench/accuracy/reference.py');
  const data = ['--schema', schema, '--train', TRAIN, '--test', TEST];
  const args = [script, ...data, '--model', model, '--epochs', String(EPOCHS), '--seeds', ...SEEDS];
  if (model === TWO_TOWERS) args.push('--items', ...items);
  if (model === FINAL_MLP) args.push('--gates', 'user', 'item');
  const { stdout } = await promisify(execFile)(python!, args);
  return (JSON.parse(stdout) as { aucs: number[] }).aucs;
}

async function jobsOf(schema: string, model: string, items: readonly string[]): Promise<number[]> {
  const data = ['--schema', schema, '--data', TRAIN, '--test', TEST, '--epochs', String(EPOCHS)];
  // In the order of the file, as the reference.
  const flags = ['--model-name', model, '--workers', '1', '--deterministic', '--kill', 'ps@50%'];
  if (model === TWO_TOWERS) flags.push('--model-option', `items=${items.join(',')}`);
  if (model === FINAL_MLP) flags.push('--model-option', 'gate1=user', '--model-option', 'gate2=item');
  const aucs: number[] = [];
  for (const seed of SEEDS.slice(0, JOBS))
    aucs.push((await job([...data, ...flags, '--seed', seed], 90_000, EPOCHS)).testAuc!);
  return aucs;
}

describe.skipIf(!present || !whole || !python).each([
  ['single', SINGLE, ['item', 'year']],
  ['multi', MULTI, ['item', 'year', 'genres']],
])('%s-valued', (name, written, items) => {
  const rows: string[] = [];
  afterAll(() => console.log(rows.join('\n')));

  test.each(MODEL_NAMES)(
    '%s',
    async (model) => {
      const schema = writeSchema(`${name}.json`, written);
      const [jobs, reference] = [await jobsOf(schema, model, items), await referenceOf(schema, model, items)];
      const text = (aucs: number[]) =>
        `${mean(aucs).toFixed(4)} (${aucs.map((auc) => auc.toFixed(4)).join(', ')})`;
      rows.push(`| ${name} | ${model} | ${text(jobs)} | ${text(reference)} |`);
      expect(Math.abs(mean(jobs) - mean(reference))).toBeLessThan(model === TWO_TOWERS ? NEAR_TOWERS : NEAR);
    },
    900_000,
  );
});
