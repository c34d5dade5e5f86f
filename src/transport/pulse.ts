/**
 * Whether the other side's machine is there. A kernel acknowledges what arrives even while its process is
 * stalled or stopped, also when that process has no room to receive more. A machine that has lost its power
 * or its network acknowledges nothing. So a connection on which acknowledgements stay away tells a machine
 * that vanished from a process that is busy, and within a second, where silence tells it after many.
 *
 * On a connection without traffic nothing is waited for. So a ping goes out where there was none for a while.
 * Only Linux tells what was acknowledged; elsewhere nothing is ever known.
 */
import { loadNative } from '../native.js';

/** A socket whose connection can be looked at. */
export interface PulseSocket {
  /** File descriptor; -1: it is closed, or the library hides it and it was not found yet. */
  readonly fd: number;
  /** Where the library hides descriptors: the local port of the connection. */
  readonly hiddenAt?: number | undefined;
  /** Tells the descriptor that was found. */
  found?(fd: number): void;
  /** Writes a ping of `bytes` payload (0 to 125). False: not now, because other things wait to be written. */
  ping(bytes: number): boolean;
}

/** What is known of one connection. */
export interface Beat {
  /**
   * For how long the other side's kernel has acknowledged nothing of what it was sent, in milliseconds: 0
   * while it does, and while nothing was sent. Several round trips are granted, so that lost packets of a
   * slow connection do not count. Undefined: it cannot be known here.
   */
  readonly unacknowledgedMs: number | undefined;
  /** Bytes that this process wrote and the other side's kernel had not acknowledged at the newest look. */
  readonly unacknowledgedBytes: number;
  /** Sends a ping soon, if nothing is waited for. */
  hurry(): void;
  stop(): void;
}

/**
 * A link on which nothing was acknowledged for so long is replaced by a new one. After a long partition that
 * is faster than to wait for the old link: the kernel doubles the pause before each retransmission.
 */
export const GONE_MS = 2000;

/** All connections are looked at in this interval; it grows with their number. */
const LOOK_MS = 50;
const MAX_LOOK_MS = 250;
const LOOK_MS_PER_LINK = 0.25;
/** With more connections than fit into this rate each is pinged less often. */
const PINGS_PER_SECOND = 2000;
/** Round trips that may be late. A packet that is lost twice takes about so many. */
const ROUND_TRIPS = 4;
/** Connections whose descriptors are found out at once: each writes a ping of another length. */
const MAX_SOUGHT = 100;
/**
 * A descriptor that is not found by so many pings is sought no more: this system does not tell what was
 * written (not Linux, or before 4.19), and an idle connection would be pinged in every look for ever.
 */
const MAX_SEEKS = 10;
const FIELDS = 4;

class Watched implements Beat {
  unacknowledgedMs: number | undefined;
  unacknowledgedBytes = 0;
  /** Time since something was acknowledged, while something is waited for. */
  stuckMs = 0;
  written = -1;
  acknowledged = -1;
  quietMs = 0;
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
  private readonly watched = new Set<Watched>();
  private timer: NodeJS.Timeout | undefined;
  private lookedAt = 0;

  /**
   * `pingMs`: a ping goes out when nothing was written for so long; Infinity: only when it is hurried.
   * `onGone` is called while nothing was acknowledged for more than `goneMs`.
   */
  watch(socket: PulseSocket, pingMs: number, goneMs: number, onGone: () => void): Beat {
    const beat = new Watched(socket, pingMs, goneMs, onGone, this);
    this.watched.add(beat);
    if (!this.timer) {
      this.lookedAt = performance.now();
      this.later();
    }
    return beat;
  }

  /** @internal */
  forget(beat: Watched): void {
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

  /** The descriptor of a library that hides it is the one on which a ping of just this length was written. */
  private findHidden(): void {
    const ports = new Map<number, Watched[]>();
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

/** All of this is synchronous, so nobody else writes on these connections meanwhile. */
function find(port: number, beats: readonly Watched[], known: Int32Array): void {
  const native = loadNative();
  const before = native.tcpWritten(port, known);
  const pinged = new Map<number, Watched>();
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

/** A WebSocket frame of a server with a payload of up to 125 bytes. */
const PING_BYTES = 2;

/** All connections of this process. */
export const PULSE = new Pulse();
