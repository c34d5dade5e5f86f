/** `kintsugi bench NAME`: the measurements; each is a module of its own that is loaded when it is asked for. */
import { existsSync } from 'node:fs';
import type { Command } from 'commander';
import { KintsugiError } from '../errors.js';

type Bench = { run(options: Record<string, unknown>): Promise<unknown> };

/** `--some-flag value` as `{ someFlag: 'value' }`, a flag without a value as true: each measurement knows its own. */
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

async function run(name: string, args: string[]): Promise<void> {
  const file = new URL(`../bench/${name}.js`, import.meta.url);
  if (!/^[a-z]+$/.test(name) || ['main', 'report'].includes(name) || !existsSync(file)) {
    throw new KintsugiError('BAD_ARGUMENT', `"${name}" is not a measurement; see kintsugi bench --help`);
  }
  const bench = (await import(file.href)) as Bench;
  await bench.run(parseBenchFlags(args));
}

export function registerBench(program: Command): void {
  program
    .command('bench')
    .description('Measure: recovery under random failures (chaos), speed, overhead.')
    .argument('<name>', 'which one, for example chaos')
    .argument(
      '[flags...]',
      'its flags; chaos: --minutes 5 --seed 1 --ps 6 --code 3+2 --clients 3 --rows 20000 --recovery-rate SIZE --json FILE --log FILE --quiet --smoke',
    )
    .allowUnknownOption()
    .action(run);
}
