/** What `bench recovery` can be told, and what it compares. */
import { KintsugiError } from '../../src/errors.js';

export interface Mode {
  name: string;
  /** As of `kintsugi scheduler --code`. */
  code: string;
  /** Data shards of a group: all modes have the same number of shards. */
  k: number;
  /** Training has stopped when the failure comes: how fast is recovery when it has the machine? */
  idle?: boolean;
  /** Seconds between two checkpoints; undefined: this mode takes none. */
  intervalSeconds?: number;
}

export interface RecoveryOptions {
  smoke: boolean;
  /** Rows of the table, one run per mode for each. */
  sizes: number[];
  modes: Mode[];
  ps: number;
  dim: number;
  /** Keys of one training step. */
  batch: number;
  /** What a step computes, in units of about a millisecond. */
  compute: number;
  /** Seconds of training before the kill, and the least after it. */
  calmSeconds: number;
  watchSeconds: number;
  recoveryRate: string | undefined;
  /** The picture, as HTML. */
  html: string | undefined;
  /** The picture of the largest size alone, as SVG. */
  svg: string | undefined;
  json: string | undefined;
  /** Append every record of every role here. */
  log: string | undefined;
  tell(text: string): void;
}

/**
 * The model of the ECRec paper for 512 keys, which are 20 samples of 26 categories: 20 x 6 x 2.5 million
 * parameters = 0.3 GFLOP of forward and backward, at the 69 GFLOP/s that a core here gives to dense math.
 */
const COMPUTE = 4;

const FLAGS = [
  'sizes',
  'modes',
  'intervals',
  'ps',
  'dim',
  'batch',
  'compute',
  'calm',
  'watch',
  'recoveryRate',
  'html',
  'svg',
  'json',
  'log',
  'quiet',
  'smoke',
];

export function bad(message: string): KintsugiError {
  return new KintsugiError('BAD_ARGUMENT', message);
}

/** A list of numbers: "1,2.5,5". */
export function numbers(flags: Record<string, unknown>, name: string, standard: readonly number[]): number[] {
  const given = flags[name];
  if (given === undefined) return [...standard];
  const values = String(given).split(',').map(Number);
  if (values.every((value) => Number.isFinite(value) && value > 0)) return values;
  throw bad(`--${name} must be numbers above 0 with commas between them, not "${String(given)}"`);
}

export function number(flags: Record<string, unknown>, name: string, standard: number): number {
  const [value, more] = numbers(flags, name, [standard]);
  if (more === undefined) return value!;
  throw bad(`--${name} must be one number, not "${String(flags[name])}"`);
}

export function text(flags: Record<string, unknown>, name: string): string | undefined {
  return flags[name] === undefined ? undefined : String(flags[name]);
}

/** @throws BAD_ARGUMENT for one that is not in `known` */
export function checkFlags(flags: Record<string, unknown>, bench: string, known: readonly string[]): void {
  const unknown = Object.keys(flags).find((name) => !known.includes(name));
  if (unknown === undefined) return;
  const names = known.map((name) => `--${name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`);
  throw bad(`--${unknown} is not a flag of ${bench}; there are ${names.join(' ')}`);
}

/** @throws BAD_ARGUMENT */
export function modeOf(name: string, intervals: readonly number[]): Mode[] {
  const match = /^(\d+)\+(\d+)(\/idle)?$/.exec(name);
  if (match && Number(match[1]) > 0) {
    const code = `${match[1]}+${match[2]}`;
    return [{ name, code, k: Number(match[1]), idle: match[3] !== undefined }];
  }
  if (name === 'none') return [{ name, code: 'none', k: 1 }];
  if (name !== 'checkpoint')
    throw bad(`--modes must name codes like 4+1, 1+1 and 4+1/idle, none, or checkpoint, not "${name}"`);
  return intervals.map((seconds) => ({
    name: `checkpoint/${seconds}s`,
    code: 'none',
    k: 1,
    intervalSeconds: seconds,
  }));
}

/** @throws BAD_ARGUMENT */
export function parseRecoveryOptions(flags: Record<string, unknown>): RecoveryOptions {
  checkFlags(flags, 'recovery', FLAGS);
  const smoke = flags.smoke === true;
  const intervals = numbers(flags, 'intervals', smoke ? [1] : [20]);
  const modes = (text(flags, 'modes') ?? (smoke ? '4+1,checkpoint' : '4+1,4+1/idle,1+1,checkpoint')).split(
    ',',
  );
  return {
    smoke,
    // Millions on the command line.
    sizes: numbers(flags, 'sizes', smoke ? [0.02] : [1, 2, 5]).map((millions) => Math.round(millions * 1e6)),
    modes: modes.flatMap((name) => modeOf(name, intervals)),
    ps: number(flags, 'ps', 6),
    dim: number(flags, 'dim', smoke ? 16 : 64),
    batch: number(flags, 'batch', smoke ? 128 : 512),
    compute: flags.compute === '0' ? 0 : number(flags, 'compute', smoke ? 1 : COMPUTE),
    calmSeconds: number(flags, 'calm', smoke ? 1 : 15),
    watchSeconds: number(flags, 'watch', smoke ? 0.5 : 6),
    recoveryRate: text(flags, 'recoveryRate'),
    html: text(flags, 'html'),
    svg: text(flags, 'svg'),
    json: text(flags, 'json'),
    log: text(flags, 'log'),
    tell: flags.quiet === true ? () => {} : (line) => process.stderr.write(`${line}\n`),
  };
}

/** Every mode has as many data shards as 4+1 has with a group per PS. */
export function groupsOf(mode: Mode, ps: number): number {
  return Math.max(1, Math.round((ps * 4) / mode.k));
}
