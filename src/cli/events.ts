/** `kintsugi events`: what happened to a running job, as its scheduler keeps it. */
import type { Command } from 'commander';
import { KintsugiError } from '../common/errors.js';
import { harmless } from '../fleet/local/text.js';
import type { Client } from '../library/client/client.js';
import type { EventFields, JobEvent } from '../protocol/events.js';
import { type ConnectFlags, withClient } from './connected.js';
import { withScheduler } from './flags.js';
import { integer } from './values.js';

interface EventsFlags extends ConnectFlags {
  follow: boolean;
  since: number;
  json: boolean;
}

/** Fields that the subject repeats, or that mean nothing to people. */
const SAID: ReadonlySet<string> = new Set(['node', 'inc', 'epoch', 'recovery', 'change', 'member']);

function fieldsText(fields: EventFields, subject: string): string {
  return Object.entries(fields)
    .filter(([name, value]) => !SAID.has(name) && value !== subject && value !== '')
    .map(([name, value]) => `${name}=${value}`)
    .join(' ');
}

/** One line for people; programs use --json. */
export function eventLine({ number, at, kind, subject, fields }: JobEvent): string {
  const time = new Date(at).toISOString().replace('T', ' ').replace(/Z$/, '');
  const columns = [time, `${number}`.padStart(5), kind.padEnd(19), subject, fieldsText(fields, subject)];
  return harmless(columns.join('  ').trimEnd().replaceAll('\n', ' '));
}

/** Numbers are those of one job, so a number above the newest is of another one. @throws BAD_ARGUMENT */
async function checkSince(client: Client, since: number): Promise<void> {
  if (since === 0) return;
  let newest = 0;
  for await (const { number } of client.events({ since: 0 })) newest = number;
  if (since <= newest) return;
  const text = `--since ${since}: the newest event of this job is ${newest}; another job has others`;
  throw new KintsugiError('BAD_ARGUMENT', text);
}

async function run({ follow, since, json, ...flags }: EventsFlags): Promise<void> {
  const print = (event: JobEvent) =>
    process.stdout.write(`${json ? JSON.stringify(event) : eventLine(event)}\n`);
  await withClient(
    flags,
    async (client) => {
      await checkSince(client, since);
      for await (const event of client.events({ since, follow })) print(event);
    },
    { waitForJob: false },
  );
}

export function registerEvents(program: Command): void {
  withScheduler(
    program
      .command('events')
      .description('Show what happened to a running job: losses, recoveries, changes, checkpoints.'),
  )
    .option('--follow', 'go on with new events', false)
    .option('--since <number>', 'only events after this one', integer('--since', 0), 0)
    .option('--json', 'print JSON, an event per line', false)
    .action(run);
}
