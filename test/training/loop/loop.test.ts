import { describe, expect, test } from 'vitest';
import type { KintsugiError } from '../../../src/common/errors.js';
import { createTables, evaluate, train } from '../../../src/training/loop/loop.js';
import { StepClock } from '../../../src/training/loop/step-clock.js';
import type { Batch, Model, PushUpdate, StepResult } from '../../../src/training/models/trainer.js';
import { batchesOf, numbers, randomBatch } from '../models/rows.js';
import { FakeStore, plainHelpers as helpers } from './fake-store.js';

const sgd = { kind: 'sgd', lr: 0.5 } as const;
const constant = { kind: 'constant', value: 1 } as const;

/** Two tables, one of which takes every key twice, and a tensor of more than one chunk. */
function toyModel(changes: Partial<StepResult> = {}, events: string[] = []): Model {
  return {
    tables: [
      { name: 'a', dim: 2, optimizer: sgd, initializer: constant },
      { name: 'b', dim: 3, optimizer: sgd, initializer: constant },
    ],
    tensors: [{ name: 't', shape: [300], optimizer: sgd, initializer: constant }],
    keys: ({ keys }: Batch) => [keys, BigUint64Array.from([...keys, ...keys])],
    async step(batch, [a, b], [t]) {
      events.push('step');
      expect([a!.length, b!.length, t!.length]).toEqual([batch.size * 52, batch.size * 156, 300]);
      return {
        loss: 0.5,
        rowGrads: [a!.map((value) => value * 0.1), b!.map(() => 0.25)],
        denseGrads: [t!.map(() => 1)],
        ...changes,
      };
    },
    async predict(batch) {
      return batch.dense.filter((_, i) => i % 13 === 0);
    },
  };
}

async function storeFor(model: Model, store = new FakeStore()): Promise<FakeStore> {
  await createTables(model, store, 1, helpers);
  return store;
}

/** Acknowledges pushes only when told to, and says when there is something to acknowledge. */
class SlowStore extends FakeStore {
  readonly waiting: (() => void)[] = [];
  onPush: () => void = () => {};

  override async push(updates: PushUpdate[]): Promise<void> {
    await super.push(updates);
    const durable = new Promise<void>((resolve) => this.waiting.push(resolve));
    this.onPush();
    return durable;
  }
}

/** A store whose pushes keep the process busy after the call, as encoding for the shards does. */
class BusyStore extends FakeStore {
  now = 0;

  override async push(updates: PushUpdate[]): Promise<void> {
    await Promise.resolve();
    this.now += 1000;
    await super.push(updates);
  }
}

describe('waiting', () => {
  test('what is there already is not waited for, whatever the process does meanwhile', async () => {
    const model = toyModel();
    const store = new BusyStore();
    await storeFor(model, store);
    const clock = new StepClock(() => store.now);
    const slow = { ...model, step: (...step: Parameters<Model['step']>) => afterTurns(model.step(...step)) };
    await train({ model: slow, store, helpers, batches: batchesOf(6, 4), clock });
    expect([clock.batches, clock.seconds.read, clock.seconds.pull]).toEqual([6, 0, 0]);
  });
});

/** Late enough that what was begun before it is done. */
async function afterTurns<T>(promise: Promise<T>): Promise<T> {
  for (let turn = 0; turn < 3; turn++) await new Promise((resolve) => setImmediate(resolve));
  return promise;
}

describe('exchange', () => {
  test('creates the tables of the model, tensors as tables of chunks', async () => {
    const store = await storeFor(toyModel());
    const specs = [...store.tables.values()].map(({ spec }) => `${spec.name} ${spec.dim} ${spec.seed}`);
    expect(specs).toEqual(['a 2 1', 'b 3 1', 'dense/t 256 1']);
  });

  test('gradients of duplicate keys are summed and pushed once', async () => {
    const model = toyModel();
    const store = await storeFor(model);
    const batch = randomBatch(50, 5);
    async function* once() {
      yield batch;
    }
    await train({ model, store, helpers, batches: once() });
    const keys = BigUint64Array.from(new Set(batch.keys));
    const [a, b, t] = await store.pull([
      { table: 'a', keys },
      { table: 'b', keys },
      { table: 'dense/t', keys: BigUint64Array.of(0n, 1n) },
    ]);
    for (const [i, key] of keys.entries()) {
      const count = batch.keys.filter((other) => other === key).length;
      expect(a![i * 2 + 1]).toBeCloseTo(1 - 0.5 * 0.1 * count, 4);
      expect(b![i * 3 + 2]).toBeCloseTo(1 - 0.5 * 0.25 * 2 * count, 4);
    }
    // Each key was seen once in the batch, unless all its places count.
    expect(store.counts.get('b')).toBeUndefined();
    await train({ model, store, helpers, batches: batchesOf(1, 5), countDuplicates: true });
    expect(store.counts.get('b')!.reduce((sum, count) => sum + count)).toBe(2 * 26 * 5);
    // The tensor's 300 values moved, the padding of its last row did not.
    expect(t![299]).toBe(0.5);
    expect(t![300]).toBe(1);
  });

  test.each([
    ['a loss that is not a number', { loss: Number.NaN }, /loss NaN/],
    [
      'too few row gradients',
      { rowGrads: [new Float32Array(1)] },
      /returned 1 values for the row gradients of table "a"/,
    ],
    ['no row gradients for a table', { rowGrads: [] }, /Float32Array for the row gradients of table "a"/],
    [
      'a gradient of another shape',
      { denseGrads: [new Float32Array(256)] },
      /256 values for the gradient of tensor "t"/,
    ],
  ])('refuses %s, and pushes nothing of the batch', async (_name, changes, message) => {
    const model = toyModel(changes);
    const store = await storeFor(model);
    const training = train({ model, store, helpers, batches: batchesOf(1, 4) });
    await expect(training).rejects.toMatchObject({ code: 'MODEL', message: expect.stringMatching(message) });
    expect(store.log).not.toContain('push');
  });

  test('refuses keys that do not fit the tables', async () => {
    for (const keys of [[], [new BigUint64Array(1)], [[1n], [2n]]]) {
      const model = { ...toyModel(), keys: () => keys as BigUint64Array[] };
      const training = train({ model, store: await storeFor(model), helpers, batches: batchesOf(1, 4) });
      await expect(training).rejects.toMatchObject({ code: 'MODEL' });
    }
  });
});

describe('order', () => {
  test('the pull of the next batch is sent before the step of this one', async () => {
    const store = new FakeStore();
    const model = toyModel({}, store.log);
    await storeFor(model, store);
    await train({ model, store, helpers, batches: batchesOf(4, 4) });
    expect(store.log.join(' ')).toBe('pull pull step push pull step push pull step push step push');
  });

  test('deterministic: strictly pull, step, push', async () => {
    const store = new FakeStore();
    const model = toyModel({}, store.log);
    await storeFor(model, store);
    await train({ model, store, helpers, batches: batchesOf(3, 4), deterministic: true });
    expect(store.log.join(' ')).toBe('pull step push pull step push pull step push');
  });

  test('deterministic: the next pull waits until the push is durable', async () => {
    const store = new SlowStore();
    const model = toyModel();
    await storeFor(model, store);
    const pullsAtPush: number[] = [];
    store.onPush = () => {
      setImmediate(() => {
        pullsAtPush.push(store.log.filter((entry) => entry === 'pull').length);
        store.waiting.shift()!();
      });
    };
    await train({ model, store, helpers, batches: batchesOf(3, 4), deterministic: true });
    expect(pullsAtPush).toEqual([1, 2, 3]);
  });

  test('at most inFlight pushes are unacknowledged, and the end waits for all', async () => {
    const store = new SlowStore();
    const model = toyModel();
    await storeFor(model, store);
    const inFlight: number[] = [];
    const full = new Promise<void>((resolve) => {
      store.onPush = () => {
        inFlight.push(store.waiting.length);
        if (store.waiting.length === 2) resolve();
      };
    });
    let ended = false;
    const training = train({ model, store, helpers, batches: batchesOf(6, 4), inFlight: 2 }).then(
      (result) => {
        ended = true;
        return result;
      },
    );
    await full;
    // Acknowledge the oldest whenever the loop has had time to do more than it may.
    while (!ended) {
      await new Promise((resolve) => setImmediate(resolve));
      store.waiting.shift()?.();
    }
    expect((await training).batches).toBe(6);
    expect(inFlight.length).toBe(6);
    expect(Math.max(...inFlight)).toBe(2);
  });

  test('a single deterministic worker computes the same bits every time', async () => {
    const run = async () => {
      const model = toyModel();
      const store = await storeFor(model);
      await train({ model, store, helpers, batches: batchesOf(5, 16), deterministic: true });
      return [...store.tables.values()].map(({ slab }) => slab);
    };
    expect(await run()).toEqual(await run());
  });
});

describe('results and ends', () => {
  test('progress after every batch, and the mean loss over all samples', async () => {
    const losses = [1, 2, 4];
    const model = toyModel();
    const { step } = model;
    model.step = async (...args) => ({ ...(await step(...args)), loss: losses.shift()! });
    async function* batches() {
      for (const size of [4, 4, 2]) yield randomBatch(size, size);
    }
    const seen: string[] = [];
    const result = await train({
      model,
      store: await storeFor(model),
      helpers,
      batches: batches(),
      onProgress: ({ samples, batches, loss }) => seen.push(`${samples}/${batches}:${loss}`),
    });
    expect(seen).toEqual(['4/1:1', '8/2:2', '10/3:4']);
    expect(result).toMatchObject({ samples: 10, batches: 3, loss: (4 + 8 + 8) / 10 });
  });

  test('no batches: nothing is trained and nothing evaluated', async () => {
    const model = toyModel();
    const store = await storeFor(model);
    expect(await train({ model, store, helpers, batches: batchesOf(0, 4) })).toMatchObject({ samples: 0 });
    const evaluation = await evaluate({ model, store, helpers, batches: batchesOf(0, 4) });
    expect(evaluation).toEqual({ auc: Number.NaN, logloss: Number.NaN, samples: 0 });
  });

  test('evaluation collects predictions that the model keeps in the same memory', async () => {
    const model = toyModel();
    const kept = new Float32Array(8);
    model.predict = async (batch) => {
      kept.set(batch.labels.map((label) => 0.25 + label / 2));
      return kept;
    };
    const evaluation = await evaluate({
      model,
      store: await storeFor(model),
      helpers,
      batches: batchesOf(5, 8),
    });
    expect(evaluation.auc).toBe(1);
    expect(evaluation.logloss).toBeCloseTo(-Math.log(0.75), 6);
    expect(evaluation.samples).toBe(40);
  });

  test('evaluation refuses predictions that do not fit', async () => {
    const model = { ...toyModel(), predict: async () => numbers(3, 1) };
    const evaluation = evaluate({ model, store: await storeFor(model), helpers, batches: batchesOf(1, 8) });
    await expect(evaluation).rejects.toMatchObject({ code: 'MODEL' });
  });

  test('errors of reader, pull and push come through, and the reader is closed', async () => {
    const failure = new Error('on purpose');
    let closed = 0;
    async function* failing(at: number) {
      try {
        for (let i = 0; ; i++) {
          if (i === at) throw failure;
          yield randomBatch(4, i);
        }
      } finally {
        closed += 1;
      }
    }
    const model = toyModel();
    const run = async (part: 'pull' | 'push' | undefined, at: number) => {
      const store = await storeFor(model);
      if (part) store[part] = async () => Promise.reject(failure);
      return train({ model, store, helpers, batches: failing(at) });
    };
    await expect(run(undefined, 3)).rejects.toBe(failure);
    await expect(run('pull', 1000)).rejects.toBe(failure);
    await expect(run('push', 1000)).rejects.toBe(failure);
    expect(closed).toBe(3);
  });

  test('an abort ends the wait for a pull that never comes', async () => {
    const model = toyModel();
    const store = await storeFor(model);
    const control = new AbortController();
    store.pull = () => {
      setImmediate(() => control.abort(new Error('enough')));
      return new Promise(() => {});
    };
    const training = train({ model, store, helpers, batches: batchesOf(3, 4), signal: control.signal });
    const error = (await training.catch((thrown: unknown) => thrown)) as KintsugiError;
    expect(error.code).toBe('ABORTED');
    expect(error.message).toContain('enough');
  });

  test('an abort between batches stops before the next push', async () => {
    const model = toyModel();
    const store = await storeFor(model);
    const control = new AbortController();
    const training = train({
      model,
      store,
      helpers,
      batches: batchesOf(10, 4),
      signal: control.signal,
      onProgress: ({ batches }) => batches === 2 && control.abort(),
    });
    await expect(training).rejects.toMatchObject({ code: 'ABORTED' });
    expect(store.log.filter((entry) => entry === 'push').length).toBe(2);
  });

  test('inFlight must be positive', async () => {
    const model = toyModel();
    const training = train({
      model,
      store: await storeFor(model),
      helpers,
      batches: batchesOf(1, 4),
      inFlight: 0,
    });
    await expect(training).rejects.toMatchObject({ code: 'BAD_ARGUMENT' });
  });
});
