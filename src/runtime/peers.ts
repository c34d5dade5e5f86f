/**
 * Connections to the other roles, by identity. A peer is dialed when there is a message for it, and again
 * after a pause when that fails. A few messages are kept meanwhile. A peer that dialed us is answered on the
 * connection that it made. Messages may be lost (the protocol repeats them) but are not reordered within a
 * connection.
 */
import type { Busy } from '../core/client/requests.js';
import { Retry } from '../core/shared/retry.js';
import { WaitingBytes } from '../core/shared/waiting-bytes.js';
import { WaitingList } from '../core/shared/waiting-list.js';
import { describe, KintsugiError } from '../errors.js';
import { type ClusterMap, type PeerId, SCHEDULER } from '../protocol/map.js';
import type { Hello, Message } from '../protocol/messages.js';
import type { Role } from '../protocol/senders.js';
import { toMessage } from '../protocol/validate.js';
import { type ClientTls, dial, GONE_MS, type Link, type LinkHandlers } from '../transport/index.js';
import type { PeerAddress } from './address-book.js';
import { each } from './effects.js';
import { type Logger, monotonicMs } from './log.js';
import { checkProved, Refusals } from './refusals.js';
import { Sent } from './sent.js';

/** Messages and bytes that are kept for one peer while it is dialed. Further ones are dropped. */
const MAX_QUEUED_MESSAGES = 4096;
const MAX_QUEUED_BYTES = 64 << 20;
/** In a job of more nodes than this, a new node is dialed only when there is a message for it. */
const MAX_WELCOMED = 64;
/** Pause before dialing again, doubling. */
const REDIAL_MS = 25;
const MAX_REDIAL_MS = 1000;

/**
 * Time for the other side's kernel to accept a connection. A new attempt gets through as soon as a partition
 * is over.
 */
const CONNECT_MS = 1000;
/**
 * When a peer makes a second connection and the first one has been unacknowledged for so long, the first one
 * counts as lost. A peer whose kernel has not accepted our connection for so long counts as silent.
 */
const DOUBTFUL_MS = 400;
/** Posted messages of so many bytes are sent at once: waiting for more would only delay them. */
const SEND_AT_BYTES = 256 * 1024;
const SEND_AT_MESSAGES = 64;
/** A connection on which more than this waits to be sent is slower than what is sent. */
const BUSY_BYTES = 64 * 1024;
/** Packets of a slow connection come with such pauses, also when one of them is lost. */
const RECEIVING_MS = 1000;

export interface PeersOptions {
  self: () => { peer: PeerId; inc: number; job: string; proof?: Uint8Array | undefined };
  /** What this side shows when it dials. */
  token?: string | undefined;
  /** The proof is that of this client. Default: anything is. */
  holds?(client: PeerId, proof: Uint8Array | undefined): boolean;
  tls?: ClientTls | undefined;
  /** Where to dial a peer; undefined when it cannot or should not be dialed. */
  resolve(peer: PeerId): PeerAddress | undefined;
  onMessage(from: PeerId, role: Role, message: Message, parts: readonly Uint8Array[]): void;
  /** Connected again after messages to or from it may have been lost. */
  onUp(peer: PeerId): void;
  onDown?(peer: PeerId): void;
  log: Logger;
}

type Posted = [message: Message, parts: readonly Uint8Array[]];

interface Peer {
  link: Link | undefined;
  inc: number;
  dialing: boolean;
  readonly redials: Retry;
  timer: NodeJS.Timeout | undefined;
  /** Kept while it is dialed. */
  readonly queue: WaitingList<Message>;
  readonly queued: WaitingBytes;
  /** Messages may have been lost since the peer was last told that it is up. */
  lossy: boolean;
  /** Bytes that had come on its link when `busy` was asked last, and when that number changed. */
  receivedBytes: number;
  receivedAt: number;
  /** Since when its kernel has not taken the connection that is asked for. */
  askedAt: number | undefined;
}

/** Whose link it is. The role is fixed from its first message on. */
interface Caller {
  id: PeerId;
  role: Role;
  /** A message has come on the link, so the peer has not refused our hello. */
  heard: boolean;
  since: number;
}

export class Peers {
  private readonly peers = new Map<PeerId, Peer>();
  /** Of each link that has said hello, or that we dialed. */
  private readonly byLink = new Map<number, Caller>();
  readonly refusals: Refusals;
  private readonly posted = new Map<PeerId, { messages: Posted[]; bytes: number }>();
  private closed = false;
  readonly sent = new Sent();
  sentMessages = 0;
  sentFrames = 0;

  constructor(private readonly options: PeersOptions) {
    this.refusals = new Refusals(options.log);
  }

  /** Handlers for the role's listener: the first message of a link must be a hello of our job. */
  readonly incoming: LinkHandlers = {
    onOpen: () => {},
    onMessage: (link, header, parts) => {
      const message = toMessage(header);
      const handle = () => this.onMessage(link, message, parts);
      this.refusals.during(link, this.byLink.get(link.id)?.id, message, handle);
    },
    onClose: (link) => this.onClose(link),
    onError: (link, error) => this.onError(link, error),
  };

  /**
   * Dials the nodes that are new in a running job. They will get shards, and a connection that is there by
   * then saves time at the hand-over.
   */
  welcome(before: ClusterMap, now: ClusterMap): void {
    if (before.nodes === now.nodes || before.groups.length === 0 || now.nodes.length > MAX_WELCOMED) return;
    const self = this.options.self().peer;
    for (const { id, inc } of now.nodes) {
      if (id === self || before.nodes.some((node) => node.id === id && node.inc === inc)) continue;
      const peer = this.peerAt(id, this.options.resolve(id));
      if (peer && !peer.link && !peer.dialing && !peer.timer) void this.connect(id, peer);
    }
  }

  /**
   * State of a peer, of the incarnation that the map names now. Undefined when it cannot be dialed and did
   * not dial us.
   */
  private peerAt(id: PeerId, address: PeerAddress | undefined): Peer | undefined {
    const known = this.peers.get(id);
    if (known && (!address || known.inc === address.inc)) return known;
    if (known) this.forget(id, known);
    return address && this.add(id, address.inc);
  }

  /**
   * Sends now, after what is posted to that peer: messages keep their order. The parts are copied before this
   * returns, here or by the link.
   */
  send(to: PeerId, message: Message, parts: readonly Uint8Array[]): void {
    const posted = this.posted.get(to)?.messages ?? [];
    this.posted.delete(to);
    this.sendAll(to, [...posted, [message, parts]]);
  }

  /**
   * Sends at the next `flush`, together with whatever else is posted to that peer: one frame for all of it.
   * Until then the parts are only referred to.
   */
  post(to: PeerId, message: Message, parts: readonly Uint8Array[]): void {
    let posted = this.posted.get(to);
    if (!posted) {
      posted = { messages: [], bytes: 0 };
      this.posted.set(to, posted);
    }
    posted.messages.push([message, parts]);
    posted.bytes += bytesOf(parts);
    if (posted.bytes < SEND_AT_BYTES && posted.messages.length < SEND_AT_MESSAGES) return;
    this.posted.delete(to);
    this.sendAll(to, posted.messages);
  }

  get anyPosted(): boolean {
    return this.posted.size > 0;
  }

  /** Sends what is posted. */
  flush(): void {
    each(this.posted, this.options.log, ([to, { messages }]) => this.sendAll(to, messages));
    this.posted.clear();
  }

  private sendAll(to: PeerId, messages: Posted[]): void {
    if (this.closed) return;
    const address = this.options.resolve(to);
    const peer = this.peerAt(to, address);
    if (peer?.link) {
      this.transmit(peer.link, messages);
      return;
    }
    if (!peer || !address) return;
    for (const [message, parts] of messages) if (!peer.queue.add(message, parts)) peer.lossy = true;
    if (!peer.dialing && !peer.timer) void this.connect(to, peer);
  }

  /**
   * Bytes that are kept until they are sent to nodes: posted, waiting for a connection, or in one. What is
   * sent to clients does not count, because the deltas of a replica that reads slowly must slow no push; a
   * connection to a client has a limit of its own.
   */
  get outgoingBytes(): number {
    let total = 0;
    for (const { link, queued, inc } of this.peers.values())
      if (inc > 0) total += (link?.bufferedBytes ?? 0) + queued.used;
    for (const [id, { bytes }] of this.posted) if (this.peers.get(id)?.inc !== 0) total += bytes;
    return total;
  }

  /** Closes the connection to a peer, with what it has not taken. */
  hangUp(id: PeerId): void {
    this.posted.delete(id);
    this.peers.get(id)?.link?.abandon('it does not read');
  }

  /**
   * For how long this process of a peer has acknowledged nothing; undefined: there is no link to it, or
   * nothing can be known. A link without traffic is pinged, so that the next answer tells. While a link that
   * was given up is dialed again, the time since the dialing began counts.
   */
  unacknowledgedMs(id: PeerId, inc: number): number | undefined {
    const peer = this.peers.get(id);
    if (peer?.inc !== inc) return undefined;
    if (peer.link) {
      peer.link.hurry();
      return peer.link.unacknowledgedMs;
    }
    const ms = monotonicMs() - (peer.askedAt ?? Number.POSITIVE_INFINITY);
    return ms > DOUBTFUL_MS ? ms : undefined;
  }

  /** Connections that are slower than what goes over them. Bytes count as received from the next call on. */
  busy(): Busy {
    const [sending, receiving] = [new Set<PeerId>(), new Set<PeerId>()];
    const now = monotonicMs();
    for (const [id, peer] of this.peers) {
      const { queuedBytes = 0, receivedBytes = 0 } = peer.link ?? {};
      if (queuedBytes > BUSY_BYTES) sending.add(id);
      if (receivedBytes > peer.receivedBytes) peer.receivedAt = now;
      peer.receivedBytes = receivedBytes;
      if (now - peer.receivedAt < RECEIVING_MS) receiving.add(id);
    }
    return { sending, receiving };
  }

  close(): void {
    this.closed = true;
    for (const [id, peer] of this.peers) this.forget(id, peer);
  }

  private transmit(link: Link, messages: readonly Posted[]): void {
    try {
      link.sendAll(messages);
      this.sentFrames++;
      this.sentMessages += messages.length;
      for (const [message, parts] of messages) this.sent.add(message.t, bytesOf(parts));
    } catch (error) {
      // Together they break a limit of frames, or one of them does alone. Sending each alone lets the others
      // arrive.
      if (messages.length > 1) for (const message of messages) this.transmit(link, [message]);
      else this.options.log.error('peer.unsent', { kind: messages[0]?.[0].t, message: describe(error) });
    }
  }

  private add(id: PeerId, inc: number): Peer {
    const queued = new WaitingBytes(MAX_QUEUED_BYTES);
    const peer: Peer = {
      link: undefined,
      inc,
      dialing: false,
      redials: new Retry({ waitMs: REDIAL_MS, maxWaitMs: MAX_REDIAL_MS }),
      timer: undefined,
      queue: new WaitingList({ maxCount: MAX_QUEUED_MESSAGES, account: queued, atLimit: 'refuse' }),
      queued,
      lossy: false,
      receivedBytes: 0,
      receivedAt: Number.NEGATIVE_INFINITY,
      askedAt: undefined,
    };
    this.peers.set(id, peer);
    return peer;
  }

  private forget(id: PeerId, peer: Peer): void {
    clearTimeout(peer.timer);
    if (this.peers.get(id) === peer) this.peers.delete(id);
    if (!peer.link) return;
    this.byLink.delete(peer.link.id);
    peer.link.close('replaced');
  }

  private async connect(id: PeerId, peer: Peer): Promise<void> {
    const address = this.options.resolve(id);
    if (!address || address.inc !== peer.inc || this.closed) {
      this.forget(id, peer);
      return;
    }
    peer.dialing = true;
    peer.askedAt = monotonicMs();
    const onTaken = (): void => {
      peer.askedAt = undefined;
    };
    try {
      const { host, port } = address;
      const { token, tls } = this.options;
      const handlers = this.incoming;
      const link = await dial({ host, port, token, tls, handlers, connectMs: CONNECT_MS, onTaken });
      peer.dialing = false;
      if (this.closed || this.peers.get(id) !== peer) {
        link.close('not needed');
        return;
      }
      const self = this.options.self();
      const proof = self.proof && { proof: self.proof };
      const hello: Hello = { t: 'hello', peer: self.peer, inc: self.inc, job: self.job, ...proof };
      link.send(hello);
      // Only nodes of the map are dialed.
      this.byLink.set(link.id, { id, role: 'node', heard: false, since: monotonicMs() });
      this.adopt(id, peer, link);
    } catch (error) {
      peer.dialing = false;
      peer.askedAt = undefined;
      peer.queue.takeAll();
      peer.lossy = true;
      this.options.log.warn('peer.unreachable', {
        peer: id,
        code: error instanceof KintsugiError ? error.code : 'INTERNAL',
      });
      this.retry(id, peer);
    }
  }

  /** Dials again after a pause, as long as the map says that the peer is there. */
  private retry(id: PeerId, peer: Peer): void {
    if (this.closed || this.peers.get(id) !== peer) return;
    peer.timer = setTimeout(() => {
      peer.timer = undefined;
      if (!peer.link && !peer.dialing) void this.connect(id, peer);
    }, peer.redials.waitMs);
    peer.timer.unref();
    peer.redials.lengthen();
  }

  private adopt(id: PeerId, peer: Peer, link: Link): void {
    peer.link = link;
    link.watch(Number.POSITIVE_INFINITY, GONE_MS);
    for (const { item, parts } of peer.queue.takeAll()) this.transmit(link, [[item, parts]]);
    if (!peer.lossy) return;
    peer.lossy = false;
    this.options.onUp(id);
  }

  private onMessage(link: Link, message: Message, parts: Uint8Array[]): void {
    const from = this.byLink.get(link.id);
    if (from !== undefined) {
      from.heard = true;
      this.options.onMessage(from.id, from.role, message, parts);
      return;
    }
    if (message.t !== 'hello') throw new KintsugiError('BAD_FRAME', 'the first message must be a hello');
    if (message.job !== this.options.self().job) {
      link.close('another job');
      return;
    }
    const role = this.introduced(link, message);
    const known = this.peers.get(message.peer);
    if (known && known.inc > message.inc) {
      link.close('STALE_NODE');
      return;
    }
    // A second connection between two peers that dialed each other at once: both work, the first one stays in
    // use here.
    this.byLink.set(link.id, { id: message.peer, role, heard: true, since: monotonicMs() });
    if (known?.link && known.inc === message.inc) {
      // A peer that we cannot dial has only its newest connection: the older one may be dead without our
      // knowing.
      const doubtful = (known.link.unacknowledgedMs ?? 0) > DOUBTFUL_MS;
      if (!doubtful && this.options.resolve(message.peer)) return;
      this.replaceLink(known, link);
      // What was under way on the older one may be lost.
      this.options.onUp(message.peer);
      return;
    }
    if (known && known.inc < message.inc) this.forget(message.peer, known);
    const peer = this.peers.get(message.peer) ?? this.add(message.peer, message.inc);
    this.adopt(message.peer, peer, link);
  }

  /** The role of the sender of a hello: a hello with an incarnation is of a node. @throws FORBIDDEN */
  private introduced(link: Link, { peer, inc, proof }: Hello): Role {
    // The scheduler dials nobody. A caller that passed for the scheduler could send maps.
    if (peer === SCHEDULER) throw new KintsugiError('FORBIDDEN', 'a hello of the scheduler');
    if (peer === this.options.self().peer)
      throw new KintsugiError('FORBIDDEN', 'a hello of this node itself');
    const role = inc > 0 ? 'node' : 'client';
    checkProved(link, role);
    if (role === 'node') return role;
    const isNode = this.options.resolve(peer) !== undefined;
    if (isNode || !(this.options.holds?.(peer, proof) ?? true))
      throw new KintsugiError('FORBIDDEN', `a client says that it is ${isNode ? 'node' : 'client'} ${peer}`);
    return role;
  }

  private replaceLink(peer: Peer, link: Link): void {
    const old = peer.link;
    peer.link = link;
    link.watch(Number.POSITIVE_INFINITY, GONE_MS);
    if (!old) return;
    this.byLink.delete(old.id);
    old.close('replaced');
  }

  private onClose(link: Link): void {
    const caller = this.byLink.get(link.id);
    if (!caller) return;
    const { id, heard, since } = caller;
    this.byLink.delete(link.id);
    const peer = this.peers.get(id);
    if (peer?.link !== link) return;
    // A peer that closes a new link without a message has refused the hello, and would refuse the next one as
    // well. So the pauses between attempts go on growing.
    if (heard || monotonicMs() - since >= MAX_REDIAL_MS) peer.redials.reset();
    peer.link = undefined;
    peer.lossy = true;
    this.options.onDown?.(id);
    if (this.options.resolve(id)) this.retry(id, peer);
    else this.forget(id, peer);
  }

  private onError(link: Link, error: unknown): void {
    this.options.log.error('peer.error', {
      peer: this.byLink.get(link.id)?.id ?? null,
      remote: link.remote,
      message: error instanceof Error ? (error.stack ?? error.message) : String(error),
    });
  }
}

export function bytesOf(parts: readonly Uint8Array[]): number {
  let bytes = 0;
  for (const part of parts) bytes += part.byteLength;
  return bytes;
}
