/** A flag is given once, unless it is repeatable: the last one would hide those before it. */
import type { Command, Option } from 'commander';
import { bad } from './values.js';

const repeatables = new WeakSet<Option>();

/**
 * Lets a flag be given several times, and has its text say so. Its parser gets what it made of those before.
 */
export function repeatable(option: Option): Option {
  option.description += '; repeatable';
  repeatables.add(option);
  return option;
}

/**
 * Has a command and those below it refuse a flag that is given twice, or with its opposite. Repeatable ones
 * and those that take several values are left out.
 */
export function refuseTwice(command: Command): void {
  const given = new Map<string, Option>();
  for (const option of command.options.filter((each) => !each.variadic && !repeatables.has(each))) {
    command.on(`option:${option.name()}`, () => {
      const other = given.get(option.attributeName());
      if (other === option) throw bad(`${option.long} is given twice`);
      if (other) throw bad(`${other.long} and ${option.long} exclude each other`);
      given.set(option.attributeName(), option);
    });
  }
  for (const each of command.commands) refuseTwice(each);
}
