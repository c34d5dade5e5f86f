/**
 * `kintsugi doctor`: what is wrong with a running job, how that shows, and what to do; with --install what
 * this installation has.
 */
import { setTimeout as pause } from 'node:timers/promises';
import type { Command } from 'commander';
import type { Client } from '../client/client.js';
import type { JobSnapshot } from '../client/observe.js';
import { KintsugiError } from '../errors.js';
import { harmless, timeText } from '../local/text.js';
import { type Finding, findingsIn } from '../observe/findings/index.js';
import { Observer } from '../observe/observer.js';
import { type ConnectFlags, withClient } from './connected.js';
import { duration, withScheduler } from './flags.js';
import { installReport, renderInstall } from './install.js';

interface Flags extends ConnectFlags {
  for: number;
  install: boolean;
  json: boolean;
}

/** So many looks in the time that is given, not closer and not farther apart than this. */
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

/** For people; programs use --json. */
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

async function run({ for: ms, install, json, ...flags }: Flags): Promise<void> {
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
    .option(
      '--for <time>',
      'how long to look; slow workers are found in 32s and more',
      duration('--for'),
      32_000,
    )
    .option(
      '--install',
      'look at this installation and at no job: the native addon and the optional packages',
      false,
    )
    .option('--json', 'print JSON', false)
    .action(run);
}
