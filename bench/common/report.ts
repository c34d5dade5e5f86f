/**
 * Report that every benchmark prints and writes: the machine, the parameters, medians, and goals as ratios
 * measured side by side. Absolute figures mean little on shared machines, so a goal always compares two
 * candidates of one run.
 */
import { writeFileSync } from 'node:fs';
import { cpus, loadavg, totalmem } from 'node:os';

export interface BenchOptions {
  /** Tiny sizes and one round: shows that the benchmark works, measures nothing. */
  smoke: boolean;
  /** Where to write the report as JSON. */
  json?: string | undefined;
}

export interface Goal {
  name: string;
  value: number;
  goal: number;
  /** How the value must stand to the goal; absent: at least. */
  is?: 'at most' | 'exactly';
  met: boolean;
}

const SIGNS = { 'at least': '>=', 'at most': '<=', exactly: '=' };

/** Medians of the candidates of one comparison. */
export interface Result {
  name: string;
  unit: string;
  values: Record<string, number>;
  /** Digits after the point; default: as many as the size of each value needs */
  digits?: number;
}

const plain = (value: number, digits?: number): string =>
  digits !== undefined
    ? value.toFixed(digits)
    : value >= 100
      ? value.toFixed(0)
      : value >= 10
        ? value.toFixed(1)
        : value.toFixed(2);

const short = (value: number): string =>
  Number.isInteger(value) ? `${value}` : Math.abs(value) < 0.1 ? value.toPrecision(2) : value.toFixed(2);

export class BenchReport {
  readonly results: Result[] = [];
  readonly goals: Goal[] = [];
  readonly skipped: string[] = [];
  readonly parameters: Record<string, string | number | boolean> = {};
  /** Fields of the JSON beside those of every report. */
  details: Record<string, unknown> = {};
  private readonly machine = {
    cpu: cpus()[0]?.model ?? 'unknown',
    cores: cpus().length,
    memoryGiB: Math.round(totalmem() / 2 ** 30),
    node: process.version,
    loadBefore: loadavg()[0] ?? 0,
  };

  constructor(
    readonly name: string,
    private readonly options: BenchOptions,
  ) {
    this.parameters.smoke = options.smoke;
  }

  /** Adds a comparison. */
  add(result: Result): void {
    this.results.push(result);
  }

  /**
   * Adds a goal of at least `goal`; `value` undefined means that a side is missing, and the goal is left out.
   */
  goal(name: string, value: number | undefined, goal: number): void {
    if (value !== undefined) this.goals.push({ name, value, goal, met: value >= goal });
  }

  atMost(name: string, value: number | undefined, goal: number): void {
    if (value !== undefined) this.goals.push({ name, value, goal, is: 'at most', met: value <= goal });
  }

  exactly(name: string, value: number | undefined, goal: number): void {
    if (value !== undefined) this.goals.push({ name, value, goal, is: 'exactly', met: value === goal });
  }

  /** One candidate over another of the named comparison, if both are there. */
  ratio(result: string, candidate: string, peer: string): number | undefined {
    const values = this.results.find((r) => r.name === result)?.values;
    const over = values?.[candidate];
    const under = values?.[peer];
    return over === undefined || !under ? undefined : over / under;
  }

  /** Says that a peer is not there, and how to get it. */
  skip(what: string): void {
    this.skipped.push(what);
  }

  /** Prints everything, and writes it where the options say. */
  finish(): void {
    const { machine } = this;
    const lines = [
      `${this.name}: ${machine.cpu}, ${machine.cores} cores, ${machine.memoryGiB} GiB`,
      `Node ${machine.node}, load ${machine.loadBefore.toFixed(1)}`,
      Object.entries(this.parameters)
        .map(([name, value]) => `${name} ${value}`)
        .join(', '),
      ...this.results.map(
        (r) =>
          `  ${r.name.padEnd(30)} ${Object.entries(r.values)
            .map(([name, value]) => `${name} ${plain(value, r.digits)}`)
            .join(', ')} ${r.unit}`,
      ),
      ...this.goals.map(
        ({ met, name, value, is, goal }) =>
          `  ${met ? 'met   ' : 'MISSED'} ${name}: ${short(value)} (goal ${SIGNS[is ?? 'at least']} ${goal})`,
      ),
      ...this.skipped.map((what) => `  SKIPPED ${what}`),
    ];
    console.log(lines.join('\n'));
    if (this.options.json === undefined) return;
    const { name, parameters, results, goals, skipped, details } = this;
    writeFileSync(
      this.options.json,
      `${JSON.stringify({ name, machine, parameters, results, goals, skipped, ...details }, null, 2)}\n`,
    );
  }
}
