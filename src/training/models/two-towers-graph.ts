/**
 * Two towers with in-batch softmax as an ONNX graph, forward and backward, as that of DLRM is
 * (dlrm-graph.ts): retrieval as in Yi et al., 2019, without their correction for popular items. The batch is
 * the sample of the softmax: the items of other samples are items that a sample did not take.
 *
 *   U = MLP(dense and the other embeddings, side by side)      [B, width]
 *   V = MLP(the embeddings of the item, side by side)          [B, width]
 *   S = U V'                                                   [B, B]
 *   loss = the mean of -log softmax(S[i])[i], weighted by weight * label: over the positive samples
 *   logit = S[i, i]
 *
 * A batch without a positive sample has the loss 0 and no gradient.
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
  LABELS,
  type Layer,
  LOSS,
  layers,
  parametersOf,
  predictor,
  trainer,
  WEIGHTS,
} from './dlrm-graph.js';
import type { GraphBuilder } from './onnx.js';

export const TWO_TOWERS = 'two-towers';

export interface TowersShape extends Omit<DlrmShape, 'bottom' | 'top'> {
  /** Widths of the layers of both towers */
  widths: readonly number[];
  /** Which of a sample's embeddings are those of the item, ascending */
  items: readonly number[];
}

interface Tower {
  name: 'query' | 'item';
  /** Which embeddings of a sample the tower takes */
  places: number[];
  /** Width of the dense columns that the tower takes beside them */
  dense: number;
  mlp: Layer[];
}

/** @throws BAD_ARGUMENT for a tower without embeddings */
function towersOf({ dim, dense, embeddings, items, widths }: TowersShape): Tower[] {
  const others = Array.from({ length: embeddings }, (_, place) => place).filter((at) => !items.includes(at));
  const tower = (name: Tower['name'], places: readonly number[], numbers: number): Tower => {
    if (places.length === 0)
      throw new KintsugiError('BAD_ARGUMENT', `${TWO_TOWERS}: the ${name} tower has no sparse column`);
    const mlp = layers(name, numbers + places.length * dim, widths, false);
    return { name, places: [...places], dense: numbers, mlp };
  };
  return [tower('query', others, dense), tower('item', items, 0)];
}

/** The dense tensors, in the order of the graph's inputs. @throws BAD_ARGUMENT as `towersOf` */
export function towersParameters(shape: TowersShape): DlrmParameter[] {
  return parametersOf(towersOf(shape).flatMap(({ mlp }) => mlp));
}

/** Names of the outputs of a tower's layers, after the input of the first one. */
function forwardTower(graph: GraphBuilder, { name, places, dense, mlp }: Tower, dim: number): string[] {
  graph.integers(`${name}_places`, places);
  graph.integers(`${name}_flat`, [-1, places.length * dim]);
  graph.node('Gather', [EMBEDDINGS, `${name}_places`], `${name}_rows`, { axis: 1 });
  let input = graph.node('Reshape', [`${name}_rows`, `${name}_flat`], `${name}_vectors`);
  if (dense > 0) input = graph.node('Concat', [DENSE, input], `${name}_input`, { axis: 1 });
  return forwardMlp(graph, mlp, input);
}

/** Gradients of a tower's layers. Returns that of its embeddings, [B, places, dim]. */
function backwardTower(
  graph: GraphBuilder,
  { name, places, dense, mlp }: Tower,
  values: readonly string[],
  gradient: string,
  dim: number,
): string {
  let input = backwardMlp(graph, mlp, values, gradient, true)!;
  if (dense > 0) {
    graph.integers(`${name}_split`, [dense, places.length * dim]);
    graph.nodeOf('Split', [input, `${name}_split`], [`d_${name}_dense`, `d_${name}_flat`], { axis: 1 });
    input = `d_${name}_flat`;
  }
  graph.integers(`${name}_shape`, [-1, places.length, dim]);
  return graph.node('Reshape', [input, `${name}_shape`], `d_${name}_rows`);
}

/** The loss, and the gradient of S. */
function softmaxLoss(graph: GraphBuilder, products: string, chosen: string, weighted: boolean): string {
  const weights = weighted ? graph.node('Mul', [LABELS, WEIGHTS], 'label_weights') : LABELS;
  graph.integers('column', [-1, 1]);
  graph.floats('least', [], [1e-30]);
  graph.node('ReduceSum', [weights], 'weights_sum', { keepdims: 0 });
  graph.node('Max', ['weights_sum', 'least'], 'divisor');
  graph.node('Div', [weights, 'divisor'], 'shares1');
  graph.node('Reshape', ['shares1', 'column'], 'shares');
  graph.node('ReduceLogSumExp', [products], 'log_sums', { axes: [1], keepdims: 1 });
  graph.node('Sub', ['log_sums', chosen], 'losses');
  graph.node('Mul', ['losses', 'shares'], 'losses_weighted');
  graph.node('ReduceSum', ['losses_weighted'], LOSS, { keepdims: 0 });
  graph.node('Softmax', [products], 'softmax', { axis: 1 });
  graph.node('EyeLike', [products], 'identity', { dtype: 1 });
  graph.node('Sub', ['softmax', 'identity'], 'errors');
  return graph.node('Mul', ['errors', 'shares'], 'd_products');
}

/** The model's bytes; inputs and outputs are named as those of DLRM. */
export function buildTowers(shape: TowersShape, training: boolean): Uint8Array {
  const { dim } = shape;
  const given = { ...shape, row: dim };
  const parameters = towersParameters(shape);
  const graph = graphOf('two_towers', given, parameters, training);

  const [query, item] = towersOf(shape) as [Tower, Tower];
  const queryValues = forwardTower(graph, query, dim);
  const itemValues = forwardTower(graph, item, dim);
  const [u, v] = [queryValues.at(-1)!, itemValues.at(-1)!];
  graph.integers('axis1', [1]);
  graph.node('Mul', [u, v], 'own_products');
  graph.node('ReduceSum', ['own_products', 'axis1'], 'logits', { keepdims: 1 });
  if (!training) return predictor(graph, graph.node('Sigmoid', ['logits'], 'probabilities2'));

  graph.integers('axis0', [0]);
  graph.node('Gemm', [u, v], 'products', { transB: 1 });
  const dProducts = softmaxLoss(graph, 'products', 'logits', shape.weighted);
  const dU = graph.node('MatMul', [dProducts, v], 'd_query_vector');
  const dV = graph.node('Gemm', [dProducts, u], 'd_item_vector', { transA: 1 });
  const dQuery = backwardTower(graph, query, queryValues, dU, dim);
  const dItem = backwardTower(graph, item, itemValues, dV, dim);
  const order = [...query.places, ...item.places];
  graph.integers(
    'own_places',
    order.map((_, place) => order.indexOf(place)),
  );
  graph.node('Concat', [dQuery, dItem], 'd_rows', { axis: 1 });
  graph.node('Gather', ['d_rows', 'own_places'], gradientName(EMBEDDINGS), { axis: 1 });
  return trainer(graph, given, parameters);
}
