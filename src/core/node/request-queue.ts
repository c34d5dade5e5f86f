/**
 * Requests of clients that have come while the turn of the event loop had no rows or bytes left for them.
 * They are served in the next turns, and messages that prove life go before them: heartbeats, fences, probes,
 * acknowledgements, all messages of nodes and of the scheduler are handled when they come.
 *
 * The requests of one client keep their order. Clients get equal shares of turns (fair-order.ts), so a client
 * with few or small requests does not wait for those with many or large ones.
 */
import { describe, isRefusal } from '../../common/errors.js';
import { Items } from '../../protocol/items.js';
import type { PeerId } from '../../protocol/map.js';
import { knownFields } from '../../protocol/validate.js';
import type { RowsBuffer } from '../shard/host.js';
import { areEqual } from '../shared/bytes.js';
import { FairLines } from '../shared/fair-lines.js';
import type { Work } from '../shared/turn.js';
import { WaitingBytes } from '../shared/waiting-bytes.js';
import type { WaitingEntry } from '../shared/waiting-list.js';
import type { NodeHost } from './host.js';
import { headerBytesOf, type NodeRequests, type Request } from './requests.js';

/** Memory for answers to pulls. */
export interface RowsBuffers {
  /** Takes the step that serves a request of `bytes`, with a buffer for its answer if there is one. */
  step<T>(bytes: number, take: (buffer: RowsBuffer | undefined) => T): T;
}

interface QueuedRequest {
  message: Request;
  readonly work: Work;
}

/** True: a pull that waits is asked again. A push that is repeated is found to be one when it is served. */
function isRepeat(
  entry: WaitingEntry<QueuedRequest>,
  pull: Request,
  [section]: readonly Uint8Array[],
): boolean {
  const { message } = entry.item;
  if (message.t !== 'pull' || pull.t !== 'pull') return false;
  if ((pull.first ?? pull.id) !== (message.first ?? message.id)) return false;
  return areEqual(message.items, pull.items) && areEqual(entry.parts[0]!, section!);
}

export class RequestQueue {
  private readonly lines: FairLines<QueuedRequest>;
  /** The account of all bytes here. The transport lets no client send more while they fill its window. */
  private readonly account: WaitingBytes;

  constructor(
    private readonly host: NodeHost,
    private readonly requests: NodeRequests,
  ) {
    const { policy, turn } = host;
    this.account = new WaitingBytes(policy.maxReceivedBytes);
    const options = { maxCount: policy.maxParked, account: this.account };
    this.lines = new FairLines(options, ({ work }) => turn.shareOf(work));
  }

  get any(): boolean {
    return this.lines.any;
  }

  /** Number of requests that wait. */
  get count(): number {
    return this.account.count;
  }

  /** Bytes of the requests that wait. */
  get bytes(): number {
    return this.account.used;
  }

  /** Bytes of the requests of one client that wait. */
  bytesOf(client: PeerId): number {
    return this.lines.byClient.get(client)?.list.bytes ?? 0;
  }

  /** Serves a request that has come, or lets it wait for the next turn. @throws BAD_FRAME, FORBIDDEN */
  arrived(from: PeerId, message: Request, parts: readonly Uint8Array[], buffer?: RowsBuffer): void {
    const { requests, host } = this;
    requests.check(from, message);
    // The first request of a turn fits, whatever it costs.
    const work = this.any || host.turn.isUsed ? requests.workOf(message, parts) : undefined;
    if (!work || (!this.any && host.turn.fits(work)))
      requests.serve(from, message, parts, host.meter.at, buffer);
    else this.wait(from, { message, work }, parts);
  }

  /** Serves a request in the next turn that has room, and not in this step. @throws BAD_FRAME, FORBIDDEN */
  later(from: PeerId, message: Request, parts: readonly Uint8Array[]): void {
    this.requests.check(from, message);
    this.wait(from, { message, work: this.requests.workOf(message, parts) }, parts);
  }

  private wait(from: PeerId, request: QueuedRequest, parts: readonly Uint8Array[]): void {
    const same = this.lines.byClient.get(from)?.list.find((entry) => isRepeat(entry, request.message, parts));
    if (same) {
      // The client forgets its oldest questions, so the newest one is answered.
      same.item.message = knownFields(request.message);
      return;
    }
    const { message, work } = request;
    const kept = { message: knownFields(message), work };
    const beside = headerBytesOf(message);
    if (!this.lines.add(from, kept, parts, this.host.meter.at, beside)) this.refuse(from, message);
  }

  /** A push that finds no room is dropped, and its client sends it again. */
  private refuse(from: PeerId, message: Request): void {
    if (message.t === 'push' || message.t === 'skipTo') return;
    const length = message.t === 'pull' ? new Items('pull', message.items).length : 1;
    const items = Array.from({ length }, (_, i): [number, 'LIMIT'] => [i, 'LIMIT']);
    if (message.t === 'pull') this.host.meter.pull.fails('LIMIT');
    this.host.out.send(from, { t: 'reject', id: message.id, items });
  }

  /** Serves what waits, as long as the turn has rows and bytes left. */
  serve(buffers: RowsBuffers | undefined): void {
    const { turn } = this.host;
    const { order } = this.lines;
    for (let line = order.first; line; line = order.first) {
      if (!turn.fits(line.list.first!.item.work)) return;
      const { item, parts, since } = this.lines.serve(line);
      this.serveLate(line.client, item.message, parts, since, buffers);
    }
  }

  private serveLate(
    client: PeerId,
    message: Request,
    parts: readonly Uint8Array[],
    at: number,
    buffers: RowsBuffers | undefined,
  ): void {
    const { meter, out } = this.host;
    const take = (buffer?: RowsBuffer) => this.requests.serve(client, message, parts, at, buffer);
    try {
      if (buffers && message.t === 'pull') buffers.step(parts[0]!.byteLength, take);
      else take();
    } catch (error) {
      if (!isRefusal(error)) throw error;
      out.event('message.refused', { from: client, kind: message.t, message: describe(error) });
      out.hangUp(client);
      this.gone(client);
    }
    meter.served(meter.at - at);
  }

  /** The link of a client is closed: its requests are dropped, and it sends them again. */
  gone(client: PeerId): void {
    this.lines.drop(client);
  }
}
