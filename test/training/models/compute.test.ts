/** The thread that computes: how it ends, by itself and with its process. */
import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { expect, test } from 'vitest';
import { ComputeThread } from '../../../src/training/models/compute.js';
import { dlrm, numbers, randomBatch } from './rows.js';

const GRAPHS = { trainer: new Uint8Array(), predictor: new Uint8Array(), threads: 1 };
const READY = `import { parentPort } from 'node:worker_threads'; parentPort.postMessage({ kind: 'ready' });`;

function thread(source: string): Promise<ComputeThread> {
  return ComputeThread.start(GRAPHS, new URL(`data:text/javascript,${encodeURIComponent(source)}`));
}

test('closed while it computes, it computes that and nothing more', async () => {
  const model = await dlrm({ dim: 4, batch: 64 });
  const batch = randomBatch(64, 1);
  const rows = [numbers(64 * 26 * 4, 2)];
  const dense = model.tensors.map(({ shape }) =>
    numbers(
      shape.reduce((a, b) => a * b),
      3,
    ),
  );
  const step = model.step(batch, rows, dense);
  await model.close?.();
  expect((await step).rowGrads[0]!.length).toBe(64 * 26 * 4);
  await expect(model.step(batch, rows, dense)).rejects.toMatchObject({ code: 'INTERNAL' });
});

test.each(['step', 'load'])(
  'a process that ends while its thread is at work (%s) ends as it was told to',
  (at) => {
    const script = fileURLToPath(new URL('../../fixtures/exit-in-step.mjs', import.meta.url));
    const { status, signal, stderr } = spawnSync(process.execPath, [script, at], { encoding: 'utf8' });
    expect({ status, signal, stderr }).toEqual({ status: 3, signal: null, stderr: '' });
  },
);

test('graphs that the runtime refuses', async () => {
  const script = new URL('../../../dist/src/training/models/compute-thread.js', import.meta.url);
  await expect(ComputeThread.start(GRAPHS, script)).rejects.toMatchObject({ code: 'MODEL' });
});

test.each([
  ['before it is ready', `throw new Error('early')`, /early/],
  ['at an order', `${READY} parentPort.on('message', () => { throw new Error('late') });`, /late/],
  ['in silence', `${READY} parentPort.on('message', () => process.exit());`, /ended/],
])('a thread that dies %s says so', async (_, source, message) => {
  const order = thread(source).then((compute) => compute.run({ graph: 'trainer', inputs: {} }));
  await expect(order).rejects.toMatchObject({ code: 'INTERNAL', message });
});
