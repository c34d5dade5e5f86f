import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, test } from 'vitest';
import { criteo } from '../../../src/data/criteo.js';
import { writeDemoData } from '../../../src/training/loop/demo-data.js';
import { createTables, evaluate, train } from '../../../src/training/loop/loop.js';
import { checkModel, loadModel } from '../../../src/training/models/plugin.js';
import { readBatches } from '../../data/read.js';
import { FakeStore, plainHelpers as helpers } from '../loop/fake-store.js';
import { options, randomBatch, temporaryDirectory } from './rows.js';

const logistic = fileURLToPath(new URL('../../../examples/logistic.mjs', import.meta.url));

describe("the example, a user's own logistic regression", () => {
  test('trains from its file', async () => {
    const directory = temporaryDirectory();
    const [file, testFile] = [join(directory, 'train.tsv'), join(directory, 'test.tsv.gz')];
    const data = { train: file, test: testFile, rows: 12_000, testRows: 4000, keys: 2000, seed: 3 };
    const { bestAuc } = await writeDemoData(data);
    const model = await loadModel(logistic, options);
    const store = new FakeStore();
    await createTables(model, store, options.seed, helpers);
    const { batch } = options;
    const before = await evaluate({
      model,
      store,
      helpers,
      batches: readBatches(criteo, { files: [testFile], batch }),
    });
    expect(before.auc).toBe(0.5);
    await train({ model, store, helpers, batches: readBatches(criteo, { files: [file], batch }) });
    const after = await evaluate({
      model,
      store,
      helpers,
      batches: readBatches(criteo, { files: [testFile], batch }),
    });
    expect(after.samples).toBe(4000);
    expect(after.auc).toBeGreaterThan(0.72);
    expect(after.auc).toBeLessThan(bestAuc);
    expect(after.logloss).toBeLessThan(before.logloss);
  }, 60_000);

  test('its gradients agree with differences of its loss', async () => {
    const model = await loadModel(logistic, options);
    const batch = randomBatch(5, 1);
    const rows = new Float32Array(5 * 26).fill(0.125);
    const dense = [new Float32Array(13).fill(0.25), Float32Array.of(-0.5)];
    const { rowGrads, denseGrads } = await model.step(batch, [rows], dense);
    const step = 2 ** -8;
    for (const [values, gradient, place] of [
      [rows, rowGrads[0]!, 40],
      [dense[0]!, denseGrads[0]!, 7],
      [dense[1]!, denseGrads[1]!, 0],
    ] as const) {
      const expected = gradient[place]!;
      values[place]! += step;
      const above = (await model.step(batch, [rows], dense)).loss;
      values[place]! -= 2 * step;
      const below = (await model.step(batch, [rows], dense)).loss;
      values[place]! += step;
      expect((above - below) / (2 * step)).toBeCloseTo(expected, 3);
    }
  });
});

describe('model files', () => {
  async function load(source: string): Promise<unknown> {
    const file = join(temporaryDirectory(), 'model.mjs');
    writeFileSync(file, source);
    return loadModel(file, options).catch((error: unknown) => error);
  }

  test.each([
    ['a syntax error', 'export default (', /could not be loaded/],
    [
      'an import that is missing',
      "import 'no-such-package-at-all';",
      /could not be loaded: .*no-such-package-at-all/,
    ],
    ['no default export', 'export const model = 1;', /default export must be a function/],
    [
      'a factory that fails',
      'export default () => { throw new Error("no luck"); };',
      /factory failed: no luck/,
    ],
    ['a factory that returns nothing', 'export default () => {};', /must return a model/],
  ])('%s', async (_name, source, message) => {
    expect(await load(source)).toMatchObject({ code: 'MODEL', message: expect.stringMatching(message) });
  });

  test('no such file', async () => {
    const file = join(temporaryDirectory(), 'nowhere.mjs');
    await expect(loadModel(file, options)).rejects.toMatchObject({
      code: 'MODEL',
      message: `${file}: no such model file`,
    });
  });
});

describe('what a factory returns', () => {
  const parts = { optimizer: { kind: 'sgd', lr: 1 }, initializer: { kind: 'zeros' } };
  const table = { name: 'a', dim: 2, ...parts };
  const tensor = { name: 'w', shape: [2, 3], ...parts };
  const call = () => {};
  const good = { tables: [table], tensors: [tensor], keys: call, step: call, predict: call };

  test('a complete model is returned as it is', () => {
    expect(checkModel(good, 'm.js')).toBe(good);
  });

  test.each([
    ['no tables', { tables: undefined }, 'array "tables"'],
    ['a table without name', { tables: [{ ...table, name: '' }] }, 'tables[0] needs a name'],
    ['the same name twice', { tables: [table, table] }, 'tables[1]: the name "a" occurs twice'],
    ['a dim of zero', { tables: [{ ...table, dim: 0 }] }, 'table "a": dim must be'],
    ['no optimizer', { tables: [{ ...table, optimizer: 'sgd' }] }, 'needs an optimizer'],
    ['no initializer', { tensors: [{ ...tensor, initializer: {} }] }, 'needs an initializer'],
    ['a bad shape', { tensors: [{ ...tensor, shape: [2, 0] }] }, 'tensor "w": shape must be'],
    ['no step', { step: undefined }, 'a method step()'],
    ['a close that is no method', { close: true }, 'close must be a method'],
  ])('%s', (_name, changes, message) => {
    const error = expect.objectContaining({ code: 'MODEL', message: expect.stringContaining(message) });
    expect(() => checkModel({ ...good, ...changes }, 'm.js')).toThrow(error);
  });
});
