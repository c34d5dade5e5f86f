/**
 * Pushes under the numbers of a session that several clients may work for, one after the other: whoever repeats a push takes
 * the same number for it, and no shard applies it twice. For that every push must be made in the same order with the same
 * keys, whoever makes it: which shards it goes to, and so its numbers, depend on nothing else.
 */
import type { Client, PullRequest, PushCounts, PushRequest, RequestOptions } from './client.js';

export class PushSequence {
  private turn: Promise<void> = Promise.resolve();

  constructor(
    private readonly client: Client,
    readonly session: number,
  ) {}

  /** The next push: somebody else has made it, and it is durable. Keys must be unique. */
  skip(requests: readonly PullRequest[]): void {
    this.client.skip(requests, this.session);
  }

  /**
   * The next push. Keys must be unique. Resolves when it is durable, applied now or before.
   * @throws what `Client.push` throws
   */
  async push(requests: readonly PushRequest[], options: RequestOptions = {}): Promise<void> {
    const begins = this.turn;
    let end = () => {};
    this.turn = new Promise<void>((resolve) => {
      end = resolve;
    });
    try {
      await this.client.pushInTurn(requests, options, { client: this.session, begins, end });
    } finally {
      end();
    }
  }

  /** Per shard: how many pushes the sequence has had so far, skipped ones included. */
  counts(): PushCounts[] {
    return this.client.pushCounts(this.session);
  }

  /** Gives up what is under way; others may go on. */
  close(): void {
    this.client.wire.step({ kind: 'leave', client: this.session });
  }
}
