/**
 * FinalMLP (Mao et al., AAAI 2023) as an ONNX graph, forward and backward, as that of DLRM is
 * (dlrm-graph.ts). Two MLPs see the same values, each through gates of its own, and a bilinear form puts them
 * together. With x = dense and the E embeddings side by side, for the streams k = 1 and 2:
 *
 *   g_k = 2 sigmoid(gate MLP(the embeddings of the stream's context))    [B, width of x]
 *   o_k = MLP(x * g_k)                                                   [B, H], ReLU after every layer
 *   logit = o_1 w_1 + o_2 w_2 + b + sum over heads h of o_1h W_h o_2h'   [B]
 *
 * Where a stream has no context, the paper has a learned vector in its place. What an MLP makes of a constant
 * is a constant, so the gates are learned themselves then. With biases at zero all gates begin near 1.
 */
import { KintsugiError } from '../../common/errors.js';
import {
  backwardMlp,
  DENSE,
  type DlrmParameter,
  type DlrmShape,
  EMBEDDINGS,
  forwardMlp,
  gradientName,
  graphOf,
  type Layer,
  layers,
  lossAndGradient,
  parametersOf,
  predictor,
  trainer,
} from './dlrm-graph.js';
import type { GraphBuilder } from './onnx.js';

export const FINAL_MLP = 'finalmlp';

/** Width of the hidden layer of a gate that has a context. */
const GATE_HIDDEN = 64;

export interface FinalMlpShape extends Omit<DlrmShape, 'bottom'> {
  /** Which of a sample's embeddings are the context of each stream's gates; none: the gates are constants */
  contexts: readonly [readonly number[], readonly number[]];
  /** Parts that the bilinear form cuts the results of the streams into */
  heads: number;
}

interface GatedMlp {
  name: string;
  /** Places of the embeddings of the context */
  context: readonly number[];
  /** The layers from the context to the logits of the gates; none without a context */
  gate: Layer[];
  mlp: Layer[];
}

const FUSION_BIAS = 'fusion.bias';
/** [H * H / heads, 1]: the matrices W_h, one after the other, with the initial values of one wide layer. */
const FUSION_PRODUCT = 'fusion.product.weight';
const constantGate = (stream: GatedMlp) => `${stream.name}.gate.bias`;
const linearWeight = (stream: GatedMlp) => `${stream.name}.fusion.weight`;

const widthOf = ({ dense, embeddings, dim }: FinalMlpShape) => dense + embeddings * dim;
const outputsOf = ({ top }: FinalMlpShape) => top.at(-2)!;

/** @throws BAD_ARGUMENT for layers and heads that do not fit */
function streamsOf(shape: FinalMlpShape): [GatedMlp, GatedMlp] {
  const { top, dim, heads, contexts } = shape;
  const bad = (text: string) => new KintsugiError('BAD_ARGUMENT', `${FINAL_MLP}: ${text}`);
  if (top.length < 2 || top.at(-1) !== 1)
    throw bad(`--top must be the layers of both streams and then 1: ${top.join('-')}`);
  const outputs = outputsOf(shape);
  if (!Number.isSafeInteger(heads) || heads < 1 || outputs % heads !== 0)
    throw bad(`heads must divide the last layer of the streams: ${outputs} / ${heads}`);
  const width = widthOf(shape);
  const stream = (context: readonly number[], index: number): GatedMlp => {
    const name = `stream${index + 1}`;
    const widths = [GATE_HIDDEN, width];
    const gate = context.length === 0 ? [] : layers(`${name}.gate`, context.length * dim, widths, false);
    return { name, context, gate, mlp: layers(name, width, top.slice(0, -1), true) };
  };
  return [stream(contexts[0], 0), stream(contexts[1], 1)];
}

/**
 * The dense tensors, in the order of the graph's inputs. Each is drawn by itself: two streams that began
 * alike would stay close to each other. @throws BAD_ARGUMENT as `streamsOf`
 */
export function finalMlpParameters(shape: FinalMlpShape): DlrmParameter[] {
  const outputs = outputsOf(shape);
  const streams = streamsOf(shape).flatMap((stream) => [
    ...(stream.gate.length > 0
      ? parametersOf(stream.gate)
      : [{ name: constantGate(stream), shape: [widthOf(shape)] }]),
    ...parametersOf(stream.mlp),
    { name: linearWeight(stream), shape: [outputs, 1] },
  ]);
  const product = { name: FUSION_PRODUCT, shape: [(outputs * outputs) / shape.heads, 1] };
  const all = [...streams, product, { name: FUSION_BIAS, shape: [1] }];
  return all.map((parameter, draw) => ({ ...parameter, draw }));
}

interface MlpValues {
  /** Activations of the gate's MLP; empty without a context */
  gate: string[];
  /** Activations of the stream; the first is x through the gates */
  mlp: string[];
}

function forwardStream(graph: GraphBuilder, stream: GatedMlp, dim: number): MlpValues {
  const { name, context } = stream;
  let gate: string[] = [];
  if (context.length > 0) {
    graph.integers(`${name}.places`, context);
    graph.integers(`${name}.flat`, [-1, context.length * dim]);
    graph.node('Gather', [EMBEDDINGS, `${name}.places`], `${name}.rows`, { axis: 1 });
    graph.node('Reshape', [`${name}.rows`, `${name}.flat`], `${name}.context`);
    gate = forwardMlp(graph, stream.gate, `${name}.context`);
  }
  graph.node('Sigmoid', [gate.at(-1) ?? constantGate(stream)], `${name}.open`);
  graph.node('Add', [`${name}.open`, `${name}.open`], `${name}.gates`);
  const gated = graph.node('Mul', ['x', `${name}.gates`], `${name}.gated`);
  return { gate, mlp: forwardMlp(graph, stream.mlp, gated) };
}

/** [B, H] as [heads, B, H / heads]. */
function inHeads(graph: GraphBuilder, value: string): string {
  graph.node('Reshape', [value, 'head_shape'], `${value}.parts`);
  return graph.node('Transpose', [`${value}.parts`], `${value}.heads`, { perm: [1, 0, 2] });
}

/** The logits, [B, 1]. */
function fuse(
  graph: GraphBuilder,
  shape: FinalMlpShape,
  streams: [GatedMlp, GatedMlp],
  last: [string, string],
) {
  const { heads } = shape;
  const part = outputsOf(shape) / heads;
  graph.integers('head_shape', [-1, heads, part]);
  graph.integers('product_shape', [heads, part, part]);
  graph.integers('head_axes', [0, 2]);
  graph.integers('axis1', [1]);
  const [one, two] = [inHeads(graph, last[0]), inHeads(graph, last[1])];
  graph.node('Reshape', [FUSION_PRODUCT, 'product_shape'], 'product');
  graph.node('MatMul', [one, 'product'], 'through_product');
  graph.node('Mul', ['through_product', two], 'products');
  graph.node('ReduceSum', ['products', 'head_axes'], 'products_sum1', { keepdims: 0 });
  graph.node('Unsqueeze', ['products_sum1', 'axis1'], 'products_sum');
  graph.node('Gemm', [last[0], linearWeight(streams[0]), FUSION_BIAS], 'linear1');
  graph.node('MatMul', [last[1], linearWeight(streams[1])], 'linear2');
  graph.node('Add', ['linear1', 'linear2'], 'linear');
  return graph.node('Add', ['linear', 'products_sum'], 'logits');
}

/** Gradients of the fusion. Returns those of the results of the streams. */
function backwardFusion(
  graph: GraphBuilder,
  shape: FinalMlpShape,
  streams: [GatedMlp, GatedMlp],
  last: [string, string],
  dLogits: string,
): [string, string] {
  const outputs = outputsOf(shape);
  graph.integers('outputs_shape', [-1, outputs]);
  graph.integers('product_column', [-1, 1]);
  graph.node('ReduceSum', [dLogits, 'axis0'], gradientName(FUSION_BIAS), { keepdims: 0 });
  const [one, two] = last.map((value) => `${value}.heads`) as [string, string];
  graph.node('Mul', [two, dLogits], 'd_through_product');
  graph.node('Transpose', [one], 'first_turned', { perm: [0, 2, 1] });
  graph.node('MatMul', ['first_turned', 'd_through_product'], 'd_product');
  graph.node('Reshape', ['d_product', 'product_column'], gradientName(FUSION_PRODUCT));
  graph.node('Transpose', ['product'], 'product_turned', { perm: [0, 2, 1] });
  graph.node('MatMul', ['d_through_product', 'product_turned'], 'd_heads1');
  graph.node('Mul', ['through_product', dLogits], 'd_heads2');
  const gradientOf = (index: 0 | 1) => {
    const stream = streams[index];
    const heads = `d_heads${index + 1}`;
    graph.node('Gemm', [last[index], dLogits], gradientName(linearWeight(stream)), { transA: 1 });
    graph.node('Gemm', [dLogits, linearWeight(stream)], `${stream.name}.d_linear`, { transB: 1 });
    graph.node('Transpose', [heads], `${heads}.turned`, { perm: [1, 0, 2] });
    graph.node('Reshape', [`${heads}.turned`, 'outputs_shape'], `${heads}.flat`);
    return graph.node('Add', [`${heads}.flat`, `${stream.name}.d_linear`], `${stream.name}.d_last`);
  };
  return [gradientOf(0), gradientOf(1)];
}

/** Gradients of a stream. Returns x's, and that of all embeddings through the context, if there is one. */
function backwardStream(
  graph: GraphBuilder,
  stream: GatedMlp,
  values: MlpValues,
  gradient: string,
  { dim, embeddings }: FinalMlpShape,
): { x: string; embeddings?: string } {
  const { name, context } = stream;
  const gated = backwardMlp(graph, stream.mlp, values.mlp, gradient, true)!;
  const x = graph.node('Mul', [gated, `${name}.gates`], `${name}.d_x`);
  // The gates are 2 s, with s = sigmoid(z): their derivative for z is 2 s (1 - s).
  graph.node('Mul', [gated, 'x'], `${name}.d_gates`);
  graph.node('Sub', ['one', `${name}.open`], `${name}.closed`);
  graph.node('Mul', [`${name}.gates`, `${name}.closed`], `${name}.slope`);
  const logits = graph.node('Mul', [`${name}.d_gates`, `${name}.slope`], `${name}.d_gate_logits`);
  if (context.length === 0) {
    graph.node('ReduceSum', [logits, 'axis0'], gradientName(constantGate(stream)), { keepdims: 0 });
    return { x };
  }
  const flat = backwardMlp(graph, stream.gate, values.gate, logits, true)!;
  graph.integers(`${name}.context_shape`, [-1, context.length, dim]);
  graph.node('Reshape', [flat, `${name}.context_shape`], `${name}.d_context`);
  // Row e of this matrix chooses the place of the context that embedding e has, and zero if it has none.
  const chosen = Array.from({ length: embeddings }, (_, e) => context.map((place) => (place === e ? 1 : 0)));
  graph.floats(`${name}.chosen`, [embeddings, context.length], chosen.flat());
  return { x, embeddings: graph.node('MatMul', [`${name}.chosen`, `${name}.d_context`], `${name}.d_rows`) };
}

/** The model's bytes; inputs and outputs are named as those of DLRM. */
export function buildFinalMlp(shape: FinalMlpShape, training: boolean): Uint8Array {
  const { dense, embeddings, dim } = shape;
  const given = { ...shape, row: dim };
  const parameters = finalMlpParameters(shape);
  const graph = graphOf(FINAL_MLP, given, parameters, training);

  const streams = streamsOf(shape);
  graph.integers('vectors_flat', [-1, embeddings * dim]);
  graph.node('Reshape', [EMBEDDINGS, 'vectors_flat'], 'vectors');
  graph.node('Concat', [DENSE, 'vectors'], 'x', { axis: 1 });
  const values = streams.map((stream) => forwardStream(graph, stream, dim)) as [MlpValues, MlpValues];
  const last: [string, string] = [values[0].mlp.at(-1)!, values[1].mlp.at(-1)!];
  const logits = fuse(graph, shape, streams, last);
  graph.node('Sigmoid', [logits], 'probabilities2');
  if (!training) return predictor(graph, 'probabilities2');

  graph.integers('axis0', [0]);
  graph.floats('one', [], [1]);
  const dLast = backwardFusion(graph, shape, streams, last, lossAndGradient(graph, logits, shape.weighted));
  const gradients = streams.map((stream, index) =>
    backwardStream(graph, stream, values[index]!, dLast[index]!, shape),
  );
  graph.node('Add', [gradients[0]!.x, gradients[1]!.x], 'd_x');
  graph.integers('x_split', [dense, embeddings * dim]);
  graph.integers('vectors_shape', [-1, embeddings, dim]);
  graph.nodeOf('Split', ['d_x', 'x_split'], ['d_dense', 'd_vectors'], { axis: 1 });
  graph.node('Reshape', ['d_vectors', 'vectors_shape'], 'd_rows');
  const ways = ['d_rows', ...gradients.flatMap((each) => each.embeddings ?? [])];
  graph.node('Sum', ways, gradientName(EMBEDDINGS));
  return trainer(graph, given, parameters);
}
