/**
 * The two graphs of a model in ONNX runtime, which is loaded when they are made, so that everything else
 * works without the package. `run` computes on the thread that calls it, so nothing else happens there
 * meanwhile: see compute.ts.
 */
import type { InferenceSession, Tensor } from 'onnxruntime-node';
import { importOptional } from '../../common/optional.js';

export type GraphName = 'trainer' | 'predictor';

export interface Graphs {
  /** ONNX models, encoded */
  trainer: Uint8Array;
  predictor: Uint8Array;
  /** Threads of ONNX runtime */
  threads: number;
  /** The package; default `onnxruntime-node` */
  runtime?: string | undefined;
}

/** Values in row-major order and the extents of their dimensions. */
export interface TensorValues {
  data: Float32Array;
  dims: readonly number[];
}

export type NamedValues = Record<string, TensorValues>;

type Runtime = Pick<typeof import('onnxruntime-node'), 'InferenceSession' | 'Tensor'>;

async function importRuntime(name?: string): Promise<Runtime> {
  const module = await importOptional<Runtime & { default?: Runtime }>('onnxruntime-node', name);
  return module.default ?? module;
}

export class OnnxSessions {
  private constructor(
    private readonly runtime: Runtime,
    private readonly sessions: Record<GraphName, InferenceSession>,
  ) {}

  /** @throws DEPENDENCY_MISSING without the package */
  static async create({ trainer, predictor, threads, runtime: name }: Graphs): Promise<OnnxSessions> {
    const runtime = await importRuntime(name);
    const session = (graph: Uint8Array) =>
      runtime.InferenceSession.create(graph, {
        executionProviders: ['cpu'],
        executionMode: 'sequential',
        intraOpNumThreads: threads,
        interOpNumThreads: 1,
        graphOptimizationLevel: 'all',
        // 3 = errors only: warnings about optimisations that did not apply are not for the user.
        logSeverityLevel: 3,
      });
    return new OnnxSessions(runtime, {
      trainer: await session(trainer),
      predictor: await session(predictor),
    });
  }

  /** All outputs of the graph, or those that are named, written to the memory that is given for them. */
  async run(graph: GraphName, inputs: NamedValues, outputs?: NamedValues): Promise<NamedValues> {
    const results = await (outputs
      ? this.sessions[graph].run(this.tensors(inputs), this.tensors(outputs))
      : this.sessions[graph].run(this.tensors(inputs)));
    return Object.fromEntries(
      Object.entries(results).map(([name, { data, dims }]) => [name, { data: data as Float32Array, dims }]),
    );
  }

  private tensors(values: NamedValues): Record<string, Tensor> {
    return Object.fromEntries(
      Object.entries(values).map(([name, { data, dims }]) => [
        name,
        new this.runtime.Tensor('float32', data, dims),
      ]),
    );
  }
}
