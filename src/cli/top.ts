/** `kintsugi top`: a running job in a terminal, again and again. */
import { setTimeout as pause } from 'node:timers/promises';
import { type Command, Option } from 'commander';
import { describe } from '../common/errors.js';
import type { Client } from '../library/client/client.js';
import type { JobSnapshot } from '../library/client/observe.js';
import { Observer } from '../library/observe/observer.js';
import { ratesBetween } from '../library/observe/rates.js';
import type { JobEvent } from '../protocol/events.js';
import { type ConnectFlags, withClient } from './connected.js';
import { withScheduler } from './flags.js';
import { stopSignal } from './lifetime.js';
import { inPlace, screenOf } from './screen.js';
import { duration } from './values.js';

interface TopFlags extends ConnectFlags {
  interval: number;
  once: boolean;
  json: boolean;
}

/** Events below the tables. */
const EVENTS_SHOWN = 6;
/** Time over which rates are taken: workers report every 5 s. */
const WINDOW_MS = 6000;

/** The newest events, kept up to date until the client is closed. */
function newestEvents(client: Client): readonly JobEvent[] {
  const newest: JobEvent[] = [];
  const follow = async () => {
    for await (const event of client.events({ follow: true })) {
      newest.push(event);
      if (newest.length > EVENTS_SHOWN) newest.shift();
    }
  };
  follow().catch(() => {});
  return newest;
}

/** The newest snapshot that is at least a window older than the last; the oldest where there is none. */
function baseline(history: readonly JobSnapshot[]): JobSnapshot | undefined {
  const now = history.at(-1)?.at ?? 0;
  return history.findLast(({ at }) => now - at >= WINDOW_MS) ?? history[0];
}

/** With --once the screen waits for rates of workers, which are known when each may have reported twice. */
function isSeen([first]: readonly JobSnapshot[], now: JobSnapshot): boolean {
  return now.workers.length === 0 || now.at - (first?.at ?? now.at) >= WINDOW_MS;
}

async function show(client: Client, flags: TopFlags, stopped: Promise<unknown>): Promise<void> {
  const { interval, once, json } = flags;
  const terminal = process.stdout.isTTY && !once && !json;
  let problem: unknown;
  const onError = (error: unknown) => {
    problem = error;
  };
  const observer = new Observer(client, { intervalMs: interval, onError });
  const events = json ? [] : newestEvents(client);
  const stop = new AbortController();
  void stopped.then(() => stop.abort());
  if (terminal) process.stdout.write('\x1b[?1049h\x1b[?25l');
  try {
    while (!stop.signal.aborted) {
      problem = undefined;
      await observer.look();
      const [before, now] = [baseline(observer.history), observer.newest];
      const { columns = 80, rows = 24 } = process.stdout;
      // Only a terminal shows the last look again: it would be empty without.
      if (problem !== undefined && !terminal) process.stderr.write(`not seen: ${describe(problem)}\n`);
      // Rates need two looks.
      else if (before && now && before !== now && (!once || isSeen(observer.history, now))) {
        const rates = ratesBetween(before, now);
        const lines = screenOf(now, rates, events);
        if (problem !== undefined) lines.unshift(`as it was last seen: ${describe(problem)}`);
        if (json) process.stdout.write(`${JSON.stringify({ status: now.status, rates })}\n`);
        else if (terminal) process.stdout.write(inPlace(lines, columns, rows));
        else process.stdout.write(`${lines.join('\n')}\n${once ? '' : '\n'}`);
        if (once) return;
      } else if (problem !== undefined)
        process.stdout.write(inPlace([`not seen: ${describe(problem)}`], columns, rows));
      await pause(interval, undefined, { signal: stop.signal }).catch(() => {});
    }
  } finally {
    if (terminal) process.stdout.write('\x1b[?25h\x1b[?1049l');
  }
}

async function run(flags: TopFlags): Promise<void> {
  const stopped = stopSignal();
  await withClient(flags, (client) => show(client, flags, stopped), { waitForJob: false });
}

export function registerTop(program: Command): void {
  withScheduler(
    program.command('top').description('Show the load of a running job, refreshed in place on a terminal.'),
  )
    .addOption(
      new Option('--interval <time>', 'time between two looks')
        .argParser(duration('--interval'))
        .default(2000, '2s'),
    )
    .option('--once', 'print one screen and end: of 6s where there are workers, else of one interval', false)
    .option('--json', 'print JSON, a look per line', false)
    .action(run);
}
