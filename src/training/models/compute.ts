/**
 * Graphs that run on a thread of their own. ONNX runtime computes on the thread that calls it, and the worker
 * must read rows, send pushes and answer the scheduler meanwhile. Values are transferred both ways, so
 * nothing is copied. The caller's arrays are empty until they come back.
 */
import { Worker } from 'node:worker_threads';
import { describe, type ErrorCode, KintsugiError } from '../../common/errors.js';
import type { GraphName, Graphs, NamedValues } from './onnx-sessions.js';

export interface ComputeOrder {
  graph: GraphName;
  inputs: NamedValues;
  /** Memory for outputs; without it the runtime makes some */
  outputs?: NamedValues | undefined;
}

/** Messages of the thread: first `ready`, then an answer to every order, in their order. */
export type ComputeAnswer =
  | { kind: 'ready' }
  | { kind: 'done'; inputs: NamedValues; outputs: NamedValues }
  | { kind: 'failed'; code: ErrorCode; message: string };

type Done = Extract<ComputeAnswer, { kind: 'done' }>;

/** The memory behind values, to be transferred. */
export function memoryOf(...values: (NamedValues | undefined)[]): ArrayBuffer[] {
  const all = values.flatMap((named) => Object.values(named ?? {}));
  return [...new Set(all.map(({ data }) => data.buffer as ArrayBuffer))];
}

/** A process that ends waits so long for what its threads are computing. */
const LAST_MS = 10_000;

export class ComputeThread {
  private readonly waiting: { resolve(answer: ComputeAnswer): void; reject(error: Error): void }[] = [];
  private ended: Error | undefined;

  private constructor(
    private readonly thread: Worker,
    private readonly busy: Int32Array,
  ) {
    thread.on('message', (answer: ComputeAnswer) => {
      const waiter = this.waiting.shift()!;
      if (answer.kind === 'failed') waiter.reject(new KintsugiError(answer.code, answer.message));
      else waiter.resolve(answer);
      this.hold();
    });
    const end = (how: string) => this.end(new KintsugiError('INTERNAL', `the thread that computes ${how}`));
    thread.on('error', (error) => end(`failed: ${describe(error)}`));
    thread.on('messageerror', (error) => end(`said what cannot be read: ${describe(error)}`));
    thread.on('exit', () => {
      process.off('exit', this.awaitLast);
      end('has ended');
    });
    // ONNX runtime that finds its thread gone when it has computed aborts the process.
    process.on('exit', this.awaitLast);
  }

  /**
   * @throws DEPENDENCY_MISSING without onnxruntime-node, MODEL for graphs that it refuses, INTERNAL when the
   * thread dies
   */
  static async start(
    graphs: Graphs,
    script: URL = new URL('./compute-thread.js', import.meta.url),
  ): Promise<ComputeThread> {
    const busy = new Int32Array(new SharedArrayBuffer(4)).fill(1);
    const compute = new ComputeThread(new Worker(script, { workerData: { graphs, busy } }), busy);
    try {
      await compute.next();
    } catch (error) {
      await compute.close();
      throw error;
    }
    return compute;
  }

  /**
   * Runs a graph, one at a time. All memory that was given comes back with the answer.
   * @throws MODEL when it cannot be computed, INTERNAL when the thread died; then the memory is gone
   */
  async run(order: ComputeOrder): Promise<{ inputs: NamedValues; outputs: NamedValues }> {
    if (this.ended) throw this.ended;
    Atomics.store(this.busy, 0, 1);
    this.thread.postMessage(order, memoryOf(order.inputs, order.outputs));
    return (await this.next()) as Done;
  }

  /** Ends the thread when it has computed what it was asked for. */
  async close(): Promise<void> {
    this.ended ??= new KintsugiError('INTERNAL', 'the thread that computes was closed');
    if (this.waiting.length > 0)
      await new Promise<void>((resolve) =>
        this.thread.once('message', () => resolve()).once('exit', () => resolve()),
      );
    await this.thread.terminate();
  }

  private readonly awaitLast = (): void => {
    Atomics.wait(this.busy, 0, 1, LAST_MS);
  };

  private next(): Promise<ComputeAnswer> {
    const answer = new Promise<ComputeAnswer>((resolve, reject) => this.waiting.push({ resolve, reject }));
    this.hold();
    return answer;
  }

  /** A thread that has nothing to do does not keep the process alive. */
  private hold(): void {
    if (this.waiting.length > 0) this.thread.ref();
    else this.thread.unref();
  }

  private end(error: Error): void {
    this.ended ??= error;
    for (const waiter of this.waiting.splice(0)) waiter.reject(error);
  }
}
