/**
 * `kintsugi bench NAME`: runs a benchmark. The benchmarks are programs on top of everything else, compiled by
 * themselves (bench/), so they are loaded when they are asked for and may be missing.
 */
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import type { Command } from 'commander';
import { KintsugiError } from '../common/errors.js';

const REGISTRY = new URL('../../bench/registry.js', import.meta.url);

/** `registry`: the compiled bench/registry.ts. */
export function registerBench(program: Command, registry = REGISTRY): void {
  program
    .command('bench')
    .description('Measure: speed, overhead, recovery, scaling, random failures. "bench --help" lists them.')
    .argument('[name]', 'which benchmark')
    .argument('[flags...]', 'its flags')
    // Names, flags and help are the registry's.
    .helpOption(false)
    .allowUnknownOption()
    .action(async (name: string | undefined, flags: readonly string[]) => {
      if (!existsSync(fileURLToPath(registry))) {
        throw new KintsugiError(
          'DEPENDENCY_MISSING',
          'this installation has no benchmarks (dist/bench); "npm run build" in a checkout makes them',
        );
      }
      const { runBench } = (await import(registry.href)) as {
        runBench(args: readonly string[]): Promise<void>;
      };
      await runBench(name === undefined ? flags : [name, ...flags]);
    });
}
