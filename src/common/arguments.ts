/** Arguments of a program that another one starts. */

/** Names of the flags among arguments. */
export function flagNames(args: readonly string[]): string[] {
  return args.filter((arg) => arg.startsWith('--')).map((arg) => arg.split('=', 1)[0]!);
}

/** The arguments without these flags, `--name value` and `--name=value`, which have a value each. */
export function withoutFlags(args: readonly string[], names: readonly string[]): string[] {
  const isOne = (arg = '') => names.includes(arg);
  return args.filter((arg, i) => !isOne(arg.split('=', 1)[0]) && !isOne(args[i - 1]));
}
