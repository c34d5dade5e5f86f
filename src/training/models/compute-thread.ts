/** Program of the thread of a `ComputeThread`: it runs one graph after the other. */
import { parentPort, workerData } from 'node:worker_threads';
import { codeOf, describe } from '../../common/errors.js';
import { type ComputeAnswer, type ComputeOrder, memoryOf } from './compute.js';
import { type Graphs, OnnxSessions } from './onnx-sessions.js';

const port = parentPort!;
const { graphs, busy } = workerData as { graphs: Graphs; busy: Int32Array };

async function answered(make: () => Promise<ComputeAnswer>): Promise<void> {
  let answer: ComputeAnswer;
  try {
    answer = await make();
  } catch (error) {
    const code = codeOf(error, 'MODEL');
    answer = { kind: 'failed', code, message: describe(error) };
  }
  Atomics.store(busy, 0, 0);
  Atomics.notify(busy, 0);
  port.postMessage(answer, answer.kind === 'done' ? memoryOf(answer.inputs, answer.outputs) : []);
}

let sessions: OnnxSessions;
await answered(async () => {
  sessions = await OnnxSessions.create(graphs);
  return { kind: 'ready' };
});
port.on('message', ({ graph, inputs, outputs }: ComputeOrder) =>
  answered(async () => ({ kind: 'done', inputs, outputs: await sessions.run(graph, inputs, outputs) })),
);
port.on('messageerror', (error) => answered(() => Promise.reject(error)));
