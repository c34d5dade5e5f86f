/**
 * Refuses requests while the store is away for so long that `maxHeldEffects` wait for it. No decision may be
 * told before it is durable, and the effects that are held must not grow for ever. So requests of clients
 * change nothing then. Nodes are heard all the same: their reports are not stored.
 */
import { limitText } from '../../protocol/limits.js';
import type { Message, MessageOf } from '../../protocol/messages.js';
import type { KindOf } from '../../protocol/senders.js';
import type { Ledger, SchedulerInput } from './ledger.js';

const REFUSAL = {
  code: 'LIMIT',
  message: limitText('the store is away, and too much waits for it: ask again later', 'maxHeldEffects'),
} as const;

type FromClient = KindOf<'client>scheduler'>;
/** A function makes the answer that refuses the message. */
type Fate<M extends Message> = 'heard' | 'unanswered' | ((message: M) => Message);

const changeReply = ({ id }: MessageOf<'scale' | 'drain' | 'rebalance'>): Message => {
  return { t: 'changeReply', id, change: 0, moves: [], ...REFUSAL };
};

/**
 * The fate of each message of a client. `heard`: it causes no effect that waits for the store. `unanswered`:
 * no answer refuses it, and the client repeats it.
 */
const WHILE_AWAY: { readonly [K in FromClient]: Fate<MessageOf<K>> } = {
  status: 'heard',
  mapRequest: 'heard',
  replicaReport: 'heard',
  workerReport: 'heard',
  observe: 'heard',
  held: 'heard',
  detach: 'heard',
  tellEvent: 'heard',
  createTables: ({ id }) => ({ t: 'tablesCreated', id, tables: [], ...REFUSAL }),
  setTable: ({ id }) => ({ t: 'tableSet', id, epoch: 0, ...REFUSAL }),
  dropTable: ({ id }) => ({ t: 'tableDropped', id, epoch: 0, ...REFUSAL }),
  scale: changeReply,
  drain: changeReply,
  rebalance: changeReply,
  openDataset: ({ id }) => ({ t: 'datasetOpened', id, ...REFUSAL }),
  extendDataset: ({ id }) => ({ t: 'datasetExtended', id, sizes: [], ...REFUSAL }),
  setPlan: ({ id }) => ({ t: 'planSet', id, ...REFUSAL }),
  attach: 'unanswered',
  replaceSink: 'unanswered',
  acquire: 'unanswered',
  rangeProgress: 'unanswered',
  release: 'unanswered',
  advance: 'unanswered',
  datasetStatus: 'unanswered',
  restoreLost: 'unanswered',
  saveNow: 'unanswered',
  events: 'unanswered',
};

/**
 * True if the input is not handled. A client that attaches again, or sends a request without an answer that
 * refuses it, repeats its message.
 */
export function refuse(input: SchedulerInput, ledger: Ledger): boolean {
  if (input.kind === 'attach' && input.message.id === undefined)
    ledger.now({ kind: 'reply', link: input.link, message: { t: 'stale', code: 'LIMIT' } });
  if (input.kind === 'attach' || input.kind === 'join') return true;
  if (input.kind !== 'message' || input.role !== 'client') return false;
  const { from, message } = input;
  // Undefined: a client may not send this kind.
  const fate = WHILE_AWAY[message.t as FromClient] as Fate<Message> | undefined;
  if (fate === 'heard') return false;
  if (typeof fate === 'function') ledger.tell(from, fate(message));
  return true;
}
