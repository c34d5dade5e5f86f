/**
 * Pushes and pulls of every shard, begun at a steady pace whatever becomes of the earlier ones, so that a
 * stall shows in all that were begun meanwhile.
 */
import type { Client, Table } from '../../src/library/client/client.js';

import { monotonicMs } from '../../src/net/log.js';

const PAUSE_MS = 20;
const KEYS = 256;
const DIM = 8;

export class Requests {
  private readonly open = new Set<number>();
  private timer: NodeJS.Timeout | undefined;
  private worstMs = 0;
  private since = 0;
  private next = 0n;
  failed: Error | undefined;
  answered = 0;
  private readonly keys = new BigUint64Array(KEYS);
  private readonly gradients = new Float32Array(KEYS * DIM).fill(1);

  private constructor(
    private readonly table: Table,
    private readonly rows: number,
  ) {}

  static async begin(client: Client, rows: number): Promise<Requests> {
    const table = await client.createTable({ name: 'rows', dim: DIM, optimizer: { kind: 'sgd', lr: 1 } });
    const requests = new Requests(table, rows);
    for (let first = 0; first < rows; first += KEYS) await requests.push();
    requests.timer = setInterval(() => requests.both(), PAUSE_MS);
    return requests;
  }

  private both(): void {
    this.measured(this.push());
    this.measured(this.table.pull(this.nextKeys()));
  }

  private push(): Promise<void> {
    return this.table.push(this.nextKeys(), this.gradients);
  }

  private nextKeys(): BigUint64Array {
    for (let i = 0; i < KEYS; i++) this.keys[i] = this.next++ % BigInt(this.rows);
    return this.keys;
  }

  private measured(request: Promise<unknown>): void {
    const begun = monotonicMs();
    this.open.add(begun);
    request.then(
      () => {
        this.open.delete(begun);
        this.answered++;
        this.worstMs = Math.max(this.worstMs, monotonicMs() - Math.max(begun, this.since));
      },
      (error: Error) => {
        this.failed ??= error;
      },
    );
  }

  /**
   * From now on, for `forMs` and then until all that was begun by then is answered: the longest wait, in ms.
   */
  async longestWait(forMs: number): Promise<number> {
    this.since = monotonicMs();
    this.worstMs = 0;
    const until = this.since + forMs;
    const pending = (): boolean => [...this.open].some((begun) => begun <= until);
    while (monotonicMs() < until || pending()) {
      if (this.failed) throw this.failed;
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
    return this.worstMs;
  }

  stop(): void {
    clearInterval(this.timer);
  }
}
