/**
 * Requests while the store is away for so long that `maxHeldEffects` wait for it. Nothing may be told before
 * it is durable, and what is held must not grow for ever. So requests of clients change nothing then. Nodes
 * are heard all the same: what they say is not stored.
 */
import type { Message } from '../../protocol/messages.js';
import type { Ledger, SchedulerInput } from './ledger.js';

/** Messages of clients that cause no effect that waits for the store. */
const HARMLESS: ReadonlySet<Message['t']> = new Set([
  'status',
  'mapRequest',
  'replicaReport',
  'workerReport',
  'observe',
  'held',
  'detach',
  'tellEvent',
]);

const isHarmless = ({ t }: Message): boolean => HARMLESS.has(t);

const REFUSAL = {
  code: 'LIMIT',
  message: 'the store is away, and as many decisions as it can have wait for it: ask again later',
} as const;

/** The answer that refuses a request; undefined: it has none, and whoever asks repeats it. */
function refusalOf(message: Message): Message | undefined {
  switch (message.t) {
    case 'createTables':
      return { t: 'tablesCreated', id: message.id, tables: [], ...REFUSAL };
    case 'scale':
    case 'drain':
    case 'rebalance':
      return { t: 'changeReply', id: message.id, change: 0, moves: [], ...REFUSAL };
    case 'openDataset':
      return { t: 'datasetOpened', id: message.id, ...REFUSAL };
    case 'extendDataset':
      return { t: 'datasetExtended', id: message.id, sizes: [], ...REFUSAL };
    case 'setPlan':
      return { t: 'planSet', id: message.id, ...REFUSAL };
    default:
      return undefined;
  }
}

/**
 * True if the input is not handled. A client that attaches again, or sends a request without an answer that
 * refuses it, repeats its message.
 */
export function refuse(input: SchedulerInput, ledger: Ledger): boolean {
  if (input.kind === 'attach' && input.message.id === undefined)
    ledger.now({ kind: 'reply', link: input.link, message: { t: 'stale', code: 'LIMIT' } });
  if (input.kind === 'attach' || input.kind === 'join') return true;
  if (input.kind !== 'message' || input.role !== 'client' || isHarmless(input.message)) return false;
  const refusal = refusalOf(input.message);
  if (refusal) ledger.tell(input.from, refusal);
  return true;
}
