import { createHash } from 'node:crypto';
import ort from 'onnxruntime-node';
import { expect, test } from 'vitest';
import { buildDlrm } from '../../../src/training/models/dlrm-graph.js';
import { GraphBuilder } from '../../../src/training/models/onnx.js';

test('a graph with constants, attributes of each kind and a size known at run time', async () => {
  const graph = new GraphBuilder('test');
  graph.input('x', ['B', 3]);
  graph.floats('half', [], [0.5]);
  graph.integers('axes', [1]);
  graph.node('Mul', ['x', 'half'], 'halved');
  graph.node('LeakyRelu', ['halved'], 'leaky', { alpha: { float: 0.25 } });
  graph.node('Transpose', ['leaky'], 'turned', { perm: [1, 0] });
  graph.node('ReduceSum', ['halved', 'axes'], 'sums', { keepdims: 0 });
  graph.output('turned', [3, 'B']);
  graph.output('sums', ['B']);
  const session = await ort.InferenceSession.create(graph.encode());
  const x = new ort.Tensor('float32', Float32Array.of(2, -8, 6, 4, 0, -2), [2, 3]);
  const { turned, sums } = await session.run({ x });
  expect(turned!.dims).toEqual([3, 2]);
  expect([...(turned!.data as Float32Array)]).toEqual([1, 2, -1, 0, 3, -0.25]);
  expect([...(sums!.data as Float32Array)]).toEqual([0, 1]);
  await session.release();
});

const CRITEO = { dense: 13, embeddings: 26, weighted: false };

test('a graph has the bytes that another writer of Protocol Buffers gave it', () => {
  const shape = { ...CRITEO, dim: 16, bottom: [64, 16], top: [256, 64, 1] };
  const hashes = [true, false].map((training) =>
    createHash('sha256').update(buildDlrm(shape, training)).digest('hex').slice(0, 16),
  );
  expect(hashes).toEqual(['ee898134cb9e9e63', 'e765c5399533827f']);
});

test('mistakes are found when the graph is built', () => {
  const graph = new GraphBuilder('test');
  graph.input('x', ['B']);
  expect(() => graph.input('x', ['B'])).toThrow(/two definitions/);
  expect(() => graph.node('Relu', ['y'], 'z')).toThrow(/not defined/);
  expect(() => graph.output('y', ['B'])).toThrow(/not computed/);
});
