/**
 * Flags of benchmarks. Each benchmark declares its flags in a table. The command line, its help, and the
 * types of what a benchmark is given follow from it. Values arrive as text; functions here parse them.
 */
import { KintsugiError } from '../../src/errors.js';

export interface Flag {
  /** What stands for the value in the help; absent: a switch without a value. */
  value?: string;
  help: string;
  /** The value of those who give none; absent: the flag stays undefined. */
  standard?: string;
  /** The same with --smoke, where it differs. */
  smoke?: string;
}

/** By their names in the code: `recoveryRate` is --recovery-rate. */
export type Flags = Readonly<Record<string, Flag>>;

/** What the command line gives to a benchmark that declares these flags. */
export type Given<Declared extends Flags> = {
  readonly [Name in keyof Declared]?: Declared[Name] extends { value: string }
    ? string | undefined
    : boolean | undefined;
};

/** What is given, and the standard value of every flag that has one. */
export type Completed<Declared extends Flags> = Given<Declared> & {
  readonly [Name in keyof Declared as Declared[Name] extends { standard: string } ? Name : never]: string;
};

export function completed<Declared extends Flags>(
  declared: Declared,
  given: Given<Declared>,
): Completed<Declared> {
  const smoke = 'smoke' in given && given.smoke === true;
  const standards = Object.entries(declared).flatMap(([name, flag]) => {
    const value = smoke ? (flag.smoke ?? flag.standard) : flag.standard;
    return value === undefined ? [] : [[name, value]];
  });
  const present = Object.entries(given).filter(([, value]) => value !== undefined);
  return { ...Object.fromEntries(standards), ...Object.fromEntries(present) } as Completed<Declared>;
}

/** What the help says of a flag. */
export function flagHelp({ help, standard }: Flag): string {
  return standard === undefined ? help : `${help} (default: ${standard})`;
}

/** Flags of every benchmark. */
export const COMMON_FLAGS = {
  smoke: { help: 'tiny sizes and one round: shows that the benchmark works, measures nothing' },
  json: { value: 'file', help: 'write the report as JSON' },
} as const satisfies Flags;

/** Of those that say on standard error what they are at. */
export const QUIET_FLAG = {
  quiet: { help: 'no progress on standard error' },
} as const satisfies Flags;

export const LOG_FLAG = {
  log: { value: 'file', help: 'append every log record of every role' },
} as const satisfies Flags;

/** As it is typed: --recovery-rate. */
export function flagName(name: string): string {
  return `--${name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;
}

export function bad(message: string): KintsugiError {
  return new KintsugiError('BAD_ARGUMENT', message);
}

type Texts<Name extends string> = { readonly [Key in Name]: string };

/** A list of numbers above zero: "1,2.5,5". @throws BAD_ARGUMENT */
export function numbers<Name extends string>(flags: Texts<Name>, name: Name): number[] {
  const values = flags[name].split(',').map(Number);
  if (values.every((value) => Number.isFinite(value) && value > 0)) return values;
  throw bad(`${flagName(name)} must be numbers above 0 with commas between them, not "${flags[name]}"`);
}

/** A number above zero. @throws BAD_ARGUMENT */
export function number<Name extends string>(flags: Texts<Name>, name: Name): number {
  const [value, more] = numbers(flags, name);
  if (more === undefined) return value!;
  throw bad(`${flagName(name)} must be one number, not "${flags[name]}"`);
}

/** A number above zero, or zero. @throws BAD_ARGUMENT */
export function numberOrZero<Name extends string>(flags: Texts<Name>, name: Name): number {
  return flags[name] === '0' ? 0 : number(flags, name);
}

/** A whole number of at least `least`. @throws BAD_ARGUMENT */
export function whole<Name extends string>(flags: Texts<Name>, name: Name, least: number): number {
  const text = flags[name];
  const value = Number(text || Number.NaN);
  if (Number.isSafeInteger(value) && value >= least) return value;
  throw bad(`${flagName(name)} must be a whole number of at least ${least}, not "${text}"`);
}

/** Where progress is told. */
export function teller(given: { quiet?: boolean | undefined }): (text: string) => void {
  return given.quiet === true ? () => {} : (line) => void process.stderr.write(`${line}\n`);
}
