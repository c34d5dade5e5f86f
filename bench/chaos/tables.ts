/**
 * Tables that are made, pushed to and dropped in the middle of the faults. A name is free again at once, and
 * a table that takes it begins without rows.
 */
import { seededRandom } from '../../src/fleet/local/kills.js';
import type { Client } from '../../src/library/client/client.js';
import { monotonicMs } from '../../src/net/log.js';
import { pause } from './pause.js';

const NAMES = 3;
const KEYS = 500;
const MOST_DIM = 16;
const PAUSE_MS = 200;

export interface DropsOptions {
  client: Client;
  seed: number;
  onDrop(name: string): void;
  onError(error: Error): void;
}

export class ChaosTables {
  /** Tables that were dropped */
  dropped = 0;
  private readonly random: () => number;

  constructor(private readonly options: DropsOptions) {
    this.random = seededRandom(options.seed);
  }

  /** Tables, one after the other, until `until` (monotonic milliseconds) or an abort. */
  async run(until: number, signal: AbortSignal): Promise<void> {
    try {
      // A restored job may have tables of these names.
      for (let index = 0; index < NAMES; index++) await this.drop(nameOf(index));
      while (monotonicMs() < until && !signal.aborted) {
        await this.once(nameOf(this.random() % NAMES));
        await pause(PAUSE_MS);
      }
    } catch (error) {
      this.options.onError(error as Error);
    }
  }

  private async drop(name: string): Promise<void> {
    const { client } = this.options;
    if (client.tables().some((table) => table.name === name)) await client.table(name).drop();
  }

  /** @throws Error for a row that is not what was pushed, or that is there before any push */
  private async once(name: string): Promise<void> {
    const { client, onDrop } = this.options;
    const dim = 1 + (this.random() % MOST_DIM);
    const optimizer = { kind: 'sgd', lr: 1 } as const;
    const table = await client.createTable({ name, dim, optimizer, initializer: { kind: 'zeros' } });
    const keys = BigUint64Array.from({ length: KEYS }, (_, index) => BigInt(index));
    await mustBe(table, keys, 0);
    await table.push(keys, new Float32Array(KEYS * dim).fill(-dim));
    await mustBe(table, keys, dim);
    await table.drop();
    this.dropped += 1;
    onDrop(name);
  }
}

const nameOf = (index: number) => `dropped-${index}`;

async function mustBe(
  table: ReturnType<Client['table']>,
  keys: BigUint64Array,
  value: number,
): Promise<void> {
  const rows = await table.pull(keys);
  const other = rows.find((each) => each !== value);
  if (other !== undefined)
    throw new Error(`table "${table.name}" must have ${value} in all rows, not ${other}`);
}
