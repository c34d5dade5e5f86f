/**
 * Endless new keys against a small `--memory`: the rows of a table make room for others, and no push is
 * refused, also while a PS is killed and comes back.
 */
import { KintsugiError } from '../../src/common/errors.js';
import { psName } from '../../src/fleet/local/processes.js';
import type { Client } from '../../src/library/client/client.js';
import type { Table } from '../../src/library/client/options.js';
import { Random } from '../../src/sim/random.js';
import type { BenchReport } from '../common/report.js';
import type { LifeOptions } from './options.js';

export const ENDLESS_KEYS = ['uniform', 'zipf'] as const;
type EndlessKeys = (typeof ENDLESS_KEYS)[number];

/** Keys are drawn below this. */
const KEY_SPACE = 2 ** 40;
const IN_FLIGHT = 4;
/** The story ends when so many times as many rows have gone as there are; the kill comes after the first. */
const TIMES = 3;
/** Pushes between two looks at all PS. */
const LOOK_EVERY = 10;
const KILLED = 1;

/** Before the loss of a PS; until it is back and has its share of seats; from then on. */
type EndlessPhase = 'before' | 'away' | 'after';

interface LookAtRows {
  rows: number;
  displaced: number;
  dropped: number;
  /** The most that one PS uses. */
  used: number;
  limit: number;
}

/** The part of a job that a story needs. */
interface KillingJob {
  kill(role: 'ps', name: string): void;
  startPs(index: number): Promise<void>;
}

export class Endless {
  private readonly random = new Random(11);
  private pushes = 0;
  private readonly refused = new Map<string, number>();
  private readonly peaks: Record<EndlessPhase, number> = { before: 0, away: 0, after: 0 };

  constructor(
    private readonly options: LifeOptions,
    private readonly client: Client,
    private readonly job: KillingJob,
    private readonly stream: EndlessKeys,
  ) {}

  async run(report: BenchReport): Promise<void> {
    const { dim, tell } = this.options;
    const { stream } = this;
    const table = await this.client.createTable({ name: stream, dim, policy: { memory: true } });
    await this.pushUntil(table, ({ displaced, rows }) => displaced >= rows, 'before');
    tell(`${stream}: ${this.pushes} pushes, and a PS is killed`);
    this.job.kill('ps', psName(KILLED));
    await this.pushUntil(table, ({ displaced, rows }) => displaced >= 2 * rows, 'away');
    await this.job.startPs(KILLED);
    await this.pushUntil(table, () => this.whole(), 'away');
    const end = await this.pushUntil(table, ({ displaced, rows }) => displaced >= TIMES * rows, 'after');
    this.judge(report, end);
  }

  /** Keys of one push: uniform ones are all new, of the others each is as likely as its rank says. */
  private keys(): BigUint64Array {
    const { random } = this;
    const key = () => {
      const x = random.below(2 ** 31) / 2 ** 31;
      const at = this.stream === 'uniform' ? x * KEY_SPACE : KEY_SPACE ** x;
      return BigInt(Math.floor(at));
    };
    return BigUint64Array.from(new Set(Array.from({ length: this.options.batch }, key)));
  }

  private async push(table: Table): Promise<void> {
    const keys = this.keys();
    try {
      await table.push(keys, new Float32Array(keys.length * this.options.dim).fill(0.1));
    } catch (error) {
      if (!(error instanceof KintsugiError)) throw error;
      this.refused.set(error.code, (this.refused.get(error.code) ?? 0) + 1);
    }
    this.pushes++;
  }

  private async pushUntil(
    table: Table,
    isOver: (look: LookAtRows) => boolean | Promise<boolean>,
    phase: EndlessPhase,
  ): Promise<LookAtRows> {
    for (;;) {
      const lane = async () => {
        for (let i = 0; i < LOOK_EVERY; i++) await this.push(table);
      };
      await Promise.all(Array.from({ length: IN_FLIGHT }, lane));
      const look = await this.look();
      this.peaks[phase] = Math.max(this.peaks[phase], look.used / look.limit);
      if (await isOver(look)) return look;
    }
  }

  private async look(): Promise<LookAtRows> {
    const { nodes } = await this.client.observe();
    const look: LookAtRows = { rows: 0, displaced: 0, dropped: 0, used: 0, limit: 0 };
    for (const { telemetry } of nodes) {
      const { usedBytes, limitBytes } = telemetry.memory;
      if (usedBytes > look.used) Object.assign(look, { used: usedBytes, limit: limitBytes });
      for (const { name, rows, life } of telemetry.tables) {
        if (name !== this.stream) continue;
        look.rows += rows;
        look.displaced += life?.displaced ?? 0;
        look.dropped += life?.refused ?? 0;
      }
    }
    return look;
  }

  /** The killed one was missed, everything is there again, and no seat is on its way. */
  private async whole(): Promise<boolean> {
    const { redundancy, nodes, scaling } = await this.client.status();
    if (redundancy !== 'full' || nodes.find(({ name }) => name === psName(KILLED))?.inc !== 2) return false;
    return scaling.changes.every(({ state }) => state !== 'running');
  }

  private judge(report: BenchReport, { rows, displaced, dropped }: LookAtRows): void {
    const { stream, pushes, peaks } = this;
    const keys = { pushes, 'rows at the end': rows, displaced, 'gradients dropped': dropped };
    report.add({ name: `endless keys, ${stream}`, unit: '', values: keys });
    report.add({
      name: `endless keys, ${stream}: the most that a PS used`,
      unit: 'of --memory',
      values: { 'before a loss': peaks.before, 'until it is back': peaks.away, 'from then on': peaks.after },
    });
    const refused = [...this.refused.values()].reduce((sum, each) => sum + each, 0);
    report.exactly(`pushes that were refused, ${stream}`, refused, 0);
    report.atMost(`part of --memory before a loss, ${stream}`, peaks.before, 1);
    report.atMost(`part of --memory at any time, ${stream}`, Math.max(...Object.values(peaks)), 1);
    if (refused > 0) this.options.tell(`${stream}: ${JSON.stringify(Object.fromEntries(this.refused))}`);
  }
}
