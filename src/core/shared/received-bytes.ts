/**
 * The account of frames on their way to a node. A frame comes in pieces, and the transport puts them together
 * in memory of this account (src/net/transport/inbound.ts).
 *
 * Each link of a client has a window: bytes that it may send before they are returned to it as credit. They
 * are returned when their frame has been handled. All windows together fit half of the limit, whatever
 * clients send. A frame that is larger than its window needs room in the other half. It waits for that with
 * at most its window here, and frames get room in the order in which they asked. The only frame there may be
 * larger than the half, so every frame gets room at some time. With its room it gets credit for all of it, so
 * how fast it comes depends on the link alone, and not on the window.
 *
 * A request that waits for its turn (src/core/node/request-queue.ts) keeps its credit, so a client sends no
 * more than the node serves.
 *
 * A piece is at most half a window, because nobody counts what the transport's library holds of a message
 * that has not come to its end. The first links get large windows, and so large pieces that most frames come
 * in one. Links that find no large window left get small ones.
 *
 * Links of nodes have no window and are never made to wait, because they bring the acknowledgements that free
 * memory. What they hold is counted.
 */
import { invariant } from '../../common/errors.js';

/** Largest message of a link with a small window. A frame that is larger comes in several. */
export const PIECE_BYTES = 64 << 10;
/** A large window is this share of the limit, and within these bounds. */
const LARGE_WINDOW = 1 / 32;
const LARGE_WINDOW_BYTES = 1 << 20;
const LARGEST_WINDOW_BYTES = 8 << 20;
/** A small window while there is much room, and when there is little. */
const SMALL_WINDOW_BYTES = 1 << 20;
/** A library may hold one piece before anybody hears of it; a second one keeps the link busy. */
const LEAST_WINDOW_BYTES = 2 * PIECE_BYTES;
/** Share of the limit for all windows, and up to which there are large ones, and small ones of full size. */
const WINDOWS = 1 / 2;
const LARGE_WINDOWS = 1 / 4;
const SMALL_WINDOWS = 3 / 8;
/** A frame with credit or room that does not go on for this time is closed when others wait for room. */
const STALL_MS = 1000;
/**
 * A frame goes on when a small piece of it has come, and one that has room when this part of it has come: it
 * keeps others waiting for a minute at most. A frame that has room has credit for all of it, so no part of it
 * waits for credit to arrive.
 */
const PROGRESS = 1 / 64;
/** A tick counts for no more: while this process stands still, no link can be heard. */
const LONGEST_TICK_MS = 100;
/** A link of which no byte has come for this time may be closed for a new one. */
const IDLE_MS = 10_000;
/** So may one whose frame has not gone on for this time: a byte now and then keeps no window for ever. */
const SLOW_MS = 60_000;

/** A frame of which pieces are missing. */
interface IncomingFrame {
  readonly total: number;
  /** Bytes that have come. */
  arrived: number;
  /** Bytes that had come when it went on last. */
  wentOnBytes: number;
  /** `window`: it fits the window. `waits`: it has no room yet. `room`: it has. `free`: it is a node's. */
  place: 'window' | 'waits' | 'room' | 'free';
}

/** The account tells a link of these; the transport carries them out. */
export interface ReceiveHandlers {
  /** The frame that waited has room. Credit may be due. */
  onRoom(): void;
  /** The link stands in the way of others. */
  onEvict(reason: string): void;
}

export class ReceivedBytes {
  /** Bytes of frames that are not complete, and of complete ones that are being handled. */
  held = 0;
  /** Sum of the windows of all links. */
  private windows = 0;
  /** Bytes of frames that have room. */
  private room = 0;
  private readonly links = new Set<ReceiveLink>();
  /** Links whose frames wait for room, in the order in which they asked. */
  private readonly waiting = new Set<ReceiveLink>();
  /** Milliseconds in which links could be heard. */
  now = 0;
  /** Time of the newest tick. */
  private ticked = 0;

  /** Bytes of a large window. */
  private readonly largeWindow: number;

  /** `limit`: in bytes, `Policy.maxReceivedBytes`. */
  constructor(private readonly limit: number) {
    // Even, because a piece is half of it.
    const share = 2 * Math.floor((limit * LARGE_WINDOW) / 2);
    this.largeWindow = Math.min(LARGEST_WINDOW_BYTES, Math.max(LARGE_WINDOW_BYTES, share));
  }

  /** Largest message of a link with a large window, and of a node's. */
  get largePieceBytes(): number {
    return this.largeWindow / 2;
  }

  /** True: a link may be opened with a large window. */
  hasLarge(): boolean {
    return this.windows + this.largeWindow <= this.limit * LARGE_WINDOWS;
  }

  /** True: there is no window left, also not that of an idle link. Closes the most idle link if needed. */
  isFull(): boolean {
    if (this.smallWindow() > 0) return false;
    let idle: ReceiveLink | undefined;
    let slow: ReceiveLink | undefined;
    for (const link of this.links) {
      if (!link.isLimited || link.awaitsUs) continue;
      if (link.cameAt < (idle?.cameAt ?? this.now - IDLE_MS)) idle = link;
      if (link.heardAt < (slow?.heardAt ?? this.now - SLOW_MS)) slow = link;
    }
    if (idle) idle.evict('it was idle, and its window is needed');
    else slow?.evict('its frame is overdue, and its window is needed');
    return this.smallWindow() === 0;
  }

  /** `free`: a link of a node, which is not limited. `large`: only where there is such a window. */
  open(kind: 'free' | 'large' | 'small'): ReceiveLink {
    invariant(kind !== 'large' || this.hasLarge(), 'a large window is only opened where there is one');
    const limited = kind === 'large' ? this.largeWindow : this.smallWindow();
    const link = new ReceiveLink(
      this,
      kind === 'free' ? Number.POSITIVE_INFINITY : limited,
      kind === 'small' ? PIECE_BYTES : this.largePieceBytes,
    );
    if (link.isLimited) this.windows += link.window;
    this.links.add(link);
    return link;
  }

  private smallWindow(): number {
    if (this.windows + SMALL_WINDOW_BYTES <= this.limit * SMALL_WINDOWS) return SMALL_WINDOW_BYTES;
    return this.windows + LEAST_WINDOW_BYTES <= this.limit * WINDOWS ? LEAST_WINDOW_BYTES : 0;
  }

  /** Time has passed: links that hold up others are closed. */
  tick(now: number): void {
    this.now += Math.min(now - this.ticked, LONGEST_TICK_MS);
    this.ticked = now;
    if (this.waiting.size === 0) return;
    const late = this.now - STALL_MS;
    for (const link of [...this.links])
      if (link.heardAt < late && link.maySend) link.evict('its frame is overdue, and others wait for room');
  }

  /** @internal True: the frame has room now. Otherwise the link is told later. */
  takeRoom(link: ReceiveLink, bytes: number): boolean {
    if (this.waiting.size > 0 || !this.fits(bytes)) {
      this.waiting.add(link);
      return false;
    }
    this.room += bytes;
    return true;
  }

  /** @internal */
  giveRoom(bytes: number): void {
    this.room -= bytes;
    invariant(this.room >= 0, 'only room that was taken is given back', { bytes });
    this.handOut();
  }

  /** @internal */
  hold(bytes: number): void {
    this.held += bytes;
    invariant(this.held >= 0, 'no more is let go than was held', { bytes });
  }

  /** @internal The link gives its window back, and waits for nothing. */
  forget(link: ReceiveLink, closed: boolean): void {
    if (link.isLimited) this.windows -= link.window;
    if (closed) this.links.delete(link);
    if (this.waiting.delete(link)) this.handOut();
  }

  private fits(bytes: number): boolean {
    return this.room === 0 || this.room + bytes <= this.limit * (1 - WINDOWS);
  }

  private handOut(): void {
    for (const link of this.waiting) {
      const bytes = link.frame?.total ?? 0;
      if (!this.fits(bytes)) return;
      this.waiting.delete(link);
      this.room += bytes;
      link.gotRoom();
    }
  }
}

/** One link's part of the account. */
export class ReceiveLink {
  /** Bytes that it may send and that have not been returned; Infinity: no limit. */
  private credit: number;
  /** Bytes that have been handled and are not returned yet. */
  private owed = 0;
  /** The frame that is coming in pieces. */
  frame: IncomingFrame | undefined;
  /** Bytes of requests that wait to be served. Their credit is not returned before. */
  private kept = 0;
  /** The frame that is coming began while credit was kept, so credit that is free is returned at once. */
  private short = false;
  /** When a message came last or the frame went on, in milliseconds of ticks. */
  heardAt: number;
  /** When a byte came last, or this side let the link go on, in milliseconds of ticks. At least `heardAt`. */
  cameAt: number;
  private closed = false;
  handlers: ReceiveHandlers | undefined;

  /** @internal */
  constructor(
    private readonly account: ReceivedBytes,
    public window: number,
    /** Largest message that it may send. */
    readonly pieceBytes: number,
  ) {
    this.credit = window;
    this.heardAt = this.cameAt = account.now;
  }

  /** The other side is told of these when the link opens. */
  get terms(): { readonly pieceBytes: number; readonly creditBytes: number } {
    return { pieceBytes: this.pieceBytes, creditBytes: this.window };
  }

  /** False: the link of a node. */
  get isLimited(): boolean {
    return this.window < Number.POSITIVE_INFINITY;
  }

  /** A frame came in one message. False: the other side had no credit for it. */
  takeWhole(bytes: number): boolean {
    this.heard();
    this.credit -= bytes;
    this.owed += bytes;
    return this.credit >= 0;
  }

  /** A frame of `total` bytes begins. */
  begin(total: number): void {
    const { account, window } = this;
    this.heard();
    const frame: IncomingFrame = { total, arrived: 0, wentOnBytes: 0, place: 'free' };
    this.frame = frame;
    if (!this.isLimited) return;
    if (total <= window) frame.place = 'window';
    else if (account.takeRoom(this, total)) this.inRoom(frame);
    else frame.place = 'waits';
  }

  /** The room is memory for all of the frame, so its bytes take nothing of the window. */
  private inRoom(frame: IncomingFrame): void {
    frame.place = 'room';
    this.owed += frame.total;
  }

  private heard(): void {
    this.heardAt = this.cameAt = this.account.now;
  }

  /** True: this side keeps it from sending. Its requests wait to be served, or its frame for room. */
  get awaitsUs(): boolean {
    return this.kept > 0 || (this.frame?.place === 'waits' && this.credit < this.pieceBytes);
  }

  /** True: its frame does not wait for this side, so the next piece should come. */
  get maySend(): boolean {
    const { frame } = this;
    if (!frame || frame.place === 'free') return false;
    if (this.kept > 0 && this.credit < this.pieceBytes) return false;
    return frame.place !== 'waits' || this.credit >= this.pieceBytes;
  }

  /** A piece of the frame came. False: the other side had no credit for it. */
  takePiece(bytes: number): boolean {
    const { account, frame } = this;
    this.credit -= bytes;
    account.hold(bytes);
    frame!.arrived += bytes;
    this.cameAt = account.now;
    if (frame!.arrived - frame!.wentOnBytes >= this.progressOf(frame!)) this.goesOn(frame!);
    return this.credit >= 0;
  }

  /** Bytes of its frame that have to come until it goes on again. */
  private progressOf({ total, place, wentOnBytes }: IncomingFrame): number {
    const part = place === 'room' ? total * PROGRESS : 0;
    return Math.min(Math.max(part, PIECE_BYTES), total - wentOnBytes);
  }

  private goesOn(frame: IncomingFrame): void {
    frame.wentOnBytes = frame.arrived;
    this.heard();
  }

  /** The frame that came in pieces has been handled. */
  end(): void {
    const { frame } = this;
    this.frame = undefined;
    this.short = false;
    if (!frame || this.closed) return;
    this.account.hold(-frame.arrived);
    if (frame.place === 'room') this.account.giveRoom(frame.total);
    else this.owed += frame.arrived;
  }

  /**
   * Credit that the other side is to be told of now, after which it counts as told; 0: none yet. Half a
   * window is at least a piece, so the other side never waits for what is owed to it. A frame that begins
   * may need all of the window.
   */
  due(): number {
    const { kept, frame, window } = this;
    const free = this.owed - kept;
    if (frame?.arrived === 0 && kept > 0) this.short = true;
    if (!this.isLimited || free <= 0) return 0;
    if (free * 2 < window && !(frame?.arrived === 0 || this.short)) return 0;
    this.owed = kept;
    this.credit += free;
    return free;
  }

  /** Sets how many bytes of what came wait to be served. They are held, and their credit is kept. */
  keep(bytes: number): void {
    if (this.closed) return;
    this.account.hold(bytes - this.kept);
    if (bytes < this.kept) this.heard();
    this.kept = bytes;
  }

  /** Takes the limit off. Returns the credit that the other side is to be told of; 0: it has no limit. */
  lift(): number {
    if (!this.isLimited || this.closed) return 0;
    this.account.forget(this, false);
    const { frame } = this;
    if (frame) {
      if (frame.place === 'room') this.account.giveRoom(frame.total);
      frame.place = 'free';
    }
    this.window = this.credit = Number.POSITIVE_INFINITY;
    return Number.MAX_SAFE_INTEGER;
  }

  /** @internal */
  gotRoom(): void {
    const frame = this.frame!;
    this.inRoom(frame);
    this.goesOn(frame);
    this.handlers?.onRoom();
  }

  /** @internal */
  evict(reason: string): void {
    this.handlers?.onEvict(reason);
  }

  /** The link is closed: everything that it holds is free. */
  close(): void {
    if (this.closed) return;
    const { account, frame } = this;
    this.closed = true;
    this.frame = undefined;
    account.forget(this, true);
    account.hold(-this.kept);
    if (!frame) return;
    account.hold(-frame.arrived);
    if (frame.place === 'room') account.giveRoom(frame.total);
  }
}
