/**
 * Graphs that run on a thread of their own. ONNX runtime computes on the thread that asks it to, and while a model computes the
 * worker has to read the next batch's rows, send pushes and answer the scheduler. Values go over and come back by transfer:
 * nothing is copied, and whoever gave an array finds it empty until it comes back.
 */
import { Worker } from 'node:worker_threads';
import { type ErrorCode, KintsugiError } from '../errors.js';
import type { GraphName, Graphs, NamedValues } from './onnx-sessions.js';

export interface Order {
  graph: GraphName;
  inputs: NamedValues;
  /** Memory for outputs; without it the runtime makes some */
  outputs?: NamedValues | undefined;
}

/** What the thread says: first `ready`, then an answer to every order, in their order. */
export type Answer =
  | { kind: 'ready' }
  | { kind: 'done'; inputs: NamedValues; outputs: NamedValues }
  | { kind: 'failed'; code: ErrorCode; message: string };

type Done = Extract<Answer, { kind: 'done' }>;

/** The memory behind values, to be transferred. */
export function memoryOf(...values: (NamedValues | undefined)[]): ArrayBuffer[] {
  const all = values.flatMap((named) => Object.values(named ?? {}));
  return [...new Set(all.map(({ data }) => data.buffer as ArrayBuffer))];
}

export class ComputeThread {
  private readonly waiting: { resolve(answer: Answer): void; reject(error: Error): void }[] = [];
  private ended: Error | undefined;

  private constructor(private readonly thread: Worker) {
    thread.on('message', (answer: Answer) => {
      const waiter = this.waiting.shift()!;
      if (answer.kind === 'failed') waiter.reject(new KintsugiError(answer.code, answer.message));
      else waiter.resolve(answer);
      this.hold();
    });
    thread.on('error', (error) => this.end(error));
    thread.on('exit', () => this.end(new KintsugiError('MODEL', 'the thread that computes has ended')));
  }

  /** @throws DEPENDENCY_MISSING without onnxruntime-node, MODEL for graphs that it refuses */
  static async start(
    graphs: Graphs,
    script: URL = new URL('./compute-thread.js', import.meta.url),
  ): Promise<ComputeThread> {
    const compute = new ComputeThread(new Worker(script, { workerData: graphs }));
    try {
      await compute.next();
    } catch (error) {
      await compute.close();
      throw error;
    }
    return compute;
  }

  /** One at a time. All memory that was given is in the answer again. @throws MODEL; then the memory is lost */
  async run(order: Order): Promise<{ inputs: NamedValues; outputs: NamedValues }> {
    const answered = this.next();
    if (!this.ended) this.thread.postMessage(order, memoryOf(order.inputs, order.outputs));
    return (await answered) as Done;
  }

  async close(): Promise<void> {
    await this.thread.terminate();
  }

  private next(): Promise<Answer> {
    if (this.ended) return Promise.reject(this.ended);
    const answer = new Promise<Answer>((resolve, reject) => this.waiting.push({ resolve, reject }));
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
    for (const waiter of this.waiting.splice(0)) waiter.reject(this.ended);
  }
}
