/**
 * `bench accuracy`: test AUCs of the built-in models against an independent implementation with PyTorch, on
 * the same samples in the same order and from the same initial values, and beside the AUC that no model can
 * have more of.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseSchema } from '../../src/data/parse-schema.js';
import { auc } from '../../src/training/loop/metrics.js';
import { FINAL_MLP } from '../../src/training/models/final-mlp-graph.js';
import { TWO_TOWERS } from '../../src/training/models/two-towers-graph.js';
import { BenchReport } from '../common/report.js';
import type { AccuracyOptions } from './options.js';
import { aucWithin, type Contest, type ContestShape, trainOurs } from './ours.js';
import {
  type TaughtSample,
  TEACHER_GATES,
  TEACHER_ITEMS,
  TEACHER_SCHEMA,
  Teacher,
  writeSamples,
} from './teacher.js';
import { trainTorch, whyNoTorch } from './torch.js';

/** AUCs that are further apart have another reason than the order of additions. */
const NEAR = 0.003;
/**
 * An AUC hardly tells two models apart that differ in a factor. Losses do: the first one depends on what a
 * model computes, the later ones on its gradients and on the optimizers.
 */
const FIRST_BATCHES = 30;
const LOSSES_NEAR = 1e-5;
const RATES = { batch: 256, lr: 0.05, denseLr: 0.001 };

/** Items of a query in the test of `two-towers`. */
const QUERY_ITEMS = 20;

interface SampleSet {
  name: string;
  schema: object;
  train: string;
  test: string;
  /** Test file of models that put the items of a query in order, if it is another one */
  queries?: { test: string; bounds: BestAucs } | undefined;
  shape: ContestShape;
  items: readonly string[];
  gates: readonly string[];
  bounds: BestAucs;
}

/** AUCs that no model can have more of, by what they are of. */
type BestAucs = Readonly<Record<string, number>>;

const TEACHER_HERE = 'the teacher on these samples';

function generated({ rows, testRows, seed, tell }: AccuracyOptions, directory: string): SampleSet {
  const teacher = new Teacher(seed);
  const [train, test, queries] = ['train', 'test', 'queries'].map((name) => join(directory, `${name}.jsonl`));
  writeSamples(train!, teacher.samples(rows));
  const tested = teacher.samples(testRows);
  writeSamples(test!, tested);
  const asked = teacher.queries(Math.ceil(testRows / QUERY_ITEMS), QUERY_ITEMS);
  writeSamples(queries!, asked);
  const truth = auc(...truthOf(tested));
  tell(
    `best AUC of the teacher: ${teacher.bound.toFixed(4)}, of its probabilities here: ${truth.toFixed(4)}`,
  );
  return {
    name: 'generated',
    schema: TEACHER_SCHEMA,
    ...{ train: train!, test: test!, items: TEACHER_ITEMS, gates: TEACHER_GATES },
    shape: { ...RATES, dim: 8, bottom: '32-8', top: '64-32-1' },
    bounds: { bound: teacher.bound, [TEACHER_HERE]: truth },
    queries: { test: queries!, bounds: { [TEACHER_HERE]: aucWithin(...truthOf(asked), QUERY_ITEMS) } },
  };
}

/** Labels, and the true probabilities. */
function truthOf(samples: readonly TaughtSample[]): [Float32Array, Float32Array] {
  const labels = Float32Array.from(samples, ({ label }) => label);
  return [labels, Float32Array.from(samples, ({ probability }) => probability)];
}

/** Real ratings; the columns that have one value each. */
function movielens(folder: string): SampleSet {
  const file = (part: string) => join(folder, `movielens-100k-rich.${part}.jsonl.gz`);
  const dense = ['userRatings', 'itemRatings'].map((column) => ({ column, transform: 'log1p' }));
  const sparse = ['user', 'item', 'age', 'gender', 'occupation', 'zip3', 'year'];
  return {
    name: 'MovieLens 100K',
    schema: { label: 'label', dense, sparse },
    train: file('train'),
    test: file('test'),
    shape: { ...RATES, dim: 16, bottom: '64-16', top: '256-64-1' },
    items: ['item', 'year'],
    gates: ['user', 'item'],
    bounds: {},
  };
}

/** The largest difference of the first losses, as a part of the loss. */
function apart(ours: readonly number[], torch: readonly number[]): number {
  const parts = ours.slice(0, FIRST_BATCHES).map((loss, batch) => Math.abs(loss / torch[batch]! - 1));
  return ours.length === torch.length ? Math.max(...parts) : Number.POSITIVE_INFINITY;
}

/** @throws BAD_ARGUMENT, BAD_DATA, DEPENDENCY_MISSING (onnxruntime-node) */
export async function run(options: AccuracyOptions): Promise<void> {
  const { models, rows, testRows, epochs, seed, python, tell } = options;
  const report = new BenchReport('accuracy', options);
  const directory = mkdtempSync(join(tmpdir(), 'kintsugi-accuracy-'));
  try {
    const missing = whyNoTorch(python);
    if (missing !== undefined) report.skip(missing);
    const sets = [generated(options, directory)];
    if (options.movielens !== undefined) sets.push(movielens(options.movielens));
    else report.skip('MovieLens 100K: --movielens names no folder');
    Object.assign(report.parameters, { rows, testRows, epochs, seed });
    for (const set of sets) {
      const schemaFile = join(directory, 'schema.json');
      writeFileSync(schemaFile, JSON.stringify(set.schema));
      const schema = parseSchema(set.schema, schemaFile);
      for (const model of models) {
        const { train, shape, items, gates } = set;
        // The loss of two towers has no say in how the scores of one query compare with those of another.
        const queries = model === TWO_TOWERS ? set.queries : undefined;
        const { test, bounds } = queries ?? set;
        const special = model === TWO_TOWERS ? { items: items.join() } : {};
        const gated = model === FINAL_MLP ? { gate1: gates[0], gate2: gates[1] } : {};
        const contest: Contest = {
          ...{ model, schema, train, test, shape, own: { ...special, ...gated }, epochs, seed },
          ...(queries && { group: QUERY_ITEMS }),
        };
        const name = `${set.name}: ${model}`;
        const ours = await trainOurs(contest, directory);
        const torch =
          missing === undefined
            ? await trainTorch(python, schemaFile, directory, contest, { items, gates })
            : undefined;
        const values = { ours: ours.auc, ...(torch && { PyTorch: torch.auc }), ...bounds };
        report.add({ name, unit: queries ? 'test AUC within queries' : 'test AUC', values, digits: 4 });
        tell(`${name}: ${ours.auc.toFixed(4)}, PyTorch ${torch?.auc.toFixed(4) ?? 'left out'}`);
        if (!torch) continue;
        report.atMost(`${name}: AUCs apart by`, Math.abs(ours.auc - torch.auc), NEAR);
        report.atMost(`${name}: first losses apart by`, apart(ours.losses, torch.losses), LOSSES_NEAR);
      }
    }
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
  report.finish();
}
