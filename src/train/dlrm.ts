/**
 * The default model: DLRM (Naumov et al., 2019) on the Criteo layout. All 26 category columns share one table: the key
 * carries its column, so a table per column would only multiply requests. The dense math runs in ONNX runtime, which is
 * loaded when a model is made, so that everything else works without the package.
 */
import type { InferenceSession, Tensor, TensorConstructor } from 'onnxruntime-node';
import { describe, KintsugiError } from '../errors.js';
import type { InitializerSpec } from '../native.js';
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

type Runtime = Pick<typeof import('onnxruntime-node'), 'InferenceSession' | 'Tensor'>;

async function importRuntime(load: () => Promise<unknown>): Promise<Runtime> {
  try {
    const module = (await load()) as Runtime & { default?: Runtime };
    return module.default ?? module;
  } catch (error) {
    throw new KintsugiError(
      'DEPENDENCY_MISSING',
      `DLRM needs the package onnxruntime-node (${describe(error).slice(0, 160)}); run "npm install onnxruntime-node", or pass --model`,
      { cause: error },
    );
  }
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
 * He for what feeds a ReLU: variance 2 / inputs. The last top layer gets Xavier, 2 / (inputs + outputs): smaller first
 * logits. Biases start at zero.
 */
function initializerOf({ shape }: DlrmParameter): InitializerSpec {
  const [inputs, outputs] = shape;
  if (inputs === undefined || outputs === undefined) return { kind: 'zeros' };
  const limit = Math.sqrt(6 / (outputs === 1 ? inputs + outputs : inputs));
  return { kind: 'uniform', low: -limit, high: limit };
}

/**
 * Half-width of the initial values of embeddings: the size of Adagrad's first step at the usual learning rate (0.05). It
 * reaches the reference AUC; other values were not compared.
 */
const EMBEDDING_LIMIT = 0.05;

class Dlrm implements Model {
  readonly tables: readonly SparseTable[];
  readonly tensors: readonly DenseTensor[];
  /** Results of full batches are written to the same memory every time. */
  private readonly buffers: Record<string, Tensor> = {};

  constructor(
    private readonly options: ModelOptions,
    private readonly parameters: readonly DlrmParameter[],
    private readonly tensorOf: TensorConstructor,
    private readonly trainer: InferenceSession,
    private readonly predictor: InferenceSession,
  ) {
    const { dim, batch, optimizer, denseOptimizer } = options;
    const initializer: InitializerSpec = { kind: 'uniform', low: -EMBEDDING_LIMIT, high: EMBEDDING_LIMIT };
    this.tables = [{ name: 'embedding', dim, optimizer, initializer }];
    this.tensors = parameters.map((parameter) => ({
      ...parameter,
      optimizer: denseOptimizer,
      initializer: initializerOf(parameter),
    }));
    this.buffer(LOSS, []);
    this.buffer(gradientName(EMBEDDINGS), [batch, CATEGORY_FIELDS, dim]);
    for (const { name, shape } of parameters) this.buffer(gradientName(name), shape);
  }

  private buffer(name: string, shape: number[]): void {
    const size = shape.reduce((product, extent) => product * extent, 1);
    this.buffers[name] = new this.tensorOf('float32', new Float32Array(size), shape);
  }

  keys(batch: Batch): BigUint64Array[] {
    return [batch.keys];
  }

  private feeds(batch: Batch, rows: Float32Array[], dense: Float32Array[]): Record<string, Tensor> {
    const { size } = batch;
    const feeds: Record<string, Tensor> = {
      [DENSE]: new this.tensorOf('float32', batch.dense, [size, DENSE_FIELDS]),
      [EMBEDDINGS]: new this.tensorOf('float32', rows[0]!, [size, CATEGORY_FIELDS, this.options.dim]),
    };
    for (const [index, { name, shape }] of this.parameters.entries()) {
      feeds[name] = new this.tensorOf('float32', dense[index]!, shape);
    }
    return feeds;
  }

  async step(batch: Batch, rows: Float32Array[], dense: Float32Array[]): Promise<StepResult> {
    const feeds = this.feeds(batch, rows, dense);
    feeds[LABELS] = new this.tensorOf('float32', batch.labels, [batch.size]);
    const full = batch.size === this.options.batch;
    const results = full ? await this.trainer.run(feeds, this.buffers) : await this.trainer.run(feeds);
    const values = (name: string) => results[name]!.data as Float32Array;
    return {
      loss: values(LOSS)[0]!,
      rowGrads: [values(gradientName(EMBEDDINGS))],
      denseGrads: this.parameters.map(({ name }) => values(gradientName(name))),
    };
  }

  async predict(batch: Batch, rows: Float32Array[], dense: Float32Array[]): Promise<Float32Array> {
    const results = await this.predictor.run(this.feeds(batch, rows, dense));
    return results[PROBABILITIES]!.data as Float32Array;
  }

  async close(): Promise<void> {
    await this.trainer.release();
    await this.predictor.release();
  }
}

/**
 * Makes a DLRM. Own options: `bottom` ("64-<dim>") and `top` ("256-64-1"), the widths of the layers. Throws BAD_ARGUMENT
 * for widths that do not fit and DEPENDENCY_MISSING without onnxruntime-node.
 */
export async function createDlrm(
  options: ModelOptions,
  load: () => Promise<unknown> = () => import('onnxruntime-node'),
): Promise<Model> {
  const shape: DlrmShape = {
    dim: options.dim,
    bottom: widthsOption(options, 'bottom', [64, options.dim]),
    top: widthsOption(options, 'top', [256, 64, 1]),
  };
  const parameters = dlrmParameters(shape);
  const runtime = await importRuntime(load);
  const session = (training: boolean) =>
    runtime.InferenceSession.create(buildDlrm(shape, training), {
      executionProviders: ['cpu'],
      executionMode: 'sequential',
      intraOpNumThreads: options.threads,
      interOpNumThreads: 1,
      graphOptimizationLevel: 'all',
      // 3 = errors only: warnings about optimisations that did not apply are not for the user.
      logSeverityLevel: 3,
    });
  return new Dlrm(options, parameters, runtime.Tensor, await session(true), await session(false));
}

export default createDlrm;
