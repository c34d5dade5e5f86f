/**
 * `kintsugi doctor` says what is wrong with a running job, how that shows, and what to do. With --install it
 * says what this installation has.
 */
import { setTimeout as pause } from 'node:timers/promises';
import { type Command, Option } from 'commander';
import { KintsugiError } from '../common/errors.js';
import { harmless, timeText } from '../fleet/local/text.js';
import type { Client } from '../library/client/client.js';
import type { JobSnapshot } from '../library/client/observe.js';
import { type Finding, findingsIn } from '../library/observe/findings/index.js';
import { Observer } from '../library/observe/observer.js';
import { type ConnectFlags, withClient } from './connected.js';
import { withScheduler } from './flags.js';
import { installReport, renderInstall } from './install.js';
import { duration } from './values.js';

interface DoctorFlags extends ConnectFlags {
  for: number;
  install: boolean;
  json: boolean;
}

/** The doctor looks this often in the time that is given; looks are LEAST_MS to MOST_MS apart. */
const LOOKS = 12;
const LEAST_MS = 200;
const MOST_MS = 5000;

/** @throws UNREACHABLE when the job cannot be looked at twice */
async function looked(client: Client, ms: number): Promise<readonly JobSnapshot[]> {
  const intervalMs = Math.min(MOST_MS, Math.max(LEAST_MS, Math.round(ms / LOOKS)));
  let problem: unknown;
  const onError = (error: unknown) => {
    problem = error;
  };
  const observer = new Observer(client, { intervalMs, shards: true, keep: 1000, onError });
  const until = performance.now() + ms;
  await observer.look();
  do {
    await pause(Math.min(intervalMs, ms));
    await observer.look();
  } while (performance.now() < until);
  const { history } = observer;
  if (history.length > 1) return history;
  throw problem ?? new KintsugiError('UNREACHABLE', 'the job could not be looked at');
}

/** Text for people; programs use --json. */
export function renderFindings(findings: readonly Finding[], ms: number): string {
  if (findings.length === 0) return `nothing found in ${timeText(ms)}\n`;
  const blocks = findings.map(({ severity, code, subject, evidence, advice }) =>
    [`${severity}  ${code}  ${subject}`, `  seen: ${evidence}`, `  do:   ${advice}`].join('\n'),
  );
  return `${harmless(blocks.join('\n\n'))}\n`;
}

async function runInstall(json: boolean): Promise<void> {
  const report = await installReport();
  process.stdout.write(json ? `${JSON.stringify(report, null, 2)}\n` : renderInstall(report));
  if (report.addon.problem !== undefined) process.exitCode = 1;
}

async function run({ for: ms, install, json, ...flags }: DoctorFlags): Promise<void> {
  if (install) return runInstall(json);
  const history = await withClient(flags, (client) => looked(client, ms), { waitForJob: false });
  const findings = findingsIn(history);
  process.stdout.write(json ? `${JSON.stringify({ findings }, null, 2)}\n` : renderFindings(findings, ms));
  if (findings.length > 0) process.exitCode = 1;
}

export function registerDoctor(program: Command): void {
  withScheduler(
    program
      .command('doctor')
      .description(
        'Look at a running job for a while, say what is wrong and what to do. Exit 1: something is.',
      ),
  )
    .addOption(
      new Option('--for <time>', 'how long to look; slow workers show in 32s')
        .argParser(duration('--for'))
        .default(32_000, '32s'),
    )
    .option('--install', 'look at this installation instead of a job', false)
    .option('--json', 'print JSON', false)
    .action(run);
}
