/**
 * Wide & deep (Cheng et al., 2016), DeepFM (Guo et al., 2017) and DCN v2 (Wang et al., 2021, stacked) as ONNX
 * graphs, forward and backward, as that of DLRM is (dlrm-graph.ts). With v the E embeddings of a sample and
 * x = dense and v side by side:
 *
 *   wide-and-deep  logit = MLP(x) + dense w + sum of the weights of the values
 *   deepfm         the same + the sum of the products of all pairs of v
 *   dcnv2          logit = MLP(x after three cross layers); one makes of a: x * (a W + b) + a
 *
 * Where values have weights, a row is one wider than an embedding: its first value is the weight.
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

export const CTR_MODELS = ['wide-and-deep', 'deepfm', 'dcnv2'] as const;
export type CtrModel = (typeof CTR_MODELS)[number];

const CROSS_LAYERS = 3;
const WIDE = 'wide.weight';

/** Values of a row beside its embedding. */
export function extraValues(model: CtrModel): number {
  return model === 'dcnv2' ? 0 : 1;
}

const widthOf = ({ dense, embeddings, dim }: DlrmShape) => dense + embeddings * dim;

function deepLayers(shape: DlrmShape): Layer[] {
  const { top } = shape;
  if (top.at(-1) === 1) return layers('top', widthOf(shape), top, false);
  throw new KintsugiError('BAD_ARGUMENT', `the last top layer must have width 1: ${top.join('-')}`);
}

function crossLayers(model: CtrModel, shape: DlrmShape): Layer[] {
  if (model !== 'dcnv2') return [];
  const width = widthOf(shape);
  return layers('cross', width, Array<number>(CROSS_LAYERS).fill(width), false);
}

/** The dense tensors, in the order of the graph's inputs. @throws BAD_ARGUMENT for layers that do not fit */
export function ctrParameters(model: CtrModel, shape: DlrmShape): DlrmParameter[] {
  const wide = model === 'dcnv2' ? [] : [{ name: WIDE, shape: [shape.dense, 1] }];
  return [...wide, ...parametersOf([...crossLayers(model, shape), ...deepLayers(shape)])];
}

interface Forward {
  /** The results of the cross layers, with x first */
  crossed: string[];
  /** The input of the MLP, and the outputs of its layers */
  deep: string[];
  logits: string;
}

function forward(graph: GraphBuilder, model: CtrModel, shape: DlrmShape): Forward {
  const { dim, embeddings } = shape;
  const linear = extraValues(model) > 0;
  graph.integers('flat', [-1, embeddings * dim]);
  if (linear) {
    graph.integers('row_split', [1, dim]);
    graph.nodeOf('Split', [EMBEDDINGS, 'row_split'], ['value_weights', 'vectors'], { axis: 2 });
  }
  const vectors = linear ? 'vectors' : EMBEDDINGS;
  graph.node('Reshape', [vectors, 'flat'], 'vectors_flat');
  graph.node('Concat', [DENSE, 'vectors_flat'], 'x', { axis: 1 });
  const crossed = ['x'];
  for (const { weight, bias } of crossLayers(model, shape)) {
    graph.node('Gemm', [crossed.at(-1)!, weight, bias], `${weight}.sum`);
    graph.node('Mul', ['x', `${weight}.sum`], `${weight}.product`);
    crossed.push(graph.node('Add', [`${weight}.product`, crossed.at(-1)!], `${weight}.crossed`));
  }
  const deep = forwardMlp(graph, deepLayers(shape), crossed.at(-1)!);
  let logits = deep.at(-1)!;
  if (linear) {
    graph.integers('axis1', [1]);
    graph.node('MatMul', [DENSE, WIDE], 'wide_dense');
    graph.node('ReduceSum', ['value_weights', 'axis1'], 'wide_values3', { keepdims: 0 });
    graph.node('Add', ['wide_dense', 'wide_values3'], 'wide');
    logits = graph.node('Add', [logits, 'wide'], 'wide_logits');
  }
  if (model === 'deepfm') {
    graph.node('ReduceSum', ['vectors', 'axis1'], 'vectors_sum', { keepdims: 1 });
    graph.node('Mul', ['vectors_sum', 'vectors_sum'], 'sum_squared');
    graph.node('Mul', ['vectors', 'vectors'], 'squares');
    graph.node('ReduceSum', ['squares', 'axis1'], 'squares_sum', { keepdims: 1 });
    graph.node('Sub', ['sum_squared', 'squares_sum'], 'twice_pairs');
    graph.integers('axis2', [2]);
    graph.node('ReduceSum', ['twice_pairs', 'axis2'], 'twice_pairs_sum', { keepdims: 0 });
    graph.floats('half', [], [0.5]);
    graph.node('Mul', ['twice_pairs_sum', 'half'], 'pairs');
    logits = graph.node('Add', [logits, 'pairs'], 'pair_logits');
  }
  return { crossed, deep, logits };
}

/** Gradients of the cross layers. Returns that of x. */
function backwardCross(graph: GraphBuilder, cross: readonly Layer[], crossed: string[], gradient: string) {
  let current = gradient;
  // The gradient that reaches x past the layers.
  let direct: string | undefined;
  for (let index = cross.length - 1; index >= 0; index--) {
    const { weight, bias } = cross[index]!;
    const past = graph.node('Mul', [current, `${weight}.sum`], `${weight}.past`);
    direct = direct === undefined ? past : graph.node('Add', [direct, past], `${weight}.past_all`);
    const sum = graph.node('Mul', [current, 'x'], `${weight}.d_sum`);
    graph.node('Gemm', [crossed[index]!, sum], gradientName(weight), { transA: 1 });
    graph.node('ReduceSum', [sum, 'axis0'], gradientName(bias), { keepdims: 0 });
    const through = graph.node('Gemm', [sum, weight], `${weight}.through`, { transB: 1 });
    current = graph.node('Add', [current, through], `${weight}.back`);
  }
  return direct === undefined ? current : graph.node('Add', [current, direct], 'd_x');
}

function backward(
  graph: GraphBuilder,
  model: CtrModel,
  shape: DlrmShape,
  { crossed, deep }: Forward,
  dLogits: string,
): void {
  const { dense, dim, embeddings } = shape;
  const dDeep = backwardMlp(graph, deepLayers(shape), deep, dLogits, true)!;
  const dX = backwardCross(graph, crossLayers(model, shape), crossed, dDeep);
  graph.integers('x_split', [dense, embeddings * dim]);
  graph.integers('vectors_shape', [-1, embeddings, dim]);
  graph.nodeOf('Split', [dX, 'x_split'], ['d_dense', 'd_flat'], { axis: 1 });
  if (extraValues(model) === 0) {
    graph.node('Reshape', ['d_flat', 'vectors_shape'], gradientName(EMBEDDINGS));
    return;
  }
  let vectors = graph.node('Reshape', ['d_flat', 'vectors_shape'], 'd_vectors_deep');
  graph.node('Gemm', [DENSE, dLogits], gradientName(WIDE), { transA: 1 });
  graph.node('Unsqueeze', [dLogits, 'axis1'], 'd_logits3');
  if (model === 'deepfm') {
    // The product of a vector with all others is that with their sum, without itself.
    graph.node('Sub', ['vectors_sum', 'vectors'], 'others');
    graph.node('Mul', ['others', 'd_logits3'], 'd_pairs');
    vectors = graph.node('Add', [vectors, 'd_pairs'], 'd_vectors');
  }
  graph.floats('ones', [1, embeddings, 1], Array<number>(embeddings).fill(1));
  graph.node('Mul', ['d_logits3', 'ones'], 'd_value_weights');
  graph.node('Concat', ['d_value_weights', vectors], gradientName(EMBEDDINGS), { axis: 2 });
}

/** The model's bytes; inputs and outputs are named as those of DLRM. */
export function buildCtr(model: CtrModel, shape: DlrmShape, training: boolean): Uint8Array {
  const given = { ...shape, row: shape.dim + extraValues(model) };
  const parameters = ctrParameters(model, shape);
  const graph = graphOf(model, given, parameters, training);
  const values = forward(graph, model, shape);
  graph.node('Sigmoid', [values.logits], 'probabilities2');
  if (!training) return predictor(graph, 'probabilities2');
  graph.integers('axis0', [0]);
  backward(graph, model, shape, values, lossAndGradient(graph, values.logits, shape.weighted));
  return trainer(graph, given, parameters);
}
