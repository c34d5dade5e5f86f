/**
 * DLRM as an ONNX graph, forward and backward. ONNX runtime executes graphs but does not differentiate them,
 * so the gradient nodes are written out here; a test compares them with finite differences.
 *
 *   x = bottom MLP(dense)                          [B, dim]       ReLU after every layer
 *   T = x and the E embeddings                     [B, E + 1, dim]
 *   Z = T T', below the diagonal                   [B, E (E + 1) / 2]
 *   logit = top MLP(x and Z)                       [B]            ReLU between layers
 *   loss = mean over B of weight * (softplus(logit) - label * logit)
 *          (binary cross-entropy, stable for large logits; weights only where samples have some)
 *
 * Backward through the interaction: with L the matrix that has dZ below the diagonal and zeros elsewhere, dT
 * = (L + L') T. Weights are inputs [in, out] of every run, because they live on the parameter server.
 */

import { KintsugiError } from '../../common/errors.js';
import { GraphBuilder } from './onnx.js';

export interface DlrmShape {
  dim: number;
  /** Width of the dense input */
  dense: number;
  /** Embeddings of a sample: E */
  embeddings: number;
  /** Samples have weights */
  weighted: boolean;
  /** Widths of the bottom layers; the last is `dim` */
  bottom: readonly number[];
  /** Widths of the top layers; the last is 1 */
  top: readonly number[];
}

export interface DlrmParameter {
  name: string;
  shape: number[];
  /** As in `DenseTensor` */
  draw?: number;
}

/** Names of the graph's inputs and outputs; a parameter's gradient is `gradientName` of its name. */
export const DENSE = 'dense';
export const EMBEDDINGS = 'embeddings';
export const LABELS = 'labels';
export const WEIGHTS = 'weights';
export const LOSS = 'loss';
export const PROBABILITIES = 'probabilities';
export function gradientName(value: string): string {
  return `d_${value}`;
}

export interface Layer {
  weight: string;
  bias: string;
  inputs: number;
  outputs: number;
  relu: boolean;
}

export function layers(name: string, inputs: number, widths: readonly number[], reluAtEnd: boolean): Layer[] {
  return widths.map((outputs, index) => ({
    weight: `${name}.${index}.weight`,
    bias: `${name}.${index}.bias`,
    inputs: index === 0 ? inputs : widths[index - 1]!,
    outputs,
    relu: reluAtEnd || index < widths.length - 1,
  }));
}

function allLayers({ dim, dense, embeddings, bottom, top }: DlrmShape): { bottom: Layer[]; top: Layer[] } {
  if (bottom.at(-1) !== dim) {
    throw new KintsugiError(
      'BAD_ARGUMENT',
      `the last bottom layer must be as wide as an embedding: ${bottom.join('-')} does not end in ${dim}`,
    );
  }
  if (top.at(-1) !== 1) {
    throw new KintsugiError('BAD_ARGUMENT', `the last top layer must have width 1: ${top.join('-')}`);
  }
  return {
    bottom: layers('bottom', dense, bottom, true),
    top: layers('top', dim + (embeddings * (embeddings + 1)) / 2, top, false),
  };
}

/**
 * The dense tensors of this DLRM, in the order of the graph's inputs. Throws BAD_ARGUMENT for layers that do
 * not fit.
 */
export function dlrmParameters(shape: DlrmShape): DlrmParameter[] {
  const { bottom, top } = allLayers(shape);
  return parametersOf([...bottom, ...top]);
}

/** The dense tensors of layers. */
export function parametersOf(all: readonly Layer[]): DlrmParameter[] {
  return all.flatMap(({ weight, bias, inputs, outputs }) => [
    { name: weight, shape: [inputs, outputs] },
    { name: bias, shape: [outputs] },
  ]);
}

/** Activations of an MLP: its input, then each layer's result. */
export function forwardMlp(graph: GraphBuilder, mlp: readonly Layer[], input: string): string[] {
  const values = [input];
  for (const { weight, bias, relu } of mlp) {
    const sum = graph.node('Gemm', [values.at(-1)!, weight, bias], `${weight}.sum`);
    values.push(relu ? graph.node('Relu', [sum], `${weight}.relu`) : sum);
  }
  return values;
}

/**
 * Gradients of all layers, from the gradient of the last result. Returns that of the input, if it is wanted.
 */
export function backwardMlp(
  graph: GraphBuilder,
  mlp: readonly Layer[],
  values: readonly string[],
  gradient: string,
  wantInput: boolean,
): string | undefined {
  let current: string | undefined = gradient;
  for (let index = mlp.length - 1; index >= 0; index--) {
    const { weight, bias, relu } = mlp[index]!;
    if (relu) {
      // A ReLU's result is never negative, so its sign is the derivative: 0 or 1.
      const mask = graph.node('Sign', [values[index + 1]!], `${weight}.mask`);
      current = graph.node('Mul', [current!, mask], `${weight}.masked`);
    }
    graph.node('Gemm', [values[index]!, current!], gradientName(weight), { transA: 1 });
    graph.node('ReduceSum', [current!, 'axis0'], gradientName(bias), { keepdims: 0 });
    current =
      index > 0 || wantInput
        ? graph.node('Gemm', [current!, weight], `${weight}.back`, { transB: 1 })
        : undefined;
  }
  return current;
}

/**
 * The pairs below the diagonal of a [B, (E + 1) x (E + 1)] matrix are the first i places of every row i.
 * Cutting rows in two with one Split and joining pieces with one Concat copies runs of floats; a Gather by
 * place copies single floats and took 40 % of a step.
 */
const rowsBelow = (embeddings: number) => Array.from({ length: embeddings }, (_, index) => index + 1);
const below = (prefix: string, rows: readonly number[]) => rows.map((row) => `${prefix}.below.${row}`);
const REST = 'products.rest.';

/** From the bottom MLP's result to the top MLP's input. */
function forwardInteraction(graph: GraphBuilder, bottom: string, embeddings: number): string {
  const rows = rowsBelow(embeddings);
  const features = embeddings + 1;
  graph.integers('axis1', [1]);
  graph.integers('flat', [-1, features * features]);
  graph.integers('row_cuts', [features, ...rows.flatMap((row) => [row, features - row])]);
  graph.node('Unsqueeze', [bottom, 'axis1'], 'bottom3');
  graph.node('Concat', ['bottom3', EMBEDDINGS], 'features', { axis: 1 });
  graph.node('Transpose', ['features'], 'features_t', { perm: [0, 2, 1] });
  graph.node('MatMul', ['features', 'features_t'], 'products');
  graph.node('Reshape', ['products', 'flat'], 'products_flat');
  const pairs = below('products', rows);
  const pieces = [`${REST}0`, ...pairs.flatMap((piece, index) => [piece, `${REST}${index + 1}`])];
  graph.nodeOf('Split', ['products_flat', 'row_cuts'], pieces, { axis: 1 });
  return graph.node('Concat', [bottom, ...pairs], 'top_input', { axis: 1 });
}

/** Writes the gradient of the embeddings; returns that of the bottom MLP's result. */
function backwardInteraction(
  graph: GraphBuilder,
  gradient: string,
  { dim, embeddings }: Pick<DlrmShape, 'dim' | 'embeddings'>,
): string {
  const wanted = rowsBelow(embeddings);
  graph.integers('top_split', [dim, ...wanted]);
  graph.integers('square', [-1, embeddings + 1, embeddings + 1]);
  graph.integers('strictly_below', [-1], []);
  graph.integers('feature_split', [1, embeddings]);
  const pairs = below('d_products', wanted);
  graph.nodeOf('Split', [gradient, 'top_split'], ['d_direct', ...pairs], { axis: 1 });
  // Any values may fill the rows from the diagonal on, because Trilu writes zeros there. The pieces of the
  // forward pass have the right sizes.
  const rows = [`${REST}0`, ...pairs.flatMap((piece, index) => [piece, `${REST}${index + 1}`])];
  graph.node('Concat', rows, 'd_filled_flat', { axis: 1 });
  graph.node('Reshape', ['d_filled_flat', 'square'], 'd_filled');
  graph.node('Trilu', ['d_filled', 'strictly_below'], 'd_lower', { upper: 0 });
  graph.node('Transpose', ['d_lower'], 'd_upper', { perm: [0, 2, 1] });
  graph.node('MatMul', ['d_lower', 'features'], 'd_features_lower');
  graph.node('MatMul', ['d_upper', 'features'], 'd_features_upper');
  graph.node('Add', ['d_features_lower', 'd_features_upper'], 'd_features');
  const outputs = ['d_bottom3', gradientName(EMBEDDINGS)];
  graph.nodeOf('Split', ['d_features', 'feature_split'], outputs, { axis: 1 });
  graph.node('Squeeze', ['d_bottom3', 'axis1'], 'd_crossed');
  return graph.node('Add', ['d_direct', 'd_crossed'], 'd_bottom');
}

/** The loss, and the gradient of the mean loss for the logits [B, 1]: (sigmoid(logit) - label) / B. */
export function lossAndGradient(graph: GraphBuilder, logits: string, weighted: boolean): string {
  const weigh = (values: string): string =>
    weighted ? graph.node('Mul', [values, 'weights2'], `${values}.weighted`) : values;
  if (weighted) graph.integers('weights_column', [-1, 1]);
  if (weighted) graph.node('Reshape', [WEIGHTS, 'weights_column'], 'weights2');
  graph.integers('column', [-1, 1]);
  graph.node('Reshape', [LABELS, 'column'], 'labels2');
  graph.node('Softplus', [logits], 'softplus');
  graph.node('Mul', ['labels2', logits], 'label_logit');
  graph.node('Sub', ['softplus', 'label_logit'], 'losses');
  graph.node('ReduceMean', [weigh('losses')], LOSS, { keepdims: 0 });
  graph.node('Size', [LABELS], 'size');
  graph.node('Cast', ['size'], 'size_float', { to: 1 });
  graph.node('Sub', ['probabilities2', 'labels2'], 'errors');
  return graph.node('Div', [weigh('errors'), 'size_float'], 'd_logits');
}

/** Inputs that every model has of a batch; `row`: values of an embedding's row. */
export interface GraphShape extends Pick<DlrmShape, 'dense' | 'embeddings' | 'weighted'> {
  row: number;
}

/** A graph with the inputs that all models have. */
export function graphOf(
  model: string,
  { dense, embeddings, weighted, row }: GraphShape,
  parameters: readonly DlrmParameter[],
  training: boolean,
): GraphBuilder {
  const graph = new GraphBuilder(`${model}_${training ? 'step' : 'predict'}`);
  graph.input(DENSE, ['B', dense]);
  graph.input(EMBEDDINGS, ['B', embeddings, row]);
  if (training) graph.input(LABELS, ['B']);
  if (training && weighted) graph.input(WEIGHTS, ['B']);
  for (const parameter of parameters) graph.input(parameter.name, parameter.shape);
  return graph;
}

/** The bytes of a graph whose only output are these probabilities, [B, 1]. */
export function predictor(graph: GraphBuilder, probabilities: string): Uint8Array {
  graph.integers('rows', [-1]);
  graph.output(graph.node('Reshape', [probabilities, 'rows'], PROBABILITIES), ['B']);
  return graph.encode();
}

/** The bytes of a graph whose outputs are the loss and all gradients. */
export function trainer(
  graph: GraphBuilder,
  { embeddings, row }: GraphShape,
  parameters: readonly DlrmParameter[],
): Uint8Array {
  graph.output(LOSS, []);
  graph.output(gradientName(EMBEDDINGS), ['B', embeddings, row]);
  for (const parameter of parameters) graph.output(gradientName(parameter.name), parameter.shape);
  return graph.encode();
}

/**
 * The model's bytes. `training`: inputs dense, embeddings [B, E, dim], labels [B], perhaps weights [B], and
 * the parameters; outputs loss [], d_embeddings and d_<parameter>. Otherwise: no labels, and probabilities
 * [B] as the only output.
 */
export function buildDlrm(shape: DlrmShape, training: boolean): Uint8Array {
  const { bottom, top } = allLayers(shape);
  const given = { ...shape, row: shape.dim };
  const parameters = dlrmParameters(shape);
  const graph = graphOf('dlrm', given, parameters, training);

  const bottomValues = forwardMlp(graph, bottom, DENSE);
  const topInput = forwardInteraction(graph, bottomValues.at(-1)!, shape.embeddings);
  const topValues = forwardMlp(graph, top, topInput);
  const logits = topValues.at(-1)!;
  graph.node('Sigmoid', [logits], 'probabilities2');
  if (!training) return predictor(graph, 'probabilities2');

  graph.integers('axis0', [0]);
  const dLogits = lossAndGradient(graph, logits, shape.weighted);
  const dTop = backwardMlp(graph, top, topValues, dLogits, true)!;
  const dBottom = backwardInteraction(graph, dTop, shape);
  backwardMlp(graph, bottom, bottomValues, dBottom, false);
  return trainer(graph, given, parameters);
}
