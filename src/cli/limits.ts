/** `--limit name=value`: every named limit and timer of a role, with its default, on one repeatable flag. */
import { type Command, Option } from 'commander';
import { KintsugiError } from '../common/errors.js';
import { limitProblem } from '../common/options.js';
import { grouped } from './flags.js';
import { repeatable } from './given-once.js';
import { decimal } from './values.js';

type Limits = Record<string, number>;

/** The numeric fields of a policy: booleans have flags of their own. */
function numeric(policy: object, without: readonly string[]): Limits {
  const entries = Object.entries(policy).filter(
    ([name, value]) => typeof value === 'number' && !without.includes(name),
  );
  return Object.fromEntries(entries) as Limits;
}

/** Adds the flag for the limits of `policy`; `without` are those with a flag of their own. */
export function withLimits(command: Command, policy: object, without: readonly string[] = []): Command {
  const defaults = numeric(policy, without);
  const parse = (text: string, before: Limits): Limits => {
    const [name, ...values] = text.split('=') as [string, ...string[]];
    if (!Object.hasOwn(defaults, name)) {
      throw new KintsugiError(
        'BAD_ARGUMENT',
        `--limit: unknown limit "${name}"; one of ${Object.keys(defaults).join(', ')}`,
      );
    }
    if (Object.hasOwn(before, name))
      throw new KintsugiError('BAD_ARGUMENT', `--limit ${name} is given twice`);
    const number = decimal(values.join('='));
    const problem = limitProblem(defaults[name]!, number);
    if (problem)
      throw new KintsugiError('BAD_ARGUMENT', `--limit: "${text}" must be ${name}=N with N ${problem}`);
    return { ...before, [name]: number };
  };
  const about = 'change a limit or timer of docs/limits.md (ms, bytes or a count)';
  const option = repeatable(new Option('--limit <name=value>', about)).argParser(parse).default({}, 'none');
  return grouped(command, 'Roles', (it) => it.addOption(option));
}
