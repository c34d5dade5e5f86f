/**
 * Flags of benchmarks. Each benchmark declares its own flags in a table, and how options are made of them.
 * The command line, its help, and the types of the options follow from it. Values arrive as text; functions
 * here parse them.
 */
import { KintsugiError } from '../../src/common/errors.js';
import type { BenchOptions } from './report.js';

export interface Flag {
  /** The word for the value in the help; absent: a switch without a value. */
  value?: string;
  help: string;
  /** The value where none is given; absent: the flag stays undefined. */
  standard?: string;
  /** The same with --smoke, where it differs. */
  smoke?: string;
}

/** Flags by their names in the code: `recoveryRate` is --recovery-rate. */
export type Flags = Readonly<Record<string, Flag>>;

/** Values from the command line for a benchmark that declares these flags. */
export type Given<Declared extends Flags> = {
  readonly [Name in keyof Declared]?: Declared[Name] extends { value: string }
    ? string | undefined
    : boolean | undefined;
};

/** Given values, and the standard value of every other flag that has one. */
export type Completed<Declared extends Flags> = Given<Declared> & {
  readonly [Name in keyof Declared as Declared[Name] extends { standard: string } ? Name : never]: string;
};

function completed<Declared extends Flags>(declared: Declared, given: Given<Declared>): Completed<Declared> {
  const smoke = 'smoke' in given && given.smoke === true;
  const standards = Object.entries(declared).flatMap(([name, flag]) => {
    const value = smoke ? (flag.smoke ?? flag.standard) : flag.standard;
    return value === undefined ? [] : [[name, value]];
  });
  const present = Object.entries(given).filter(([, value]) => value !== undefined);
  return { ...Object.fromEntries(standards), ...Object.fromEntries(present) } as Completed<Declared>;
}

/** Line of the help for a flag. */
export function flagHelp({ help, standard }: Flag): string {
  return standard === undefined ? help : `${help} (default: ${standard})`;
}

/** Flags of every benchmark. */
const COMMON_FLAGS = {
  smoke: { help: 'tiny sizes and one round: shows that the benchmark works, measures nothing' },
  json: { value: 'file', help: 'write the report as JSON' },
} as const satisfies Flags;

/** Flag of benchmarks that tell their progress on standard error. */
export const QUIET_FLAG = {
  quiet: { help: 'no progress on standard error' },
} as const satisfies Flags;

export const LOG_FLAG = {
  log: { value: 'file', help: 'append every log record of every role' },
} as const satisfies Flags;

const SHARED_FLAGS = { ...COMMON_FLAGS, ...QUIET_FLAG, ...LOG_FLAG };

/** Spelling of a flag on the command line: --recovery-rate. */
export function flagName(name: string): string {
  return `--${name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;
}

export function bad(message: string): KintsugiError {
  return new KintsugiError('BAD_ARGUMENT', message);
}

type Texts<Name extends string> = { readonly [Key in Name]: string };

/** A list of numbers above zero: "1,2.5,5". @throws BAD_ARGUMENT */
function numbers<Name extends string>(flags: Texts<Name>, name: Name): number[] {
  const values = flags[name].split(',').map(Number);
  if (values.every((value) => Number.isFinite(value) && value > 0)) return values;
  throw bad(`${flagName(name)} must be numbers above 0 with commas between them, not "${flags[name]}"`);
}

/** A number above zero. @throws BAD_ARGUMENT */
function number<Name extends string>(flags: Texts<Name>, name: Name): number {
  const [value, more] = numbers(flags, name);
  if (more === undefined) return value!;
  throw bad(`${flagName(name)} must be one number, not "${flags[name]}"`);
}

/** A number above zero, or zero. @throws BAD_ARGUMENT */
function numberOrZero<Name extends string>(flags: Texts<Name>, name: Name): number {
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
function teller(quiet: boolean | undefined): (text: string) => void {
  return quiet === true ? () => {} : (line) => void process.stderr.write(`${line}\n`);
}

/** Names of flags whose value is never undefined. */
type Standards<Declared extends Flags> = {
  [Name in keyof Declared]: Declared[Name] extends { standard: string } ? Name : never;
}[keyof Declared] &
  string;

/** Values of the flags of a benchmark. All methods throw BAD_ARGUMENT, and name the flag. */
class FlagValues<Declared extends Flags> {
  constructor(readonly texts: Completed<Declared>) {}

  numbers(name: Standards<Declared>): number[] {
    return numbers(this.texts as Texts<string>, name);
  }

  number(name: Standards<Declared>): number {
    return number(this.texts as Texts<string>, name);
  }

  numberOrZero(name: Standards<Declared>): number {
    return numberOrZero(this.texts as Texts<string>, name);
  }

  /** A whole number; the command line gives millions. */
  millions(name: Standards<Declared>): number {
    return Math.round(this.number(name) * 1e6);
  }

  whole(name: Standards<Declared>, least: number): number {
    return whole(this.texts as Texts<string>, name, least);
  }
}

/** Options that need no conversion by the benchmark. */
export interface CommonOptions extends BenchOptions {
  json: string | undefined;
  /** File to which every log record of every role is appended; undefined also where LOG_FLAG is missing. */
  log: string | undefined;
  /** Tells progress, unless --quiet is given. */
  tell(text: string): void;
}

/** Flags of a benchmark, and how options are made of their values. */
export interface OptionSpec<Declared extends Flags, Options> {
  readonly flags: Declared;
  /** @throws BAD_ARGUMENT, and what the conversion of the benchmark throws */
  parse(given: Given<Declared>): Options;
}

export type OptionsOf<Spec> = Spec extends { parse(given: never): infer Options } ? Options : never;

/** `own`: flags beside COMMON_FLAGS. `convert`: the options beside the common ones. */
export function optionSpec<const Own extends Flags, Options extends object>(
  own: Own,
  convert: (flags: FlagValues<typeof COMMON_FLAGS & Own>) => Options,
): OptionSpec<typeof COMMON_FLAGS & Own, CommonOptions & Options> {
  const flags = { ...COMMON_FLAGS, ...own };
  return {
    flags,
    parse(given) {
      const texts = completed(flags, given);
      const { smoke = false, json, log, quiet } = texts as Given<typeof SHARED_FLAGS>;
      return { smoke, json, log, tell: teller(quiet), ...convert(new FlagValues(texts)) };
    },
  };
}
