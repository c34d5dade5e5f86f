/** What `bench chaos` can be told. */
import { KintsugiError } from '../../src/errors.js';
import { parseCode, poolsFor } from '../../src/runtime/job.js';

export interface ChaosOptions {
  minutes: number;
  seed: number;
  ps: number;
  code: string;
  groups: number | undefined;
  clients: number;
  sharedRows: number;
  /** Milliseconds between two pushes of a client. */
  pauseMs: number;
  /** Milliseconds between two faults. */
  faultPauseMs: [least: number, most: number];
  /** As of `ps`: a slow recovery is hit by more further faults. */
  recoveryRate: string | undefined;
  /** With certificates, and with a token, that are made on the spot. */
  tls: boolean;
  token: boolean;
  smoke: boolean;
  /** Faults that a run of this length should see. */
  faultGoal: number;
  json: string | undefined;
  /** Append every record of every role here. */
  log: string | undefined;
  tell(text: string): void;
}

/** 200 faults in five minutes. */
const FAULTS_PER_MINUTE = 40;
const SMOKE_MINUTES = 0.25;
const FLAGS = [
  'minutes',
  'seed',
  'ps',
  'code',
  'groups',
  'clients',
  'rows',
  'pause',
  'recoveryRate',
  'tls',
  'token',
  'json',
  'log',
  'quiet',
  'smoke',
];

function number(flags: Record<string, unknown>, name: string, standard: number, least: number): number {
  const given = flags[name];
  if (given === undefined) return standard;
  const value = Number(given);
  if (given !== '' && Number.isFinite(value) && value >= least) return value;
  throw new KintsugiError(
    'BAD_ARGUMENT',
    `--${name} must be a number of at least ${least}, not "${String(given)}"`,
  );
}

function text(flags: Record<string, unknown>, name: string): string | undefined {
  const given = flags[name];
  return given === undefined ? undefined : String(given);
}

/** @throws BAD_ARGUMENT, NOT_ENOUGH_NODES */
export function parseChaosOptions(flags: Record<string, unknown>): ChaosOptions {
  const unknown = Object.keys(flags).find((name) => !FLAGS.includes(name));
  if (unknown !== undefined) {
    const known = FLAGS.map((name) => `--${name}`).join(' ');
    throw new KintsugiError('BAD_ARGUMENT', `--${unknown} is not a flag of chaos; there are ${known}`);
  }
  const smoke = flags.smoke === true;
  const minutes = number(flags, 'minutes', smoke ? SMOKE_MINUTES : 5, 0);
  const options: ChaosOptions = {
    minutes,
    seed: number(flags, 'seed', 1, 0),
    ps: number(flags, 'ps', 6, 1),
    code: text(flags, 'code') ?? '3+2',
    groups: flags.groups === undefined ? undefined : number(flags, 'groups', 1, 1),
    clients: number(flags, 'clients', 3, 1),
    sharedRows: number(flags, 'rows', 20_000, 1),
    pauseMs: number(flags, 'pause', 8, 0),
    faultPauseMs: [100, 1900],
    // A short run must at least have seen some.
    faultGoal: smoke ? 3 : Math.floor(minutes * FAULTS_PER_MINUTE),
    recoveryRate: text(flags, 'recoveryRate'),
    tls: flags.tls === true,
    token: flags.token === true,
    smoke,
    json: text(flags, 'json'),
    log: text(flags, 'log'),
    tell: flags.quiet === true ? () => {} : (line) => process.stderr.write(`${line}\n`),
  };
  poolsFor(parseCode(options.code), options.ps, options.groups);
  return options;
}
