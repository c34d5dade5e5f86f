/**
 * Probes find out whether a process still listens at its address. Nobody listens at the port of a killed
 * process. A refusal by the machine that ran it proves that at once, and silence does not. A forwarder or a
 * firewall in between may refuse for reasons of its own.
 */
import { BlockList, connect, isIP } from 'node:net';
import type { Address } from './address.js';

const PROBE_MS = 500;

/** gone: nobody listens there. unclear: no answer, or a refusal that proves nothing. */
export type ProbeFinding = 'listening' | 'gone' | 'unclear';

const AGAIN_MS = 25;
const UNCLEAR_MS = 250;
/**
 * Up to this number, processes are probed as often as one alone. After a restart of the scheduler all nodes
 * are probed.
 */
const FEW = 64;

/**
 * The pause until a process is probed again, because a listener may outlive its process for a moment.
 * `probed`: number of processes that are probed in turn. `limitMs`: a listener must be seen more often than
 * this.
 */
export function pauseAfter(finding: ProbeFinding, probed: number, limitMs: number): number {
  if (finding !== 'listening') return UNCLEAR_MS;
  return Math.max(AGAIN_MS, Math.min((AGAIN_MS * probed) / FEW, limitMs / 2 - AGAIN_MS));
}

/** Probes an address. `from`: the address that the process's own connections came from, if known. */
export function probe({ host, port }: Address, from: string | undefined): Promise<ProbeFinding> {
  return new Promise((resolve) => {
    const socket = connect({ host, port });
    const end = (finding: ProbeFinding) => {
      socket.destroy();
      resolve(finding);
    };
    socket.setTimeout(PROBE_MS, () => end('unclear'));
    socket.on('connect', () => end('listening'));
    socket.on('error', (error) => end(provesGone(error, from) ? 'gone' : 'unclear'));
  });
}

type ConnectError = Error & { code?: string; address?: string; errors?: readonly Error[] };

/**
 * True if every address of the host refused, and each is an address of the process's machine: a loopback
 * address, or the one that the process called from.
 */
export function provesGone(error: ConnectError, from: string | undefined): boolean {
  const attempts = (error.errors ?? [error]) as readonly ConnectError[];
  return attempts.every(
    ({ code, address }) =>
      code === 'ECONNREFUSED' &&
      address !== undefined &&
      (LOOPBACK.check(address, familyOf(address)) || (from !== undefined && isSame(address, from))),
  );
}

/** The address in "address", "address:port" or "[address]:port". */
export function hostOf(remote: string): string {
  if (isIP(remote) !== 0) return remote;
  return remote.replace(/:\d+$/, '').replace(/^\[|\]$/g, '');
}

const LOOPBACK = new BlockList();
LOOPBACK.addSubnet('127.0.0.0', 8, 'ipv4');
LOOPBACK.addAddress('::1', 'ipv6');

const familyOf = (address: string): 'ipv4' | 'ipv6' => (isIP(address) === 6 ? 'ipv6' : 'ipv4');

/** True for the same address, also where one of them is an IPv4 address written as an IPv6 one. */
function isSame(a: string, b: string): boolean {
  if (isIP(a) === 0 || isIP(b) === 0) return false;
  const covers = (one: string, other: string) => {
    const list = new BlockList();
    list.addAddress(one, familyOf(one));
    return list.check(other, familyOf(other));
  };
  return covers(a, b) || covers(b, a);
}
