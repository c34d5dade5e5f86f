/**
 * The peer `@ronomon/reed-solomon` of `bench code`. It is no dependency of this project: who wants the
 * comparison installs it with `npm install --no-save @ronomon/reed-solomon`. It encodes in the thread pool
 * and only there, so what is measured is the CPU time of the process: for a whole call, and for the encoding
 * alone, without what a call with shards of 8 bytes takes.
 */
import { createRequire } from 'node:module';
import { median } from '../common/statistics.js';

interface Ronomon {
  create(k: number, m: number): unknown;
  encode(
    context: unknown,
    sources: number,
    targets: number,
    data: Buffer,
    dataOffset: number,
    dataBytes: number,
    parity: Buffer,
    parityOffset: number,
    parityBytes: number,
    done: (error?: Error) => void,
  ): void;
}

/** The package, if it is installed. */
export function loadRonomon(): Ronomon | undefined {
  try {
    return createRequire(import.meta.url)('@ronomon/reed-solomon') as Ronomon;
  } catch {
    return undefined;
  }
}

/** Encodes `calls` times, one after the other, and answers with the CPU seconds of one. */
async function cpuPerCall(
  peer: Ronomon,
  k: number,
  r: number,
  shardBytes: number,
  calls: number,
): Promise<number> {
  const context = peer.create(k, r);
  const data = Buffer.alloc(k * shardBytes);
  for (let i = 0; i < data.length; i++) data[i] = Math.imul(i + 1, 2654435761) >>> 24;
  const parity = Buffer.alloc(r * shardBytes);
  const sources = 2 ** k - 1;
  const targets = 2 ** (k + r) - 2 ** k;
  const once = () =>
    new Promise<void>((resolve, reject) => {
      peer.encode(context, sources, targets, data, 0, data.length, parity, 0, parity.length, (error) =>
        error ? reject(error) : resolve(),
      );
    });
  await once();
  if (!parity.some((byte) => byte !== 0)) throw new Error('@ronomon/reed-solomon wrote no parity');
  const start = process.cpuUsage();
  for (let i = 0; i < calls; i++) await once();
  const spent = process.cpuUsage(start);
  return (spent.user + spent.system) / 1e6 / calls;
}

export interface CodeRates {
  call: number;
  encoding: number;
}

/** Medians over rounds: GB of data per CPU second. */
export async function ronomonRates(
  peer: Ronomon,
  k: number,
  r: number,
  shardBytes: number,
  smoke: boolean,
): Promise<CodeRates> {
  const calls = smoke ? 2 : Math.max(8, Math.floor(2 ** 27 / (k * shardBytes)));
  const [call, empty]: [number[], number[]] = [[], []];
  for (let round = 0; round < (smoke ? 1 : 7); round++) {
    empty.push(await cpuPerCall(peer, k, r, 8, calls));
    call.push(await cpuPerCall(peer, k, r, shardBytes, calls));
  }
  const [whole, overhead] = [median(call), median(empty)];
  const rate = (seconds: number) => (k * shardBytes) / Math.max(seconds, 1e-9) / 1e9;
  return { call: rate(whole), encoding: rate(whole - overhead) };
}
