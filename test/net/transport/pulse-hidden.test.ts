/** Descriptors that a library hides are sought, and the search ends where they cannot be found. */
import { afterEach, beforeEach, expect, test, vi } from 'vitest';

/** The system's answer about connections at a port: descriptor and bytes written, alternating. */
let kernel: () => number[] = () => [];
vi.mock('../../../src/engine/native.js', async (original) => ({
  ...(await original<object>()),
  loadNative: () => ({
    tcpStates: (_: Int32Array, out: Float64Array) => void out.fill(-1),
    tcpWritten: (_: number, known: Int32Array) => {
      const all = kernel();
      return Float64Array.from(all.filter((_, i) => !known.includes(all[i - (i % 2)]!)));
    },
  }),
}));
const { Pulse } = await import('../../../src/net/transport/pulse.js');

/** A socket of uWebSockets.js. */
class Hidden {
  fd = -1;
  readonly hiddenAt = 7077;
  pings = 0;
  written = 0;
  /** True: other bytes wait to be written. */
  busy = false;

  ping(bytes: number): boolean {
    if (this.busy) return false;
    this.pings++;
    this.written += 2 + bytes;
    return true;
  }

  found(fd: number): void {
    this.fd = fd;
  }
}

function watch(sockets: readonly Hidden[]) {
  const pulse = new Pulse();
  for (const socket of sockets) pulse.watch(socket, Number.POSITIVE_INFINITY, 2000, () => {});
}

const MINUTE = 60_000;

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

test('a connection whose descriptor is never found is not pinged for ever', () => {
  kernel = () => [];
  // There are more than are sought at once: those that cannot be found do not keep others from their turn.
  const sockets = Array.from({ length: 250 }, () => new Hidden());
  watch(sockets);
  vi.advanceTimersByTime(MINUTE);
  const pings = sockets.map((socket) => socket.pings);
  expect(Math.max(...pings)).toBeLessThanOrEqual(10);
  expect(Math.min(...pings)).toBeGreaterThan(0);
  vi.advanceTimersByTime(MINUTE);
  expect(sockets.map((socket) => socket.pings)).toEqual(pings);
});

test('one that is busy for a minute is found when it is not', () => {
  const [socket, other] = [new Hidden(), new Hidden()];
  kernel = () => [8, socket.written, 9, other.written];
  socket.busy = true;
  watch([socket, other]);
  vi.advanceTimersByTime(MINUTE);
  expect([socket.fd, socket.pings, other.fd, other.pings]).toEqual([-1, 0, 9, 1]);
  socket.busy = false;
  vi.advanceTimersByTime(1000);
  expect([socket.fd, socket.pings]).toEqual([8, 1]);
});
