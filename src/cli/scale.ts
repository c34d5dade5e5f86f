/** `kintsugi scale`, `drain` and `rebalance` change which PS serve, while training goes on. */
import { type Command, Option } from 'commander';
import { KintsugiError } from '../common/errors.js';
import { bytesText, table } from '../fleet/local/text.js';
import type { Client } from '../library/client/client.js';
import { drain, plannedMoves, rebalance, scale, statusIn, targetOf } from '../library/tools/scaling.js';
import type { ChangeStatus, JobStatus } from '../protocol/messages.js';
import { type ConnectFlags, withClient } from './connected.js';
import { RunFailure } from './failure.js';
import { withScheduler } from './flags.js';
import { hint } from './hints.js';
import { duration, integer } from './values.js';

interface ChangeFlags extends ConnectFlags {
  timeout: number;
  json: boolean;
}
interface ScaleFlags extends ChangeFlags {
  ps?: number;
  add?: number;
  remove?: number;
  removeNode?: string;
}
interface RebalanceFlags extends ChangeFlags {
  dryRun: boolean;
}

const MOST_PS = 4096;

/** One line for a person; undefined when there is nothing to say yet. */
export function progressLine(change: ChangeStatus): string | undefined {
  const { reason, shardsMoved, shardsMoving, shardsLeft, bytesMoved } = change;
  if (reason !== '') return reason;
  if (shardsMoved + shardsMoving + shardsLeft === 0) return undefined;
  const all = shardsMoved + shardsMoving + shardsLeft;
  return `${shardsMoved} of ${all} shards moved (${bytesText(bytesMoved)}), ${shardsMoving} moving`;
}

/** Runs a change to its end, with a line per step. A change that was taken back ends with exit 1. */
async function follow(
  flags: ChangeFlags,
  work: (
    client: Client,
    onProgress: (change: ChangeStatus, status: JobStatus) => void,
  ) => Promise<ChangeStatus>,
  done: (change: ChangeStatus, status: JobStatus) => string,
): Promise<void> {
  let before: string | undefined;
  const onProgress = (change: ChangeStatus) => {
    const line = change.state === 'running' ? progressLine(change) : undefined;
    if (line !== undefined && line !== before && !flags.json) process.stdout.write(`${line}\n`);
    before = line ?? before;
  };
  const [change, status] = await withClient(flags, async (client) => [
    await work(client, onProgress).catch((error: unknown) => Promise.reject(takenBack(error))),
    await statusIn(client, flags.timeout),
  ]);
  process.stdout.write(flags.json ? `${JSON.stringify(change)}\n` : `${done(change, status)}\n`);
}

/** A refusal is bad input; a change that was begun and taken back is a failed run. */
function takenBack(error: unknown): unknown {
  return error instanceof KintsugiError && error.code === 'TIMEOUT' ? RunFailure.of(error) : error;
}

function moved({ shardsMoved, bytesMoved }: ChangeStatus): string {
  return `${shardsMoved} shards (${bytesText(bytesMoved)}) moved`;
}

async function runScale(flags: ScaleFlags): Promise<void> {
  const { ps, add, remove, removeNode, timeout } = flags;
  const asked = [ps, add, remove, removeNode].filter((value) => value !== undefined).length;
  if (asked !== 1) {
    throw new KintsugiError('BAD_ARGUMENT', 'scale needs one of --ps, --add, --remove and --remove-node');
  }
  if (removeNode !== undefined) return drainNode(removeNode, flags);
  await follow(
    flags,
    async (client, onProgress) => {
      const status = await statusIn(client, timeout);
      const before = targetOf(status);
      const to = Math.max(0, ps ?? before + (add ?? 0) - (remove ?? 0));
      const missing = to - status.scaling.serving;
      if (!flags.json && missing > 0) {
        const command = hint(['ps'], flags);
        process.stdout.write(
          `${status.scaling.serving} PS serve: start ${missing} more, each with: ${command}\n`,
        );
      }
      return scale(client, to, { timeoutMs: timeout, onProgress });
    },
    (change, { scaling }) => `${scaling.serving} PS serve; ${moved(change)}`,
  );
}

function drainNode(node: string, flags: ChangeFlags): Promise<void> {
  return follow(
    flags,
    (client, onProgress) => drain(client, node, { timeoutMs: flags.timeout, onProgress }),
    (change, { scaling }) =>
      `${change.leaving.join(', ')} has left; ${moved(change)}, ${scaling.serving} PS serve`,
  );
}

async function runRebalance(flags: RebalanceFlags): Promise<void> {
  if (!flags.dryRun) {
    return follow(
      flags,
      (client, onProgress) => rebalance(client, { timeoutMs: flags.timeout, onProgress }),
      (change) => `balanced; ${moved(change)}`,
    );
  }
  const moves = await withClient(flags, (client) => plannedMoves(client, { timeoutMs: flags.timeout }));
  if (flags.json) process.stdout.write(`${JSON.stringify(moves)}\n`);
  else if (moves.length === 0) process.stdout.write('balanced: nothing would move\n');
  else {
    const rows = moves.map(({ group, kind, index, from, to, bytes }) => [
      `group ${group}`,
      `${kind} ${index}`,
      from,
      to,
      bytesText(bytes),
    ]);
    process.stdout.write(`${table(['group', 'shard', 'from', 'to', 'bytes'], rows, 4).join('\n')}\n`);
  }
}

function withTimeout(command: Command): Command {
  return withScheduler(command)
    .addOption(
      new Option(
        '--timeout <time>',
        'do it in this time; without progress for so long, take it back; 0s = no hurry and never',
      )
        .argParser(duration('--timeout'))
        .default(60_000, '60s'),
    )
    .option('--json', 'print the result as JSON', false);
}

export function registerScale(program: Command): void {
  withTimeout(
    program
      .command('scale')
      .description(
        'Change the number of PS of a running job: waits until new ones have joined and hold their share.',
      ),
  )
    .option('--ps <n>', 'let so many PS serve', integer('--ps', 1, MOST_PS))
    .option('--add <n>', 'add so many', integer('--add', 1, MOST_PS))
    .option('--remove <n>', 'empty and end so many, the newest', integer('--remove', 1, MOST_PS))
    .option('--remove-node <node>', 'empty and end this one: "kintsugi drain"')
    .action(runScale);
  withTimeout(
    program
      .command('drain')
      .description('Empty a PS of a running job; its process ends when it holds nothing any more.')
      .argument('<node>', 'name, or an id of "kintsugi status --json" that is nobody\'s name'),
  ).action(drainNode);
  withTimeout(
    program
      .command('rebalance')
      .description('Even out what the PS of a running job hold, by bytes and by load.'),
  )
    .option('--dry-run', 'show what would move', false)
    .action(runRebalance);
}
