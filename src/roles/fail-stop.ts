/**
 * Fail-stop: an exception in the core means that an invariant is broken, and that the state machine may be
 * half changed. Its role ends: it logs the state that it had, closes its connections as a crash would, and
 * reports the error to whoever started it. The command line then ends its process with exit code 1; in a
 * library the process of the host lives on.
 *
 * Where the system refuses memory in the midst of a step the role ends likewise, with MEMORY_LIMIT. A shard
 * that is taken over, and a sink, are given back instead.
 *
 * An error of a message is no such exception: the core throws it before it changes anything, and only the
 * connection of the message closes.
 */
import { describe, isRefusal, KintsugiError } from '../common/errors.js';
import type { LogFields } from '../net/log.js';

export interface FailStopOptions {
  role: 'ps' | 'scheduler';
  /** Logs why, and the state. */
  report(fields: LogFields): void;
  /** The state of the machine for the log; may be called in any state. */
  state(): unknown;
  /** Ends the role at once. What is broken may refuse to be closed. */
  stop(): Promise<void>;
  onFailed?: ((error: KintsugiError) => void) | undefined;
}

export class FailStop {
  /** Why the role has ended. */
  error: KintsugiError | undefined;

  constructor(private readonly options: FailStopOptions) {}

  /**
   * Runs a step of the machine; undefined when that ended the role. `refusable`: the step takes a message.
   * @throws what is wrong with the message
   */
  run<T>(step: () => T, refusable: boolean): T | undefined {
    if (this.error) return undefined;
    try {
      return step();
    } catch (error) {
      if (refusable && isRefusal(error)) throw error;
      this.fail(error);
      return undefined;
    }
  }

  private fail(cause: unknown): void {
    const { role, onFailed } = this.options;
    const message = describe(cause);
    // No invariant is broken, but what was begun cannot be taken back: a shard must have its slabs.
    const refused = (cause as { code?: unknown } | undefined)?.code === 'MEMORY_LIMIT';
    const code = refused ? 'MEMORY_LIMIT' : 'INTERNAL';
    this.error = new KintsugiError(code, `the ${role} has ended: ${message}`, { cause });
    const stack = cause instanceof Error ? cause.stack : undefined;
    this.report({ message, stack, state: this.state() });
    this.options.stop().catch((error: unknown) => this.report({ message: describe(error) }));
    onFailed?.(this.error);
  }

  /** A log that fails must not keep the role alive. `onFailed` is told of the error that ended the role. */
  private report(fields: LogFields): void {
    try {
      this.options.report(fields);
    } catch {}
  }

  /** A machine that is broken may not be able to tell its state. */
  private state(): unknown {
    try {
      return this.options.state();
    } catch (error) {
      return describe(error);
    }
  }
}
