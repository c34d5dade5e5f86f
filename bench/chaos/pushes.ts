/**
 * Pushes of a load client: a pure function of (seed, client, number), so that a quiet run can repeat
 * exactly the pushes of a chaotic one. Integer gradients with SGD and lr -1 add up exactly in float32
 * whatever the order, so clients may share rows; rows with optimizer state (Adam) belong to one client each,
 * whose pushes to a shard have an order.
 *
 * `own` rows are a check while things happen: the n-th push of a row adds a weight that depends on n, so what
 * is read must be the sum of a prefix, at least of what was acknowledged and at most of what was sent.
 */

import { seededRandom } from '../../src/fleet/local/kills.js';
import type { Client, PushRequest } from '../../src/library/client/client.js';
import type { ConnectedClient } from '../../src/library/client/connected.js';
import type { AuditedRows } from './replica-audit.js';

const OWN_ROWS = 256;
const OWN_PER_PUSH = 8;
const SHARED_PER_PUSH = 24;
const MIRRORED_ROWS = 64;
const MIRRORED_PER_PUSH = 2;
const ADD = { kind: 'sgd', lr: -1 } as const;
const ZEROS = { kind: 'zeros' } as const;

export const OWN = { name: 'own', dim: 4, optimizer: ADD, initializer: ZEROS };
const MOMENTS = {
  name: 'moments',
  dim: 8,
  optimizer: { kind: 'adam', lr: 0.01, beta1: 0.9, beta2: 0.999, eps: 1e-8 } as const,
  initializer: { kind: 'uniform', low: -0.05, high: 0.05 } as const,
  seed: 7,
};
const SHARED = { name: 'shared', dim: 16, optimizer: ADD, initializer: ZEROS };
const MIRRORED = { name: 'mirrored', dim: 32, optimizer: ADD, initializer: ZEROS, pool: 'mirrored' };

/**
 * Table of the clients that are killed. A quiet run cannot repeat their pushes, so the table is named like an
 * audit: digests leave audits out.
 */
export const CRASHED = { ...OWN, name: '__audit/crashed' };

export async function createTables(client: Client): Promise<void> {
  await client.createTables([OWN, MOMENTS, SHARED, MIRRORED]);
  // The name is kept for audits, so no other call creates it.
  await (client as ConnectedClient).createAuditTables([CRASHED]);
}

/** Weight that the n-th push (from 1) adds to an own row. Prefix sums are exact up to two million pushes. */
function weight(n: number): number {
  return 1 + ((n * 5) % 7);
}

/** Sum of the first n weights. */
export function prefixSum(n: number): number {
  const whole = Math.floor(n / 7);
  let sum = whole * 28;
  for (let i = whole * 7 + 1; i <= n; i++) sum += weight(i);
  return sum;
}

/** The pushes of one client, in order, and what is known of its own rows. */
export class PushStream {
  private readonly sent = new Uint32Array(OWN_ROWS);
  private readonly acknowledged = new Uint32Array(OWN_ROWS);
  private readonly checks = seededRandom(1);
  private number = 0;

  constructor(
    private readonly seed: number,
    private readonly client: number,
    private readonly sharedRows: number,
    /** True: pushes only own rows, in the table of the clients that are killed. */
    private readonly crash = false,
  ) {}

  /** The keys of all own rows. */
  keys(): BigUint64Array {
    return BigUint64Array.from({ length: OWN_ROWS }, (_, row) => this.key(row));
  }

  private get table(): string {
    return this.crash ? CRASHED.name : OWN.name;
  }

  get count(): number {
    return this.number;
  }

  private key(row: number): bigint {
    return (BigInt(this.client + 1) << 40n) | BigInt(row);
  }

  /** Own rows, for an audit elsewhere. */
  get own(): AuditedRows {
    const keys = this.keys();
    return { table: this.table, dim: OWN.dim, keys, sent: (row) => this.sent[row]!, sum: prefixSum };
  }

  /** The next push, its own rows, and what to call when it is durable. */
  next(): { requests: PushRequest[]; rows: number[]; done: () => void } {
    this.number++;
    const random = seededRandom(this.seed * 1_000_003 + this.client * 7919 + this.number * 104_729);
    const rows = distinct(OWN_PER_PUSH, OWN_ROWS, random);
    const own = request(
      this.table,
      OWN.dim,
      rows.map((row) => this.key(row)),
      (i) => {
        const row = rows[Math.floor(i / OWN.dim)]!;
        if (i % OWN.dim === 0) this.sent[row]!++;
        return weight(this.sent[row]!);
      },
    );
    const done = () => {
      for (const row of rows) this.acknowledged[row]!++;
    };
    if (this.crash) return { requests: [own], rows, done };
    const moments = request(
      MOMENTS.name,
      MOMENTS.dim,
      rows.map((row) => this.key(row)),
      () => {
        return ((random() % 17) - 8) / 8;
      },
    );
    const shared = Array.from({ length: SHARED_PER_PUSH }, () => BigInt(random() % this.sharedRows));
    const mirrored = distinct(MIRRORED_PER_PUSH, MIRRORED_ROWS, random).map(BigInt);
    const integer = () => (random() % 5) - 2;
    return {
      requests: [
        own,
        moments,
        request(SHARED.name, SHARED.dim, shared, integer),
        request(MIRRORED.name, MIRRORED.dim, mirrored, integer),
      ],
      rows,
      done,
    };
  }

  /**
   * Pulls some (or all) own rows and compares them with what may be there.
   * @returns what is wrong with them
   */
  async check(client: Client, all = false): Promise<string | undefined> {
    const rows = all ? [...this.sent.keys()] : distinct(OWN_PER_PUSH * 2, OWN_ROWS, this.checks);
    const least = rows.map((row) => this.acknowledged[row]!);
    const [values] = await client.pull([
      { table: this.table, keys: BigUint64Array.from(rows, (row) => this.key(row)) },
    ]);
    for (const [i, row] of rows.entries()) {
      const found = values!.subarray(i * OWN.dim, (i + 1) * OWN.dim);
      const where = `client ${this.client} row ${row}`;
      if (found.some((value) => value !== found[0])) return `${where} is torn: ${found.join(' ')}`;
      const most = this.sent[row]!;
      let prefix = least[i]!;
      while (prefix < most && prefixSum(prefix) !== found[0]) prefix++;
      if (prefixSum(prefix) !== found[0]) {
        const pushes = `${least[i]} acknowledged to ${most} sent pushes`;
        return `${where} holds ${found[0]}, which no prefix of ${pushes} gives`;
      }
    }
    return undefined;
  }
}

function request(table: string, dim: number, keys: bigint[], value: (i: number) => number): PushRequest {
  return {
    table,
    keys: BigUint64Array.from(keys),
    gradients: Float32Array.from({ length: keys.length * dim }, (_, i) => value(i)),
  };
}

function distinct(count: number, of: number, random: () => number): number[] {
  const chosen = new Set<number>();
  while (chosen.size < count) chosen.add(random() % of);
  return [...chosen];
}
