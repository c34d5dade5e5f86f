/**
 * Pushes under the numbers of a session that several clients work for, one after the other.
 *
 * A client that repeats a push takes the same number for it, so no shard applies it twice. For that, every
 * push must be made in the same order with the same keys: its shards, and so its numbers, depend on nothing
 * else.
 */

import { describe, KintsugiError } from '../../common/errors.js';
import type { Client } from './client.js';
import { internalsOf } from './connected.js';
import type { ClientInternals } from './internals.js';
import type { PullRequest, PushCounts, PushRequest, RequestOptions } from './options.js';

export class PushSequence {
  private turn: Promise<void> = Promise.resolve();
  /**
   * Set after a push that failed before it had its numbers. The pushes after it would take numbers that other
   * clients use for other pushes.
   */
  private over: KintsugiError | undefined;

  private readonly internals: ClientInternals;

  /** @param session whose numbers the pushes of `client` take */
  constructor(
    client: Client,
    readonly session: number,
  ) {
    this.internals = internalsOf(client);
  }

  /**
   * The next push: somebody else has made it, and it is durable. Keys must be unique. @throws ABORTED as
   * `push`
   */
  skip(requests: readonly PullRequest[]): void {
    this.check();
    this.internals.requests.skip(requests, this.session);
  }

  /**
   * The next push. Keys must be unique. Resolves when it is durable, applied now or before.
   * @throws what `Client.push` throws; ABORTED after `close`, and after a push that failed before it had its
   * numbers
   */
  async push(requests: readonly PushRequest[], options: RequestOptions = {}): Promise<void> {
    const begins = this.turn;
    let numbered = false;
    let end = () => {};
    this.turn = new Promise<void>((resolve) => {
      end = () => {
        numbered = true;
        resolve();
      };
    });
    try {
      const check = () => this.check();
      const turn = { client: this.session, begins, check, end };
      await this.internals.requests.push(requests, 'values', options, turn);
    } catch (error) {
      await begins;
      if (!numbered)
        this.over ??= new KintsugiError('ABORTED', `a push before this one failed: ${describe(error)}`, {
          cause: error,
        });
      throw error;
    } finally {
      end();
    }
  }

  private check(): void {
    if (this.over) throw this.over;
  }

  /** Per shard: how many pushes the sequence has had so far, skipped ones included. */
  counts(): PushCounts[] {
    return this.internals.requests.counts(this.session);
  }

  /** Gives up what is under way; others may go on, also another sequence of this client. */
  close(): void {
    this.over ??= new KintsugiError('ABORTED', 'the sequence is closed');
    this.internals.session.step({ kind: 'leave', client: this.session });
  }
}
