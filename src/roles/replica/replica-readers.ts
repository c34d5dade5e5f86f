/**
 * Readers of a replica over a link: clients of the library. The first message says of which job they are,
 * every other one is a pull, which is answered in the same turn.
 */

import { codeOf, describe, isRefusal, KintsugiError } from '../../common/errors.js';
import { type ReadAnswer, type ReadLimits, type ReadSection, read } from '../../core/replica/reading.js';
import type { ReplicaCore } from '../../core/replica/replica.js';
import { joined } from '../../core/shared/bytes.js';
import { tellHungUp } from '../../net/hung-up.js';
import { type Logger, monotonicMs } from '../../net/log.js';
import { GONE_MS, type Link, type LinkHandlers } from '../../net/transport/index.js';
import { Items } from '../../protocol/items.js';
import type { Message, MessageOf } from '../../protocol/messages.js';
import { checkSender } from '../../protocol/senders.js';
import { toMessage } from '../../protocol/validate.js';

/** Counts of pulls since the start. */
export interface ReadCounts {
  pulls: number;
  refused: Map<string, number>;
}

export class ReplicaReaders {
  private readonly introduced = new Set<number>();
  readonly counts: ReadCounts = { pulls: 0, refused: new Map() };

  /** `maxLagMs`: what is older is refused, whatever a pull allows. */
  constructor(
    private readonly core: () => ReplicaCore | undefined,
    private readonly maxLagMs: number,
    private readonly log: Logger,
  ) {}

  readonly handlers: LinkHandlers = {
    onOpen: (link) => link.watch(Number.POSITIVE_INFINITY, GONE_MS),
    onMessage: (link, header, parts) => this.receive(link, toMessage(header), parts),
    onClose: (link) => this.introduced.delete(link.id),
    onHungUp: (link, reason) => tellHungUp(this.log, link, reason),
    onError: (link, error) => {
      this.log.error('replica.error', { remote: link.remote, message: describe(error) });
    },
  };

  /** @throws STALE_REPLICA, LIMIT, UNKNOWN_TABLE, DIM_MISMATCH, KEY_RESERVED, BAD_FRAME */
  read(asked: readonly ReadSection[], limits: ReadLimits): ReadAnswer {
    const core = this.core();
    try {
      if (!core) throw new KintsugiError('STALE_REPLICA', 'this replica is not connected to its job yet');
      // The newest tick may be long ago: this process may have been stopped since then.
      core.now = monotonicMs();
      const maxLagMs = Math.min(this.maxLagMs, limits.maxLagMs);
      const answer = read(core, asked, { ...limits, maxLagMs });
      this.counts.pulls++;
      return answer;
    } catch (error) {
      this.refused(error);
      throw error;
    }
  }

  refused(error: unknown): void {
    const code = codeOf(error, 'INTERNAL');
    const { refused } = this.counts;
    refused.set(code, (refused.get(code) ?? 0) + 1);
  }

  private receive(link: Link, message: Message, parts: readonly Uint8Array[]): void {
    checkSender('client', 'replica', message.t);
    if (message.t === 'hello') {
      const job = this.core()?.map.job;
      if (message.job !== job) return link.close('another job');
      this.introduced.add(link.id);
    } else if (message.t === 'read') {
      if (!this.introduced.has(link.id))
        throw new KintsugiError('BAD_FRAME', 'the first message must be a hello');
      this.onRead(link, message, parts);
    }
  }

  private onRead(link: Link, message: MessageOf<'read'>, parts: readonly Uint8Array[]): void {
    const { id, items, maxLagMs = Number.POSITIVE_INFINITY, missing } = message;
    const asked = sectionsOf(items, parts);
    try {
      const answer = this.read(asked, { maxLagMs, missing: missing && floatOf(missing) });
      const header = { t: 'readRows', id, states: answer.states, lagMs: Math.ceil(answer.lagMs) };
      const spans = answer.rows.map((memory) => ({ memory, start: 0, size: memory.byteLength }));
      link.send(header, [joined(spans)]);
    } catch (error) {
      // A malformed request is rethrown, and the transport closes the link.
      const isTheirs: boolean = isRefusal(error);
      if (isTheirs || !(error instanceof KintsugiError)) throw error;
      link.send({ t: 'readRefused', id, code: error.code, message: error.message });
    }
  }
}

/** @throws BAD_FRAME */
function sectionsOf(packed: Uint8Array, parts: readonly Uint8Array[]): ReadSection[] {
  const items = new Items('pull', packed);
  const [body] = parts;
  if (!body || parts.length > 1)
    throw new KintsugiError('BAD_FRAME', `sections come in one part, not in ${parts.length}`);
  items.checkSizes(2, body.byteLength);
  let start = 0;
  return Array.from({ length: items.length }, (_, i) => {
    const end = start + items.word(i, 2);
    const section = body.subarray(start, end);
    start = end;
    return { g: items.word(i, 0), m: items.word(i, 1), section };
  });
}

const floatOf = (bytes: Uint8Array): number =>
  new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength).getFloat32(0, true);
