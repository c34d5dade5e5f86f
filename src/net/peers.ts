/**
 * Connections to nodes and clients, by identity. A peer is dialed when there is a message for it, and again
 * after a pause when that fails. A few messages are kept meanwhile. A peer that dialed us is answered on the
 * connection that it made. Messages may be lost (the protocol repeats them) but are not reordered within a
 * connection.
 */
import { codeOf, describe, KintsugiError, traceOf } from '../common/errors.js';
import type { Busy } from '../core/client/state.js';
import type { LinkBytes } from '../core/shared/content-bytes.js';
import type { ReceivedBytes } from '../core/shared/received-bytes.js';
import { Retry } from '../core/shared/retry.js';
import { WaitingBytes } from '../core/shared/waiting-bytes.js';
import { WaitingList } from '../core/shared/waiting-list.js';
import { type ClusterMap, type PeerId, SCHEDULER } from '../protocol/map.js';
import type { Hello, Message } from '../protocol/messages.js';
import type { Role } from '../protocol/senders.js';
import { toMessage } from '../protocol/validate.js';
import type { PeerAddress } from './address-book.js';
import { each } from './effects.js';
import { tellHungUp } from './hung-up.js';
import { type Logger, monotonicMs } from './log.js';
import { type Caller, linkBytesOf, type Peer } from './peer.js';
import { bytesOf, Postbox, type Posted } from './postbox.js';
import { checkProved, Refusals } from './refusals.js';
import { Repeats } from './repeats.js';
import { Sent } from './sent.js';
import { type ClientTls, dial, GONE_MS, type Link, type LinkHandlers } from './transport/index.js';

/** Messages and bytes that are kept for one peer while it is dialed. Further ones are dropped. */
const MAX_QUEUED_MESSAGES = 4096;
const MAX_QUEUED_BYTES = 64 << 20;
/** In a job of more nodes than this, a new node is dialed only when there is a message for it. */
const MAX_DIALED_EARLY = 64;
/** Pause before dialing again, doubling. */
const REDIAL_MS = 25;
const MAX_REDIAL_MS = 1000;

/**
 * Time for the other side's kernel to accept a connection. A new attempt gets through as soon as a partition
 * is over.
 */
const CONNECT_MS = 1000;
/**
 * A connection that is unacknowledged for this time counts as lost when its peer makes a second one. A peer
 * whose kernel has not accepted our connection for this time counts as silent.
 */
const DOUBTFUL_MS = 400;
/** A connection on which more bytes than this wait to be sent is slower than its messages. */
const BUSY_BYTES = 64 * 1024;
/** Longest pause between packets of a slow connection, also when a packet is lost. */
const RECEIVING_MS = 1000;

export interface PeersOptions {
  self: () => { peer: PeerId; inc: number; job: string; proof?: Uint8Array | undefined };
  /** Token with which this side dials. */
  token?: string | undefined;
  /** True if the proof is that of this client. Default: every proof is. */
  holds?(client: PeerId, proof: Uint8Array | undefined): boolean;
  tls?: ClientTls | undefined;
  /** Account of received frames, for connections that this side dials. */
  received?: ReceivedBytes | undefined;
  /** The address of a peer; undefined when it cannot or should not be dialed. */
  resolve(peer: PeerId): PeerAddress | undefined;
  /**
   * The connection to the peer is made again when it is lost, also when there is no message for the peer.
   * Default: for every peer that can be dialed.
   */
  keepsUp?(peer: PeerId): boolean;
  onMessage(from: PeerId, role: Role, message: Message, parts: readonly Uint8Array[]): void;
  /** The peer is connected again after messages to or from it may have been lost. */
  onUp(peer: PeerId): void;
  /** A link to the peer has ended. What was sent on it, and has not arrived, never arrives. */
  onDown?(peer: PeerId): void;
  /** The socket of the peer, which dialed us, has taken something that had waited. */
  onDrain?(peer: PeerId): void;
  log: Logger;
}

export class Peers {
  private readonly peers = new Map<PeerId, Peer>();
  /** Id of a link -> the peer, for each link that has said hello, or that we dialed. */
  private readonly byLink = new Map<number, Caller>();
  readonly refusals: Refusals;
  /** Messages for the next `flush`. */
  private readonly postbox = new Postbox();
  private closed = false;
  /** Peers that could not be dialed, for the log. */
  private readonly unreachable = new Repeats<PeerId>(monotonicMs);
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
    onDrain: (link) => {
      const caller = this.options.onDrain && this.byLink.get(link.id);
      if (caller) this.options.onDrain?.(caller.id);
    },
    onClose: (link) => this.onClose(link),
    onHungUp: (link, reason) => tellHungUp(this.options.log, link, reason),
    onError: (link, error) => this.onError(link, error),
  };

  /**
   * Dials the nodes that are new in a running job. They will get shards, and a connection that exists by then
   * saves time at the hand-over.
   */
  dialNew(before: ClusterMap, now: ClusterMap): void {
    if (before.nodes === now.nodes || before.groups.length === 0 || now.nodes.length > MAX_DIALED_EARLY)
      return;
    const self = this.options.self().peer;
    for (const { id, inc } of now.nodes) {
      if (id === self || before.nodes.some((node) => node.id === id && node.inc === inc)) continue;
      const peer = this.peerAt(id, this.options.resolve(id));
      if (peer && !peer.link && !peer.dialing && !peer.timer) void this.connect(id, peer);
    }
  }

  /**
   * The peer, as the incarnation that the map names now. Undefined when it cannot be dialed and did not dial
   * us.
   */
  private peerAt(id: PeerId, address: PeerAddress | undefined): Peer | undefined {
    const known = this.peers.get(id);
    if (known && (!address || known.inc === address.inc)) return known;
    if (known) this.forget(id, known);
    return address && this.add(id, address.inc);
  }

  /**
   * Sends now, after the messages that are posted to that peer, so messages keep their order. The parts are
   * copied before this returns, here or by the link.
   */
  send(to: PeerId, message: Message, parts: readonly Uint8Array[]): void {
    this.sendAll(to, [...this.postbox.take(to), [message, parts]]);
  }

  /**
   * Sends at the next `flush`, in one frame with all other messages that are posted to that peer. Until then
   * the parts are not copied.
   */
  post(to: PeerId, message: Message, parts: readonly Uint8Array[]): void {
    if (this.postbox.add(to, message, parts)) this.sendAll(to, this.postbox.take(to));
  }

  get anyPosted(): boolean {
    return !this.postbox.isEmpty;
  }

  /** Sends all posted messages. */
  flush(): void {
    each(this.postbox.peers(), this.options.log, (to) => this.sendAll(to, this.postbox.take(to)));
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
   * Bytes of the links to all nodes. Clients are left out, because a replica that reads slowly must slow no
   * push; a connection to a client has a limit of its own.
   */
  outgoingBytes(): Map<PeerId, LinkBytes> {
    const links = new Map<PeerId, LinkBytes>();
    const { postbox } = this;
    for (const id of postbox.peers()) links.set(id, { held: postbox.bytesFor(id), taken: 0 });
    for (const [id, peer] of this.peers) links.set(id, linkBytesOf(peer, postbox.bytesFor(id)));
    for (const [id, { inc }] of this.peers) if (inc === 0) links.delete(id);
    return links;
  }

  /** Bytes for one peer that are kept until its socket takes them; 0: there is no link to it. */
  bytesFor(id: PeerId): number {
    const link = this.peers.get(id)?.link;
    return link ? link.bufferedBytes + this.postbox.bytesFor(id) : 0;
  }

  /** Bytes that clients and replicas have not taken. */
  get readerBytes(): number {
    let total = 0;
    for (const { link, inc } of this.peers.values()) if (inc === 0) total += link?.bufferedBytes ?? 0;
    for (const id of this.postbox.peers())
      if (this.peers.get(id)?.inc === 0) total += this.postbox.bytesFor(id);
    return total;
  }

  /** Says how many bytes of requests of a client wait to be served. */
  keep(id: PeerId, bytes: number): void {
    this.peers.get(id)?.link?.keep(bytes);
  }

  /** Closes the connection to a peer, and drops the bytes that the peer has not taken. */
  hangUp(id: PeerId): void {
    this.postbox.take(id);
    this.peers.get(id)?.link?.abandon('it does not read');
  }

  /**
   * Time for which the kernel of this process has acknowledged nothing; undefined: there is no link to it, or
   * it cannot be known. A link without traffic is pinged, so that the next call knows. While a link that was
   * given up is dialed again, the time since the dialing began counts.
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

  /** Connections that are slower than their messages. Bytes count as received from the next call on. */
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
      // The messages together break a limit of frames, or one of them does alone. When each is sent alone,
      // the others arrive.
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
      takenBefore: 0,
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
      const { token, tls, received } = this.options;
      const handlers = this.incoming;
      const link = await dial({ host, port, token, tls, received, handlers, connectMs: CONNECT_MS, onTaken });
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
      const code = codeOf(error, 'INTERNAL');
      this.unreachable.note(id, (repeated) =>
        this.options.log.warn('peer.unreachable', { peer: id, code, repeated }),
      );
      this.retry(id, peer);
    }
  }

  /**
   * Dials again after a pause, as long as the map says that the peer is there, and when there is a message
   * for it or its connection is to be kept up.
   */
  private retry(id: PeerId, peer: Peer): void {
    if (this.closed || this.peers.get(id) !== peer) return;
    peer.timer = setTimeout(() => {
      peer.timer = undefined;
      if (peer.link || peer.dialing) return;
      if (peer.queue.length > 0 || (this.options.keepsUp?.(id) ?? true)) void this.connect(id, peer);
    }, peer.redials.waitMs);
    peer.timer.unref();
    peer.redials.lengthen();
  }

  private adopt(id: PeerId, peer: Peer, link: Link): void {
    peer.link = link;
    this.unreachable.over(id);
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
    if (role === 'node') link.lift();
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
      this.replaceLink(message.peer, known, link);
      // Messages that were under way on the older connection may be lost.
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

  private replaceLink(id: PeerId, peer: Peer, link: Link): void {
    const old = peer.link;
    peer.link = link;
    peer.takenBefore += old?.sentBytes ?? 0;
    link.watch(Number.POSITIVE_INFINITY, GONE_MS);
    if (!old) return;
    this.byLink.delete(old.id);
    // A peer could make one connection after the other, and keep what is buffered on each.
    if (old.bufferedBytes > 0) old.abandon('replaced');
    else old.close('replaced');
    this.options.onDown?.(id);
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
    peer.takenBefore += link.sentBytes;
    peer.lossy = true;
    this.options.onDown?.(id);
    if (this.options.resolve(id)) this.retry(id, peer);
    else this.forget(id, peer);
  }

  private onError(link: Link, error: unknown): void {
    this.options.log.error('peer.error', {
      peer: this.byLink.get(link.id)?.id ?? null,
      remote: link.remote,
      message: traceOf(error),
    });
  }
}
