/**
 * The well-behaved client, a process of its own: pushes and pulls that begin at a steady pace, whatever
 * becomes of the earlier ones. The n-th push adds 1 to 64 rows of its table, so that every row tells how many
 * pushes it has. Each pull looks whether its rows hold what they may. It leaves when its parent does.
 */
import { describe } from '../../src/common/errors.js';
import { type Client, connect, type Table } from '../../src/library/client/client.js';
import { monotonicMs } from '../../src/net/log.js';
import { STEADY_TABLE, type SteadyOrder, type SteadyReport } from './steady-client.js';

const KEYS = 64;
const PACE_MS = 20;
/** More requests are not begun, so that this client stays small: those that wait count with their age. */
const MOST_OPEN = 512;
const CONNECT_MS = 60_000;

const tell = (report: SteadyReport, then?: () => void) => process.send?.(report, () => then?.());

class Steady {
  private readonly sent = new Uint32Array(STEADY_TABLE.rows);
  private readonly acknowledged = new Uint32Array(STEADY_TABLE.rows);
  private readonly ones = new Float32Array(KEYS * STEADY_TABLE.dim).fill(1);
  private readonly open = new Set<number>();
  private readonly all = new Set<Promise<void>>();
  private readonly wrong: string[] = [];
  private took: number[] = [];
  private since = 0;
  private pushes = 0;
  private pulls = 0;
  private readonly timer: NodeJS.Timeout;

  constructor(
    private readonly client: Client,
    private readonly table: Table,
  ) {
    this.timer = setInterval(() => this.both(), PACE_MS);
  }

  private both(): void {
    if (this.open.size >= MOST_OPEN) return;
    this.measured(this.push());
    this.measured(this.pull());
  }

  private rows(turn: number): number[] {
    return Array.from({ length: KEYS }, (_, i) => (turn * KEYS + i) % STEADY_TABLE.rows);
  }

  private async push(): Promise<void> {
    const rows = this.rows(this.pushes++);
    for (const row of rows) this.sent[row]!++;
    await this.table.push(BigUint64Array.from(rows, BigInt), this.ones);
    for (const row of rows) this.acknowledged[row]!++;
  }

  private async pull(): Promise<void> {
    // Other rows than those that are pushed now.
    const rows = this.rows(this.pulls++ * 7 + 3);
    const least = rows.map((row) => this.acknowledged[row]!);
    const values = await this.table.pull(BigUint64Array.from(rows, BigInt));
    for (const [i, row] of rows.entries()) {
      const found = values[i * STEADY_TABLE.dim]!;
      if (found >= least[i]! && found <= this.sent[row]!) continue;
      const range = `${least[i]} acknowledged and ${this.sent[row]} sent pushes`;
      if (this.wrong.length < 20) this.wrong.push(`row ${row} holds ${found} of ${range}`);
    }
  }

  private measured(request: Promise<void>): void {
    // Two requests never begin at the very same time for this set.
    let begun = monotonicMs();
    while (this.open.has(begun)) begun += 1e-6;
    this.open.add(begun);
    const settled = request
      .catch((error: unknown) => void tell({ kind: 'failed', what: describe(error) }))
      .finally(() => {
        this.open.delete(begun);
        this.all.delete(settled);
        if (begun >= this.since) this.took.push(monotonicMs() - begun);
      });
    this.all.add(settled);
  }

  begin(): void {
    this.took = [];
    this.since = monotonicMs();
  }

  take(): void {
    const now = monotonicMs();
    // Requests of earlier phases wait in this one, too. Perhaps no others have begun beside them.
    const waiting = [...this.open].map((begun) => now - Math.max(begun, this.since));
    tell({ kind: 'phase', ms: [...this.took, ...waiting], open: waiting.length });
  }

  async stop(): Promise<void> {
    clearInterval(this.timer);
    await Promise.all(this.all);
    const pushed = { client: this.client.id, counts: this.client.pushCounts() };
    const { sent, acknowledged, wrong } = this;
    const report = { sent: [...sent], acknowledged: [...acknowledged], pushed, wrong };
    tell({ kind: 'done', ...report }, () => process.exit(0));
  }
}

async function main(scheduler: string): Promise<void> {
  const client = await connect(scheduler, { connectTimeoutMs: CONNECT_MS, audit: true });
  const { name, dim } = STEADY_TABLE;
  const optimizer = { kind: 'sgd', lr: -1 } as const;
  const table = await client.createTable({ name, dim, optimizer, initializer: { kind: 'zeros' } });
  const steady = new Steady(client, table);
  process.on('message', (order: SteadyOrder) => void steady[order]());
  tell({ kind: 'ready' });
}

process.on('disconnect', () => process.exit(1));
main(process.argv[2]!).catch((error: unknown) => {
  process.stderr.write(`the well-behaved client: ${describe(error)}\n`);
  process.exit(1);
});
