/**
 * The default model: DLRM (Naumov et al., 2019) on the Criteo layout. All 26 category columns share one
 * table: the key carries its column, so a table per column would only multiply requests. The dense math runs
 * in ONNX runtime, on a thread of its own.
 */
import { KintsugiError } from '../errors.js';
import type { InitializerSpec } from '../native.js';
import { ComputeThread } from './compute.js';
import {
  buildDlrm,
  DENSE,
  type DlrmParameter,
  type DlrmShape,
  dlrmParameters,
  EMBEDDINGS,
  gradientName,
  LABELS,
  LOSS,
  PROBABILITIES,
} from './dlrm-graph.js';
import type { GraphName, Graphs, NamedValues, Values } from './onnx-sessions.js';
import {
  type Batch,
  CATEGORY_FIELDS,
  DENSE_FIELDS,
  type DenseTensor,
  type Model,
  type ModelOptions,
  type SparseTable,
  type StepResult,
} from './trainer.js';

/** Widths of layers as in "256-64-1". Throws BAD_ARGUMENT. */
export function parseWidths(flag: string, text: string): number[] {
  const widths = text.split('-').map((part) => (/^[1-9]\d{0,5}$/.test(part) ? Number(part) : Number.NaN));
  if (widths.some(Number.isNaN)) {
    throw new KintsugiError('BAD_ARGUMENT', `--${flag} must be widths like 64-16, not "${text}"`);
  }
  return widths;
}

function widthsOption(options: ModelOptions, flag: 'bottom' | 'top', fallback: number[]): number[] {
  const value = options[flag];
  if (value === undefined) return fallback;
  if (typeof value === 'string') return parseWidths(flag, value);
  throw new KintsugiError('BAD_ARGUMENT', `--${flag} must be widths like 64-16`);
}

/**
 * He for what feeds a ReLU: variance 2 / inputs. The last top layer gets Xavier, 2 / (inputs + outputs):
 * smaller first logits. Biases start at zero.
 */
function initializerOf({ shape }: DlrmParameter): InitializerSpec {
  const [inputs, outputs] = shape;
  if (inputs === undefined || outputs === undefined) return { kind: 'zeros' };
  const limit = Math.sqrt(6 / (outputs === 1 ? inputs + outputs : inputs));
  return { kind: 'uniform', low: -limit, high: limit };
}

/**
 * Half-width of the initial values of embeddings: the size of Adagrad's first step at the usual learning rate
 * (0.05). It reaches the reference AUC; other values were not compared.
 */
const EMBEDDING_LIMIT = 0.05;

class Dlrm implements Model {
  readonly tables: readonly SparseTable[];
  readonly tensors: readonly DenseTensor[];
  /** Memory of inputs and of the trainer's outputs, used again where the size is the same. */
  private inputs: NamedValues = {};
  private outputs: NamedValues | undefined;

  constructor(
    private readonly options: ModelOptions,
    private readonly parameters: readonly DlrmParameter[],
    private readonly compute: ComputeThread,
  ) {
    const { dim, optimizer, denseOptimizer } = options;
    const initializer: InitializerSpec = { kind: 'uniform', low: -EMBEDDING_LIMIT, high: EMBEDDING_LIMIT };
    this.tables = [{ name: 'embedding', dim, optimizer, initializer }];
    this.tensors = parameters.map((parameter) => ({
      ...parameter,
      optimizer: denseOptimizer,
      initializer: initializerOf(parameter),
    }));
  }

  keys(batch: Batch): BigUint64Array[] {
    return [batch.keys];
  }

  /** A copy in memory that can go to the other thread: what the loop gives belongs to the loop. */
  private input(name: string, values: Float32Array, dims: readonly number[]): Values {
    const before = this.inputs[name]?.data;
    const data = before?.length === values.length ? before : new Float32Array(values.length);
    data.set(values);
    return { data, dims };
  }

  private feeds(batch: Batch, rows: Float32Array[], dense: Float32Array[]): NamedValues {
    const { size } = batch;
    const feeds: NamedValues = {
      [DENSE]: this.input(DENSE, batch.dense, [size, DENSE_FIELDS]),
      [EMBEDDINGS]: this.input(EMBEDDINGS, rows[0]!, [size, CATEGORY_FIELDS, this.options.dim]),
    };
    for (const [index, { name, shape }] of this.parameters.entries()) {
      feeds[name] = this.input(name, dense[index]!, shape);
    }
    return feeds;
  }

  async step(batch: Batch, rows: Float32Array[], dense: Float32Array[]): Promise<StepResult> {
    const inputs = this.feeds(batch, rows, dense);
    inputs[LABELS] = this.input(LABELS, batch.labels, [batch.size]);
    const full = batch.size === this.options.batch;
    const outputs = await this.run('trainer', inputs, full ? this.outputs : undefined);
    if (full) this.outputs = outputs;
    const values = (name: string) => outputs[name]!.data;
    return {
      loss: values(LOSS)[0]!,
      rowGrads: [values(gradientName(EMBEDDINGS))],
      denseGrads: this.parameters.map(({ name }) => values(gradientName(name))),
    };
  }

  async predict(batch: Batch, rows: Float32Array[], dense: Float32Array[]): Promise<Float32Array> {
    const outputs = await this.run('predictor', this.feeds(batch, rows, dense));
    return outputs[PROBABILITIES]!.data;
  }

  /** Memory that is given is gone until it comes back, and for good when that fails. */
  private async run(graph: GraphName, inputs: NamedValues, outputs?: NamedValues): Promise<NamedValues> {
    this.inputs = {};
    if (outputs) this.outputs = undefined;
    const done = await this.compute.run({ graph, inputs, outputs });
    this.inputs = done.inputs;
    return done.outputs;
  }

  close(): Promise<void> {
    return this.compute.close();
  }
}

/**
 * Makes a DLRM. Own options: `bottom` ("64-<dim>") and `top` ("256-64-1"), the widths of the layers. Throws
 * BAD_ARGUMENT for widths that do not fit and DEPENDENCY_MISSING without onnxruntime-node.
 */
export async function createDlrm(
  options: ModelOptions,
  start: (graphs: Graphs) => Promise<ComputeThread> = (graphs) => ComputeThread.start(graphs),
): Promise<Model> {
  const shape: DlrmShape = {
    dim: options.dim,
    bottom: widthsOption(options, 'bottom', [64, options.dim]),
    top: widthsOption(options, 'top', [256, 64, 1]),
  };
  const [trainer, predictor] = [buildDlrm(shape, true), buildDlrm(shape, false)];
  const compute = await start({ trainer, predictor, threads: options.threads });
  return new Dlrm(options, dlrmParameters(shape), compute);
}

export default createDlrm;
