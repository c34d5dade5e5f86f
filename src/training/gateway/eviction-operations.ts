/** Streams of evicted keys for programs, each under a number that the program gives it. */
import { KintsugiError } from '../../common/errors.js';
import type { EvictionPosition } from '../../library/client/options.js';
import { limitText } from '../../protocol/limits.js';
import { integer, text } from './fields.js';
import { type GatewayOperation, tableOf } from './operations.js';

/** Streams of one program that are open at once. */
const MAX_STREAMS = 64;

export const EVICTION_OPERATIONS: Readonly<Record<string, GatewayOperation>> = {
  async evictions({ client, message, program, signal }) {
    const { streams } = program;
    if (streams.size >= MAX_STREAMS)
      throw new KintsugiError(
        'LIMIT',
        limitText('too many streams of evictions of this program are open', 'maxScans', MAX_STREAMS),
      );
    const from = message.from as EvictionPosition | undefined;
    const pollMs = integer(message, 'pollMs', 1);
    const stop = new AbortController();
    const options = { ...(from && { from }), pollMs, signal: AbortSignal.any([signal, stop.signal]) };
    const batches = client.evictions(tableOf(client, text(message, 'name')), options);
    streams.set(integer(message, 'stream'), { batches, stop });
    return {};
  },

  /** Waits for the next batch. Its keys are behind the answer. */
  async evicted({ message, program, room }) {
    const batch = await program.streams.get(integer(message, 'stream'))?.batches.next();
    if (!batch || batch.done) return {};
    const { keys, ...value } = batch.value;
    await room.reserve(keys.byteLength);
    return { value, behind: [keys] };
  },

  async endEvictions({ message, program }) {
    const number = integer(message, 'stream');
    const stream = program.streams.get(number);
    program.streams.delete(number);
    // A program may end a stream that waits for its next batch, which may never come.
    stream?.stop.abort();
    await stream?.batches.return();
    return {};
  },
};
