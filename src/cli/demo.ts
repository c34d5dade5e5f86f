/**
 * `kintsugi demo`: generated data, a small job, a PS killed half-way, and a picture of what happened. The job
 * trains a DLRM where its package is installed, and the example of logistic regression otherwise.
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Command } from 'commander';
import { findPackage, installCommand } from '../common/optional.js';
import { PACKAGE_ROOT } from '../common/package-root.js';
import { createDisplay } from '../fleet/local/display.js';
import { runLocal } from '../fleet/local/launcher.js';
import type { LocalOptions } from '../fleet/local/options.js';
import { renderPicture } from '../fleet/local/picture.js';
import { problemOf } from '../fleet/local/report.js';
import { renderSummary } from '../fleet/local/summary.js';
import { countText } from '../fleet/local/text.js';
import { writeDemoData } from '../training/loop/demo-data.js';
import { RunFailure } from './failure.js';
import { stopSignal } from './lifetime.js';
import { integer } from './values.js';

interface DemoFlags {
  out: string;
  rows: number;
  keys: number;
  dim: number;
  seed: number;
  quiet: boolean;
}

const PS = 5;
const WORKERS = 2;
const CODE = '4+1';
const KILL_PERCENT = 50;

const DLRM_PACKAGE = 'onnxruntime-node';

/** The model of the demo: its name, and flags for the workers. */
function modelOf({ dim }: DemoFlags): { model: string; args: string[] } {
  if (findPackage(DLRM_PACKAGE)) {
    return { model: `a DLRM of dim ${dim}`, args: ['--dim', `${dim}`, '--bottom', `64-${dim}`] };
  }
  const example = join(PACKAGE_ROOT, 'examples/logistic.mjs');
  return { model: 'logistic regression', args: ['--model', example] };
}

function jobOptions({ seed }: DemoFlags, args: string[], train: string, test: string): LocalOptions {
  return {
    ps: PS,
    workers: WORKERS,
    code: CODE,
    groups: undefined,
    standby: 0,
    data: [train],
    test: [test],
    epochs: 1,
    workerArgs: [...args, '--seed', `${seed}`],
    seed,
    deterministic: false,
    audit: true,
    kills: [{ role: 'ps', index: undefined, percent: KILL_PERCENT }],
    scales: [],
    respawnMs: 1000,
    memory: undefined,
    recoveryRate: undefined,
    moveRate: undefined,
    resume: undefined,
    save: undefined,
    log: undefined,
  };
}

async function run(flags: DemoFlags): Promise<void> {
  const { out, rows, keys, seed } = flags;
  const { model, args } = modelOf(flags);
  const abort = new AbortController();
  void stopSignal().then(() => abort.abort());
  const display = createDisplay(flags.quiet);
  mkdirSync(out, { recursive: true });
  const train = join(out, 'train.tsv');
  const test = join(out, 'test.tsv');
  if (args.includes('--model')) {
    const command = installCommand(DLRM_PACKAGE);
    display.line(`this demo trains ${model} (examples/logistic.mjs); for a DLRM: ${command}`);
  }
  display.line(`generating ${countText(rows)} rows in the Criteo layout`);
  const { bestAuc } = await writeDemoData({ train, test, rows, keys, seed });
  const { report, events, kills } = await runLocal(
    jobOptions(flags, args, train, test),
    display,
    abort.signal,
  );
  const subtitle =
    `${WORKERS} workers train ${model} on ${PS} parameter servers with code ` +
    `${CODE}; one is killed half-way and comes back empty a second later.`;
  const picture = join(out, 'throughput.html');
  writeFileSync(picture, renderPicture({ report, events, kills, subtitle }));
  writeFileSync(join(out, 'report.json'), `${JSON.stringify(report, null, 2)}\n`);
  process.stdout.write(renderSummary(report));
  process.stdout.write(`\nbest reachable AUC of this data: ${bestAuc.toFixed(4)}\npicture: ${picture}\n`);
  const problem = problemOf(report);
  if (problem) throw new RunFailure(problem.code, `the run is not clean: ${problem.text}`);
}

export function registerDemo(program: Command): void {
  program
    .command('demo')
    .description('Generate data, train while a PS is killed half-way, and draw the throughput.')
    .option('--out <directory>', 'where data, report and picture go', 'demo-out')
    .option('--rows <n>', 'rows to train on', integer('--rows', 1000), 400_000)
    .option('--keys <n>', 'distinct keys that can occur', integer('--keys', 1000), 2_000_000)
    .option('--dim <n>', 'width of an embedding row', integer('--dim', 1, 1024), 32)
    .option('--seed <n>', 'seed of data and model', integer('--seed', 0), 1)
    .option('--quiet', 'print the summary only', false)
    .action(run);
}
