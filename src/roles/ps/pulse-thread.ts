/**
 * The thread of a PS that proves that its process lives (rule 44). The event loop of a PS may be busy for
 * seconds, and then its heartbeats are late. The thread has a connection of its own, so no request stands
 * before a pulse. It reads a counter that the event loop raises, and tells the scheduler for how long that
 * has not changed.
 */
import { Worker, type WorkerOptions } from 'node:worker_threads';
import { describe } from '../../common/errors.js';
import type { Logger } from '../../net/log.js';
import type { ClientTls } from '../../net/transport/index.js';
import type { PeerId } from '../../protocol/map.js';

/** How the thread reaches the scheduler. */
export interface PulseRoute {
  /** Addresses as for `Uplink`. */
  scheduler: string;
  token: string | undefined;
  tls: ClientTls | undefined;
}

/** The process that the pulses are of, and the address of the scheduler that has let it in. */
export interface PulseIdentity {
  node: PeerId;
  inc: number;
  job: string;
  scheduler: string;
}

export interface PulseThreadData extends PulseRoute {
  /** Turns of the event loop, and the longest time between two of them, in ms; this thread sets that to 0. */
  turns: Int32Array;
  first: PulseIdentity;
}

/** The thread keeps a socket and small messages: without a limit it might take what the engine needs. */
const MEMORY = { maxOldGenerationSizeMb: 32, maxYoungGenerationSizeMb: 4 };
/** A thread that has failed is started again after this time. */
const RESTART_MS = 1000;

/** Makes the thread. @throws what the system says when it gives no thread */
type MakeThread = (script: URL, options: WorkerOptions) => Worker;
const makeThread: MakeThread = (script, options) => new Worker(script, options);

export class PulseThread {
  private readonly turns = new Int32Array(new SharedArrayBuffer(8));
  /** Milliseconds of the newest turn. */
  private turnedAt = performance.now();
  private identity: PulseIdentity | undefined;
  private thread: Worker | undefined;
  private timer: NodeJS.Timeout | undefined;
  private closed = false;

  constructor(
    private readonly route: PulseRoute,
    private readonly log: Logger,
    private readonly make = makeThread,
  ) {}

  /** Called in turns of the event loop, as often as the process wants to be known to turn. */
  turned(): void {
    const now = performance.now();
    const gapMs = Math.round(now - this.turnedAt);
    this.turnedAt = now;
    Atomics.add(this.turns, 0, 1);
    if (gapMs > Atomics.load(this.turns, 1)) Atomics.store(this.turns, 1, gapMs);
  }

  /** The scheduler has let this process in; the first time starts the thread. */
  tell(identity: PulseIdentity): void {
    this.identity = identity;
    if (this.thread) this.thread.postMessage(identity);
    else if (!this.timer) this.start(identity);
  }

  private start(first: PulseIdentity): void {
    if (this.closed) return;
    const workerData: PulseThreadData = { ...this.route, turns: this.turns, first };
    const script = new URL('./pulse-script.js', import.meta.url);
    try {
      this.thread = this.make(script, { workerData, resourceLimits: MEMORY });
    } catch (error) {
      // The heartbeats of the event loop go on.
      this.failed(error);
      return this.startLater();
    }
    this.thread.on('error', (error) => this.failed(error));
    this.thread.on('exit', () => {
      this.thread = undefined;
      this.startLater();
    });
    // The thread does not keep the process alive.
    this.thread.unref();
  }

  private failed(error: unknown): void {
    this.log.error('pulse.failed', { message: describe(error) });
  }

  private startLater(): void {
    if (this.closed) return;
    this.timer = setTimeout(() => {
      this.timer = undefined;
      this.start(this.identity!);
    }, RESTART_MS).unref();
  }

  async close(): Promise<void> {
    this.closed = true;
    clearTimeout(this.timer);
    await this.thread?.terminate();
  }
}
