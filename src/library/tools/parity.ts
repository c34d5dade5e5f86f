/**
 * Checks the parity equation on every block of a job: what sinks hold must be exactly the coded sum of what
 * owners hold. Sinks do the check, on the streams (src/core/sink/parity-check.ts). The number of blocks
 * follows from the owners' extents. So a sink that is missing, or lacks blocks, is counted as unprotected.
 */

import { KintsugiError } from '../../common/errors.js';
import type { Extent } from '../../engine/native.js';
import { BLOCK_BYTES } from '../../protocol/blocks.js';
import { limitText } from '../../protocol/limits.js';
import { type Group, type Pool, parities, type SinkEntry } from '../../protocol/map.js';
import type { MessageOf } from '../../protocol/messages.js';
import type { Client } from '../client/client.js';
import { eachAtMost } from '../client/concurrent.js';
import { internalsOf } from '../client/connected.js';
import { askOwner, unlessLost } from '../client/questions.js';

/** The result of checking all parities. */
export interface ParityCheck {
  /** Blocks of both columns of every table, each counted once per parity that the code has. */
  blocksExpected: number;
  /** Blocks whose equation was evaluated. */
  blocksChecked: number;
  /** Blocks that some member lacks, or whose parity does not exist. */
  blocksUnprotected: number;
  /** Checked blocks where the equation does not hold. */
  mismatched: number;
}

/** The result of checking one parity. */
export interface SinkCheck {
  /** Group. */
  g: number;
  /** Id of the sink. */
  sid: number;
  /** Number of the parity in its group. */
  index: number;
  /** Blocks whose equation was evaluated. */
  checked: number;
  /** Blocks where it does not hold. */
  mismatched: number;
}

/** Groups under check at once: each sink has up to 1 MiB of accumulators under way per member. */
const GROUPS_AT_ONCE = 4;
/** A group whose map entry changes under the check is checked again, at most so often. */
const MAX_ATTEMPTS = 100;
const MAP_POLL_MS = 20;
const KEY_BYTES = 8;

/**
 * Checks every block, also under live traffic; the counts are exact when nobody pushes. Waits for shards that
 * are being taken over. @throws UNRECOVERABLE, CLOSED
 */
export async function checkParity(
  client: Client,
  onSink: (found: SinkCheck) => void = () => {},
): Promise<ParityCheck> {
  const total: ParityCheck = { blocksExpected: 0, blocksChecked: 0, blocksUnprotected: 0, mismatched: 0 };
  const { groups, pools } = client.clusterMap;
  await eachAtMost(GROUPS_AT_ONCE, groups, async ({ id, pool }) => {
    const part = await checkGroup(client, id, pools[pool]!, onSink);
    for (const name of Object.keys(total) as (keyof ParityCheck)[]) total[name] += part[name];
  });
  return total;
}

async function checkGroup(
  client: Client,
  g: number,
  pool: Pool,
  onSink: (found: SinkCheck) => void,
): Promise<ParityCheck> {
  for (let attempt = 0; attempt < MAX_ATTEMPTS; attempt++) {
    const group = client.clusterMap.groups[g]!;
    const { epoch } = client.clusterMap;
    const expected = pool.r === 0 ? 0 : await expectedBlocks(client, group);
    const sinks = Array.from({ length: pool.r }, (_, index) => sinkOf(group, index));
    const answers = await Promise.all(sinks.map((sink) => sink && checkSink(client, g, sink)));
    if (answers.includes('gone')) await newerMap(client, epoch);
    else if (client.clusterMap.groups[g]!.version === group.version) {
      for (const [index, answer] of answers.entries()) {
        if (typeof answer !== 'object') continue;
        const { sid, checked, mismatched } = answer;
        onSink({ g, sid, index, checked, mismatched });
      }
      return summarise(expected, answers as (MessageOf<'checked'> | undefined)[]);
    }
  }
  throw new KintsugiError(
    'LIMIT',
    limitText(`group ${g} changed at each check`, 'maxCheckAttempts', MAX_ATTEMPTS),
  );
}

/** The parity in use. */
function sinkOf(group: Group, index: number): SinkEntry | undefined {
  return parities(group).find((sink) => sink.index === index);
}

function summarise(expected: number, answers: readonly (MessageOf<'checked'> | undefined)[]): ParityCheck {
  const sum: ParityCheck = { blocksExpected: 0, blocksChecked: 0, blocksUnprotected: 0, mismatched: 0 };
  for (const answer of answers) {
    const { checked, unprotected, mismatched } = answer ?? { checked: 0, unprotected: 0, mismatched: 0 };
    // Rows that were added during the check make it more than expected.
    const blocks = Math.max(expected, checked + unprotected);
    sum.blocksExpected += blocks;
    sum.blocksChecked += checked;
    sum.blocksUnprotected += blocks - checked;
    sum.mismatched += mismatched;
  }
  return sum;
}

/** Blocks of one parity of the group: each table reaches as far as its longest member. */
async function expectedBlocks(client: Client, group: Group): Promise<number> {
  const { session } = internalsOf(client);
  const members = await Promise.all(
    group.data.map((_, m) =>
      askOwner(session, { t: 'shardStats', g: group.id, m }, ({ extents }) => extents),
    ),
  );
  const longest = new Map<number, Extent>();
  for (const extents of members) {
    for (const extent of extents) {
      if (extent[2] > (longest.get(extent[0])?.[2] ?? 0)) longest.set(extent[0], extent);
    }
  }
  let blocks = 0;
  for (const [, stride, extent] of longest.values())
    blocks += blocksOf(KEY_BYTES, extent) + blocksOf(stride, extent);
  return blocks;
}

/** Blocks of a column: as many whole slots as fit in 4 KiB each, at least one. */
export function blocksOf(stride: number, extent: number): number {
  return Math.ceil(extent / Math.max(1, Math.floor(BLOCK_BYTES / stride)));
}

/** The answer of one sink, or 'gone' when the map does not list it there any more. */
async function checkSink(client: Client, g: number, sink: SinkEntry): Promise<MessageOf<'checked'> | 'gone'> {
  const message: MessageOf<'check'> = { t: 'check', epoch: 0, id: 0, g, sid: sink.sid };
  const { session } = internalsOf(client);
  const answer = (signal: AbortSignal) =>
    session.query({ to: { node: sink.node }, message }, (reply) => reply as MessageOf<'checked'>, { signal });
  const listed = () =>
    client.clusterMap.groups[g]?.sinks.some(
      (now) => now.sid === sink.sid && now.node === sink.node && now.inc === sink.inc,
    );
  let timer: NodeJS.Timeout | undefined;
  // A sink that stays in the map restarts its check by itself when its group changes, so it is waited for.
  const gone = new Promise<'gone'>((resolve) => {
    timer = setInterval(() => !listed() && resolve('gone'), MAP_POLL_MS);
  });
  try {
    const first = await unlessLost(session, g, (signal) => Promise.race([answer(signal), gone]));
    return first === 'gone' || first.unknown ? 'gone' : first;
  } finally {
    clearInterval(timer);
  }
}

/** A node that does not know a sink has seen a newer map, which is on its way to us. */
async function newerMap(client: Client, epoch: number): Promise<void> {
  while (client.clusterMap.epoch <= epoch) {
    await client.status();
    await new Promise((resolve) => setTimeout(resolve, MAP_POLL_MS));
  }
}
