/**
 * `kintsugi bench NAME`: the measurements; each is a module of its own that is loaded when it is asked for.
 */
import type { Command } from 'commander';

export function registerBench(program: Command): void {
  program
    .command('bench')
    .description('Measure: recovery under random failures (chaos), speed, overhead.')
    .argument('<name>', 'which one, for example chaos')
    .argument(
      '[flags...]',
      'its flags; chaos: --minutes 5 --seed 1 --ps 6 --code 3+2 --clients 3 --rows 20000 --recovery-rate SIZE --tls --token --json FILE --log FILE --quiet --smoke',
    )
    .allowUnknownOption()
    .action(async (name: string, args: readonly string[]) => {
      // The benchmarks are programs on top of everything else, compiled by themselves.
      const file = new URL('../../bench/flags.js', import.meta.url).href;
      const { runBench } = (await import(file)) as {
        runBench(name: string, args: readonly string[]): Promise<void>;
      };
      await runBench(name, args);
    });
}
