/**
 * How a measurement is found and told what to do, by `kintsugi bench NAME` and `npm run bench -- NAME` alike.
 */
import { existsSync } from 'node:fs';
import { KintsugiError } from '../src/errors.js';

type Bench = { run(options: Record<string, unknown>): Promise<unknown> };

/** Files of this folder that measure nothing. */
const HELPERS = ['main', 'report', 'flags', 'memory'];

/**
 * `--some-flag value` as `{ someFlag: 'value' }`, a flag without a value as true: each measurement knows its
 * own.
 */
export function parseBenchFlags(args: readonly string[]): Record<string, unknown> {
  const flags: Record<string, unknown> = {};
  for (let i = 0; i < args.length; i++) {
    const match = /^--([a-z][a-z0-9-]*)(?:=(.*))?$/.exec(args[i]!);
    if (!match) throw new KintsugiError('BAD_ARGUMENT', `"${args[i]}" is not a flag of a measurement`);
    const name = match[1]!.replace(/-([a-z0-9])/g, (_, letter: string) => letter.toUpperCase());
    const next = args[i + 1];
    if (match[2] !== undefined) flags[name] = match[2];
    else if (next !== undefined && !next.startsWith('--')) {
      flags[name] = next;
      i++;
    } else flags[name] = true;
  }
  return flags;
}

/** @throws BAD_ARGUMENT for a name or a flag that does not exist, and whatever the measurement throws */
export async function runBench(name: string, args: readonly string[]): Promise<void> {
  const file = new URL(`./${name}.js`, import.meta.url);
  if (!/^[a-z]+$/.test(name) || HELPERS.includes(name) || !existsSync(file)) {
    throw new KintsugiError('BAD_ARGUMENT', `"${name}" is not a measurement; see kintsugi bench --help`);
  }
  const bench = (await import(file.href)) as Bench;
  await bench.run({ smoke: false, ...parseBenchFlags(args) });
}
