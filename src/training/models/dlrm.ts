/**
 * The built-in models, on the Criteo layout or on what a schema describes. The default is DLRM (Naumov et
 * al., 2019); the others are in ctr-graphs.ts, final-mlp-graph.ts and two-towers-graph.ts. All 26 category
 * columns of the Criteo layout share one table: the key carries its column, so a table per column would only
 * multiply requests. The dense math runs in ONNX runtime, on a thread of its own.
 */

import { KintsugiError } from '../../common/errors.js';
import { CATEGORY_FIELDS, DENSE_FIELDS } from '../../data/criteo.js';
import { COMMON_TABLE, denseWidth, type Schema } from '../../data/schema.js';
import type { InitializerSpec } from '../../engine/native.js';
import { ComputeThread } from './compute.js';
import { buildCtr, CTR_MODELS, ctrParameters, extraValues } from './ctr-graphs.js';
import {
  buildDlrm,
  DENSE,
  type DlrmParameter,
  dlrmParameters,
  EMBEDDINGS,
  gradientName,
  LABELS,
  LOSS,
  PROBABILITIES,
  WEIGHTS,
} from './dlrm-graph.js';
import { buildFinalMlp, FINAL_MLP, finalMlpParameters } from './final-mlp-graph.js';
import type { GraphName, Graphs, NamedValues, TensorValues } from './onnx-sessions.js';
import { BagPooling } from './pooling.js';
import {
  type Batch,
  COMMON_OPTIONS,
  type DenseTensor,
  type Model,
  type ModelOptions,
  type SparseTable,
  type StepResult,
} from './trainer.js';
import { buildTowers, TWO_TOWERS, towersParameters } from './two-towers-graph.js';

/** Names for `--model-name`. */
export const MODEL_NAMES = ['dlrm', ...CTR_MODELS, FINAL_MLP, TWO_TOWERS] as const;
export type ModelName = (typeof MODEL_NAMES)[number];

/** Options of a model by name, as `--model-option` takes them. */
function ownOptions(name: ModelName): readonly string[] {
  if (name === 'dlrm') return ['bottom', 'top'];
  if (name === TWO_TOWERS) return ['bottom', 'items'];
  return name === FINAL_MLP ? ['top', 'gate1', 'gate2', 'heads'] : ['top'];
}

/** @throws BAD_ARGUMENT for an option that the model does not have; `bottom` and `top` are checked with it */
function checkOptions(name: ModelName, options: ModelOptions): void {
  const own = ownOptions(name);
  const known = [...COMMON_OPTIONS.keys(), 'modelName', 'bottom', 'top', ...own];
  const unknown = Object.keys(options).find((flag) => !known.includes(flag));
  if (unknown === undefined) return;
  const text = `--model-option ${unknown}: the options of ${name} are ${own.join(', ')}`;
  throw new KintsugiError('BAD_ARGUMENT', text);
}

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
 * Initial values. He for layers that feed a ReLU: variance 2 / inputs. The last top layer gets Xavier, 2 /
 * (inputs + outputs): smaller first logits. Biases start at zero.
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

/** Inputs of the graph for a batch. */
interface Inputs {
  /** Values of a row */
  row: number;
  /** Width of `dense` */
  width: number;
  /** Embeddings of a sample */
  embeddings: number;
  tables: readonly SparseTable[];
  keys(batch: Batch): BigUint64Array[];
  dense(batch: Batch): Float32Array;
  pooling?: BagPooling;
}

function tablesOf({ optimizer }: ModelOptions, dim: number, tables: Schema['tables']): SparseTable[] {
  const initializer: InitializerSpec = { kind: 'uniform', low: -EMBEDDING_LIMIT, high: EMBEDDING_LIMIT };
  return tables.map((table) => ({
    name: table.name,
    dim,
    optimizer: table.optimizer ?? optimizer,
    initializer: table.initializer ?? initializer,
  }));
}

/** @throws BAD_ARGUMENT for a schema that this model cannot train */
function inputsOf(options: ModelOptions, extra: number): Inputs {
  const { dim, schema } = options;
  const row = dim + extra;
  if (!schema) {
    return {
      row,
      width: DENSE_FIELDS,
      embeddings: CATEGORY_FIELDS,
      tables: tablesOf(options, row, [{ name: COMMON_TABLE }]),
      keys: (batch) => [batch.keys],
      dense: (batch) => batch.dense,
    };
  }
  const other = schema.tables.find((table) => (table.dim ?? dim) !== dim);
  if (other) {
    const text = `the table "${other.name}" has dim ${other.dim}, and this model has rows of --dim ${dim}`;
    throw new KintsugiError('BAD_ARGUMENT', `${text}: give it no other, or pass --model`);
  }
  if (schema.labels.length > 1) {
    const text = `this model has one label, not ${schema.labels.length}`;
    throw new KintsugiError('BAD_ARGUMENT', `${text}: give one in the schema, or pass --model`);
  }
  const pooling = new BagPooling(schema, row);
  const width = denseWidth(schema);
  return {
    row,
    // Without numbers the bottom MLP learns a constant.
    width: Math.max(1, width),
    embeddings: pooling.embeddings,
    tables: tablesOf(options, row, schema.tables),
    keys: (batch) => pooling.keys(batch),
    dense: (batch) => (width > 0 ? batch.dense : new Float32Array(batch.size).fill(1)),
    pooling,
  };
}

class BuiltIn implements Model {
  readonly tables: readonly SparseTable[];
  readonly tensors: readonly DenseTensor[];
  /** Memory of inputs and of the trainer's outputs, used again where the size is the same. */
  private inputs: NamedValues = {};
  private outputs: NamedValues | undefined;

  constructor(
    private readonly options: ModelOptions,
    private readonly given: Inputs,
    private readonly parameters: readonly DlrmParameter[],
    private readonly compute: ComputeThread,
  ) {
    const { denseOptimizer } = options;
    this.tables = given.tables;
    this.tensors = parameters.map((parameter) => ({
      ...parameter,
      optimizer: denseOptimizer,
      initializer: initializerOf(parameter),
    }));
  }

  keys(batch: Batch): BigUint64Array[] {
    return this.given.keys(batch);
  }

  /** Memory that can go to the other thread. */
  private memory(name: string, length: number): Float32Array {
    const before = this.inputs[name]?.data;
    return before?.length === length ? before : new Float32Array(length);
  }

  /** An input as a copy: the arrays of a batch belong to the loop. */
  private input(name: string, values: Float32Array, dims: readonly number[]): TensorValues {
    const data = this.memory(name, values.length);
    data.set(values);
    return { data, dims };
  }

  private embeddings(batch: Batch, rows: Float32Array[]): TensorValues {
    const { row, embeddings, pooling } = this.given;
    const dims = [batch.size, embeddings, row];
    if (!pooling) return this.input(EMBEDDINGS, rows[0]!, dims);
    const data = this.memory(EMBEDDINGS, batch.size * embeddings * row);
    pooling.forward(batch, rows, data);
    return { data, dims };
  }

  private feeds(batch: Batch, rows: Float32Array[], dense: Float32Array[]): NamedValues {
    const { size } = batch;
    const feeds: NamedValues = {
      [DENSE]: this.input(DENSE, this.given.dense(batch), [size, this.given.width]),
      [EMBEDDINGS]: this.embeddings(batch, rows),
    };
    for (const [index, { name, shape }] of this.parameters.entries()) {
      feeds[name] = this.input(name, dense[index]!, shape);
    }
    return feeds;
  }

  async step(batch: Batch, rows: Float32Array[], dense: Float32Array[]): Promise<StepResult> {
    const inputs = this.feeds(batch, rows, dense);
    inputs[LABELS] = this.input(LABELS, batch.labels, [batch.size]);
    if (batch.weights) inputs[WEIGHTS] = this.input(WEIGHTS, batch.weights, [batch.size]);
    const full = batch.size === this.options.batch;
    const outputs = await this.run('trainer', inputs, full ? this.outputs : undefined);
    if (full) this.outputs = outputs;
    const values = (name: string) => outputs[name]!.data;
    const gradient = values(gradientName(EMBEDDINGS));
    return {
      loss: values(LOSS)[0]!,
      rowGrads: this.given.pooling?.backward(batch, gradient, rows) ?? [gradient],
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

/** Values of a row beside its embedding. */
function extraOf(name: ModelName): number {
  const ctr = CTR_MODELS.find((each) => each === name);
  return ctr ? extraValues(ctr) : 0;
}

/**
 * Places of the embeddings of an option's sparse columns: names with commas between them.
 * @throws BAD_ARGUMENT for names that the schema does not have; `wanted` is what its text begins with
 */
function columnsOf(value: unknown, { schema }: ModelOptions, { pooling }: Inputs, wanted: string): number[] {
  if (!schema || !pooling || typeof value !== 'string') throw new KintsugiError('BAD_ARGUMENT', wanted);
  const names = value.split(',');
  const unknown = names.find((name) => !schema.sparse.some(({ column }) => column === name));
  if (unknown !== undefined)
    throw new KintsugiError('BAD_ARGUMENT', `${wanted}: the schema has no sparse column "${unknown}"`);
  return pooling.placesOf(names);
}

/** Which embeddings are those of the item, of the option `items`. @throws BAD_ARGUMENT as `columnsOf` */
function itemsOf(options: ModelOptions, given: Inputs): number[] {
  const wanted = `--model-name ${TWO_TOWERS} needs a schema and --model-option items=COLUMN,...`;
  return columnsOf(options.items, options, given, `${wanted}: the sparse columns that describe the item`);
}

/** The options `gate1` and `gate2` of FinalMLP, and its `heads`. @throws BAD_ARGUMENT as `columnsOf` */
function streamOptions(options: ModelOptions, given: Inputs) {
  const contextOf = (flag: 'gate1' | 'gate2') => {
    const wanted = `--model-option ${flag}=COLUMN,... of ${FINAL_MLP} names sparse columns of a schema`;
    return options[flag] === undefined ? [] : columnsOf(options[flag], options, given, wanted);
  };
  const contexts: [number[], number[]] = [contextOf('gate1'), contextOf('gate2')];
  return { contexts, heads: Number(options.heads ?? 1) };
}

/** Parameters and graphs of a model by name. @throws BAD_ARGUMENT for options that the model does not have */
function graphsOf(name: ModelName, options: ModelOptions, given: Inputs) {
  const { dim, schema } = options;
  const refuse = (flag: 'bottom' | 'top', text: string) => {
    if (options[flag] !== undefined) throw new KintsugiError('BAD_ARGUMENT', `--${flag} is for ${text}`);
  };
  const weighted = schema?.weight !== undefined;
  const inputs = { dim, dense: given.width, embeddings: given.embeddings, weighted };
  const bottom = widthsOption(options, 'bottom', [64, dim]);
  if (name === TWO_TOWERS) {
    refuse('top', `the other models: ${name} has two towers of the widths of --bottom`);
    const shape = { ...inputs, widths: bottom, items: itemsOf(options, given) };
    const build = (training: boolean) => buildTowers(shape, training);
    return { parameters: towersParameters(shape), trainer: build(true), predictor: build(false) };
  }
  if (name !== 'dlrm') refuse('bottom', `dlrm and ${TWO_TOWERS}: ${name} has top layers only`);
  const top = widthsOption(options, 'top', [256, 64, 1]);
  if (name === FINAL_MLP) {
    const shape = { ...inputs, top, ...streamOptions(options, given) };
    const build = (training: boolean) => buildFinalMlp(shape, training);
    return { parameters: finalMlpParameters(shape), trainer: build(true), predictor: build(false) };
  }
  const shape = { ...inputs, bottom, top };
  const build = (training: boolean) =>
    name === 'dlrm' ? buildDlrm(shape, training) : buildCtr(name, shape, training);
  const parameters = name === 'dlrm' ? dlrmParameters(shape) : ctrParameters(name, shape);
  return { parameters, trainer: build(true), predictor: build(false) };
}

/**
 * Makes a built-in model: DLRM, or what `modelName` names. Own options: `bottom` ("64-<dim>") and `top`
 * ("256-64-1"), the widths of the layers; two towers have `bottom` and `items`, FinalMLP `top`, `gate1`,
 * `gate2` and `heads`. Throws BAD_ARGUMENT for other options, widths that do not fit and schemas that it
 * cannot train, and DEPENDENCY_MISSING without onnxruntime-node.
 */
export async function createDlrm(
  options: ModelOptions,
  start: (graphs: Graphs) => Promise<ComputeThread> = (graphs) => ComputeThread.start(graphs),
): Promise<Model> {
  const name = (options.modelName ?? 'dlrm') as ModelName;
  if (!MODEL_NAMES.includes(name)) {
    const text = `--model-name must be one of ${MODEL_NAMES.join(', ')}, not ${String(name)}`;
    throw new KintsugiError('BAD_ARGUMENT', text);
  }
  checkOptions(name, options);
  const given = inputsOf(options, extraOf(name));
  const { parameters, trainer, predictor } = graphsOf(name, options, given);
  const compute = await start({ trainer, predictor, threads: options.threads });
  return new BuiltIn(options, given, parameters, compute);
}

export default createDlrm;
