/** `kintsugi autoscale`: looks at a running job, decides, and starts and ends processes of this machine. */
import { type Command, Option } from 'commander';
import { Autoscaler, type DecisionRecord, decisionText } from '../fleet/autoscale/autoscaler.js';
import { type Bounds, parseBounds, policyOf } from '../fleet/autoscale/bounds.js';
import { tellDecision } from '../fleet/autoscale/told.js';
import { MachineCrew } from '../fleet/local/crew.js';
import { LocalProvider } from '../fleet/local/provider.js';
import { Observer } from '../library/observe/observer.js';
import { type ConnectFlags, withClient } from './connected.js';
import { withScheduler } from './flags.js';
import { reachFlags } from './hints.js';
import { stopSignal } from './lifetime.js';
import { duration } from './values.js';

interface AutoscaleFlags extends ConnectFlags {
  bounds: Bounds;
  interval: number;
  psFlags?: string;
  workerFlags?: string;
  dryRun: boolean;
  json: boolean;
}

const words = (text: string | undefined): string[] => text?.split(/\s+/).filter(Boolean) ?? [];

async function run(flags: AutoscaleFlags): Promise<void> {
  const { bounds, dryRun, json } = flags;
  const say = (record: DecisionRecord, text: string): void =>
    void process.stdout.write(json ? `${JSON.stringify(record)}\n` : `${text}\n`);
  const stopped = stopSignal();
  await withClient(flags, async (client) => {
    const observer = new Observer(client, { intervalMs: flags.interval });
    const crew = new MachineCrew({
      ...{ client, reach: reachFlags(flags.scheduler, flags), psFlags: words(flags.psFlags) },
      workerFlags: flags.workerFlags === undefined ? undefined : words(flags.workerFlags),
      known: () => observer.newest?.workers.map(({ name }) => name) ?? [],
    });
    const autoscaler = new Autoscaler({
      ...{ observer, policy: policyOf(bounds) },
      provider: dryRun ? undefined : new LocalProvider(client, crew),
      onDecision: (record) => {
        tellDecision(client, record, dryRun);
        if (dryRun || !json) say(record, `${dryRun ? 'would be: ' : ''}${decisionText(record.decision)}`);
      },
      onDone: (record) => {
        const { problem, tookMs = 0 } = record;
        say(
          record,
          problem === undefined ? `done after ${(tookMs / 1000).toFixed(1)} s` : `not done: ${problem}`,
        );
      },
    });
    autoscaler.start();
    observer.start();
    await stopped;
    await observer.stop();
    await autoscaler.stop();
  });
}

export function registerAutoscale(program: Command): void {
  withScheduler(
    program
      .command('autoscale')
      .description(
        'Add and remove PS and workers on this machine as a running job needs them, until SIGINT.',
      ),
  )
    .addOption(
      new Option('--bounds <bounds>', 'least and most, for example ps=4..8,workers=1..4, or ps=4..8 alone')
        .argParser((text: string) => parseBounds('--bounds', text))
        .makeOptionMandatory(),
    )
    .addOption(
      new Option('--interval <time>', 'time between two looks')
        .argParser(duration('--interval'))
        .default(5000, '5s'),
    )
    .option('--ps-flags <flags>', 'flags of each new PS, for example "--memory 8GiB"')
    .option('--worker-flags <flags>', 'flags of each new worker, for example "--data train.tsv"')
    .option('--dry-run', 'print decisions and change nothing', false)
    .option('--json', 'print JSON, a decision per line', false)
    .action(run);
}
