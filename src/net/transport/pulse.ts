/**
 * The pulse of connections shows whether the other side's machine is there. A kernel acknowledges received
 * bytes even while its process is stalled or stopped, also when that process has no room to receive more. A
 * machine that has lost its power or its network acknowledges nothing. So missing acknowledgements
 * distinguish a machine that vanished from a busy process within a second. Silence does so only after many.
 *
 * A connection without traffic waits for no acknowledgement, so it is pinged after a while. Only Linux tells
 * which bytes were acknowledged; on other systems nothing is ever known.
 */
import { loadNative } from '../../engine/native.js';

/** A socket whose connection can be watched. */
export interface PulseSocket {
  /** File descriptor; -1: it is closed, or the library hides it and it was not found yet. */
  readonly fd: number;
  /** Local port of the connection, if the library hides descriptors. */
  readonly hiddenAt?: number | undefined;
  /** Called with the descriptor that was found. */
  found?(fd: number): void;
  /** Writes a ping of `bytes` payload (0 to 125). False: not now, because other things wait to be written. */
  ping(bytes: number): boolean;
}

/** The state of one watched connection. */
export interface Beat {
  /**
   * Milliseconds for which the other side's kernel has acknowledged none of the bytes that were sent: 0 while
   * it acknowledges them, and while none were sent. Several round trips are granted, so that lost packets of
   * a slow connection do not count. Undefined: it cannot be known here.
   */
  readonly unacknowledgedMs: number | undefined;
  /** Bytes that this process wrote and the other side's kernel had not acknowledged at the newest look. */
  readonly unacknowledgedBytes: number;
  /** Sends a ping soon, if no acknowledgement is waited for. */
  hurry(): void;
  stop(): void;
}

/**
 * A link on which nothing was acknowledged for this time is replaced by a new one. After a long partition
 * that is faster than to wait for the old link: the kernel doubles the pause before each retransmission.
 */
export const GONE_MS = 2000;

/** All connections are looked at in this interval; it grows with their number. */
const LOOK_MS = 50;
const MAX_LOOK_MS = 250;
const LOOK_MS_PER_LINK = 0.25;
/** Most pings of all connections. With many connections, each is pinged less often. */
const PINGS_PER_SECOND = 2000;
/** Round trips that an acknowledgement may take: a packet that is lost twice takes about this many. */
const ROUND_TRIPS = 4;
/** Connections whose descriptors are sought at once: each writes a ping of another length. */
const MAX_SOUGHT = 100;
/**
 * A descriptor that is not found by this many pings is sought no more: this system does not tell which bytes
 * were written (not Linux, or before 4.19), and an idle connection would be pinged in every look for ever.
 */
const MAX_SEEKS = 10;
const FIELDS = 4;

class WatchedSocket implements Beat {
  unacknowledgedMs: number | undefined;
  unacknowledgedBytes = 0;
  /** Time since an acknowledgement, while one is waited for; 0 while none is. */
  stuckMs = 0;
  /** Bytes that this side had written at the last look; -1: not looked at yet. */
  written = -1;
  /** Bytes that the other side had acknowledged at the last look; -1: not looked at yet. */
  acknowledged = -1;
  /** Time since this side wrote. */
  quietMs = 0;
  /** A ping goes out in the next look, if no acknowledgement is waited for. */
  hurried = false;
  /** Pings that were to find the descriptor. */
  seeks = 0;

  constructor(
    readonly socket: PulseSocket,
    readonly pingMs: number,
    readonly goneMs: number,
    readonly onGone: () => void,
    private readonly pulse: Pulse,
  ) {}

  hurry(): void {
    this.hurried = true;
  }

  stop(): void {
    this.pulse.forget(this);
  }
}

export class Pulse {
  private readonly watched = new Set<WatchedSocket>();
  /** Set while anything is watched. */
  private timer: NodeJS.Timeout | undefined;
  /** Time of the last look, in milliseconds. */
  private lookedAt = 0;

  /**
   * `pingMs`: a ping goes out when nothing was written for this time; Infinity: only when it is hurried.
   * `onGone` is called in each look while nothing was acknowledged for more than `goneMs`.
   */
  watch(socket: PulseSocket, pingMs: number, goneMs: number, onGone: () => void): Beat {
    const beat = new WatchedSocket(socket, pingMs, goneMs, onGone, this);
    this.watched.add(beat);
    if (!this.timer) {
      this.lookedAt = performance.now();
      this.later();
    }
    return beat;
  }

  /** @internal */
  forget(beat: WatchedSocket): void {
    this.watched.delete(beat);
    if (this.watched.size > 0) return;
    clearTimeout(this.timer);
    this.timer = undefined;
  }

  private get lookMs(): number {
    return Math.min(MAX_LOOK_MS, Math.max(LOOK_MS, this.watched.size * LOOK_MS_PER_LINK));
  }

  private later(): void {
    this.timer = setTimeout(() => {
      this.look();
      if (this.watched.size > 0) this.later();
    }, this.lookMs).unref();
  }

  private look(): void {
    const now = performance.now();
    // Time in which this process did not run is no time in which others were silent.
    const passedMs = Math.min(now - this.lookedAt, 3 * this.lookMs);
    this.lookedAt = now;
    this.findHidden();
    const beats = [...this.watched];
    const states = new Float64Array(beats.length * FIELDS);
    loadNative().tcpStates(
      Int32Array.from(beats, ({ socket }) => socket.fd),
      states,
    );
    const leastPingMs = (1000 * beats.length) / PINGS_PER_SECOND;
    for (const [i, beat] of beats.entries()) {
      const [written, acknowledged, waits, roundTripMs] = states.subarray(i * FIELDS, (i + 1) * FIELDS);
      if (written! < 0) {
        beat.unacknowledgedMs = undefined;
        beat.unacknowledgedBytes = 0;
        continue;
      }
      beat.stuckMs = waits === 1 && acknowledged === beat.acknowledged ? beat.stuckMs + passedMs : 0;
      beat.quietMs = written === beat.written ? beat.quietMs + passedMs : 0;
      beat.unacknowledgedMs = Math.max(0, beat.stuckMs - ROUND_TRIPS * roundTripMs!);
      beat.unacknowledgedBytes = Math.max(0, written! - acknowledged!);
      beat.written = written!;
      beat.acknowledged = acknowledged!;
      const due = beat.hurried || beat.quietMs >= Math.max(beat.pingMs, leastPingMs);
      if (due && waits === 0) beat.socket.ping(0);
      beat.hurried = false;
      if (beat.unacknowledgedMs > beat.goneMs) beat.onGone();
    }
  }

  /** Finds hidden descriptors: each is the one on which a ping of just this length was written. */
  private findHidden(): void {
    const ports = new Map<number, WatchedSocket[]>();
    for (const beat of this.watched) {
      const { fd, hiddenAt } = beat.socket;
      if (fd >= 0 || hiddenAt === undefined || beat.seeks >= MAX_SEEKS) continue;
      const hidden = ports.get(hiddenAt) ?? [];
      if (hidden.length < MAX_SOUGHT) ports.set(hiddenAt, [...hidden, beat]);
    }
    for (const [port, beats] of ports) find(port, beats, this.descriptors());
  }

  private descriptors(): Int32Array {
    return Int32Array.from([...this.watched].map(({ socket }) => socket.fd).filter((fd) => fd >= 0));
  }
}

/** Finds descriptors at a port. This is synchronous, so nobody else writes on these connections meanwhile. */
function find(port: number, beats: readonly WatchedSocket[], known: Int32Array): void {
  const native = loadNative();
  const before = native.tcpWritten(port, known);
  const pinged = new Map<number, WatchedSocket>();
  for (const [i, beat] of beats.entries()) {
    if (!beat.socket.ping(i)) continue;
    beat.seeks++;
    pinged.set(PING_BYTES + i, beat);
  }
  const after = native.tcpWritten(port, known);
  const writtenBefore = new Map<number, number>();
  for (let i = 0; i < before.length; i += 2) writtenBefore.set(before[i]!, before[i + 1]!);
  for (let i = 0; i < after.length; i += 2) {
    const bytes = after[i + 1]! - (writtenBefore.get(after[i]!) ?? after[i + 1]!);
    pinged.get(bytes)?.socket.found?.(after[i]!);
  }
}

/** Bytes of a server's WebSocket frame before a payload of up to 125 bytes. */
const PING_BYTES = 2;

/** The pulse of all connections of this process. */
export const PULSE = new Pulse();
