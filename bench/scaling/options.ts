/** What `bench scaling` can be told. */
import { bad, checkFlags, number, text } from '../recovery/options.js';

export interface ScalingOptions {
  smoke: boolean;
  rows: number;
  /** PS at first and at the end, and in between. */
  ps: number;
  to: number;
  dim: number;
  /** Keys of one training step. */
  batch: number;
  /** What a step computes, in units of about a millisecond. */
  compute: number;
  /** Seconds of steady training before and after each scaling. */
  calmSeconds: number;
  moveRate: string | undefined;
  /** The picture, as HTML. */
  html: string | undefined;
  json: string | undefined;
  /** Append every record of every role here. */
  log: string | undefined;
  tell(text: string): void;
}

const FLAGS = [
  'rows',
  'ps',
  'to',
  'dim',
  'batch',
  'compute',
  'calm',
  'moveRate',
  'html',
  'json',
  'log',
  'quiet',
  'smoke',
];
/** As in `bench recovery`. */
const COMPUTE = 4;

/** @throws BAD_ARGUMENT */
export function parseScalingOptions(flags: Record<string, unknown>): ScalingOptions {
  checkFlags(flags, 'scaling', FLAGS);
  const smoke = flags.smoke === true;
  const ps = number(flags, 'ps', 5);
  const to = number(flags, 'to', 7);
  if (ps < 5 || to <= ps) throw bad(`--ps must be at least 5 and --to more than --ps, not ${ps} and ${to}`);
  return {
    smoke,
    // Millions on the command line.
    rows: Math.round(number(flags, 'rows', smoke ? 0.01 : 0.5) * 1e6),
    ps,
    to,
    dim: number(flags, 'dim', smoke ? 16 : 64),
    batch: number(flags, 'batch', smoke ? 128 : 512),
    compute: flags.compute === '0' ? 0 : number(flags, 'compute', smoke ? 1 : COMPUTE),
    calmSeconds: number(flags, 'calm', smoke ? 0.5 : 20),
    moveRate: text(flags, 'moveRate'),
    html: text(flags, 'html'),
    json: text(flags, 'json'),
    log: text(flags, 'log'),
    tell: flags.quiet === true ? () => {} : (line) => process.stderr.write(`${line}\n`),
  };
}
