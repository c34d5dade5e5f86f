/**
 * How contenders are measured against each other. A turn keeps a fixed number of requests under way for some
 * time; turns of all contenders are interleaved, round by round, and medians are compared, because whatever
 * else runs on this machine then disturbs all of them alike. What a server costs is its processor time, as
 * the kernel counts it.
 */
import { KintsugiError } from '../../../src/common/errors.js';
import { cpuSeconds, TICKS_PER_SECOND } from '../../../src/fleet/local/processor-time.js';
import { median } from '../statistics.js';

/** Requests under way at once: enough that neither side ever waits for the other. */
export const WINDOW = 4;

export interface Contender {
  name: string;
  /** Process whose time is the server's. */
  serverPid: number;
  /** Rejects when the server has ended or its connection is closed; never resolves. */
  ended: Promise<never>;
  /** One request, from call to answer; `i` counts up. */
  request(i: number): Promise<void>;
}

export interface MeasuredTurn {
  requestsPerSecond: number;
  /** Requests per second of processor time, of the server and of this process. */
  perServerSecond: number;
  perClientSecond: number;
}

const seconds = (): number => performance.now() / 1000;

/** `ended` of a contender, and what rejects it. */
export function ending(name: string): { ended: Promise<never>; end(why: string): void } {
  let end = (_: string) => {};
  const ended = new Promise<never>((_, reject) => {
    end = (why) => reject(new KintsugiError('UNREACHABLE', `${name}: ${why}`));
  });
  // A server also ends when it is closed, after everything was measured and nobody waits for this any more.
  ended.catch(() => {});
  return { ended, end };
}

/**
 * Keeps WINDOW requests under way for `ms`, at least one for each.
 * @throws when a request fails, or the server ends
 */
export async function turn(contender: Contender, ms: number, first = 0): Promise<MeasuredTurn> {
  let next = first;
  const server = cpuSeconds(contender.serverPid);
  const client = process.cpuUsage();
  const start = seconds();
  const end = start + ms / 1000;
  const lane = async () => {
    do await contender.request(next++);
    while (seconds() < end);
  };
  await Promise.race([Promise.all(Array.from({ length: WINDOW }, lane)), contender.ended]);
  const done = next - first;
  const { user, system } = process.cpuUsage(client);
  return {
    requestsPerSecond: done / (seconds() - start),
    perServerSecond: done / Math.max(1 / TICKS_PER_SECOND, cpuSeconds(contender.serverPid) - server),
    perClientSecond: (done * 1e6) / (user + system),
  };
}

/** Medians of each contender over interleaved rounds; the first round warms up and does not count. */
export async function compare(
  contenders: readonly Contender[],
  rounds: number,
  ms: number,
): Promise<Map<string, MeasuredTurn>> {
  const turns = new Map<string, MeasuredTurn[]>(contenders.map(({ name }) => [name, []]));
  for (let round = 0; round <= rounds; round++) {
    for (const contender of contenders) {
      const result = await turn(contender, ms, round * 17);
      if (round > 0) turns.get(contender.name)!.push(result);
    }
  }
  return new Map(
    [...turns].map(([name, list]) => [
      name,
      {
        requestsPerSecond: median(list.map((it) => it.requestsPerSecond)),
        perServerSecond: median(list.map((it) => it.perServerSecond)),
        perClientSecond: median(list.map((it) => it.perClientSecond)),
      },
    ]),
  );
}

/**
 * Latency in ms when requests come at a fixed rate, whether or not earlier ones are answered; counted from
 * the moment when the request was due, so that a stall counts for all that it delays.
 * @throws when a request fails, or the server ends
 */
export async function latency(contender: Contender, perSecond: number, ms: number): Promise<Float64Array> {
  const total = Math.max(1, Math.floor((perSecond * ms) / 1000));
  const took = new Float64Array(total);
  const start = performance.now();
  let sent = 0;
  let answered = 0;
  let over = false;
  const all = new Promise<void>((resolve, reject) => {
    const send = () => {
      const due = start + (sent * 1000) / perSecond;
      const at = sent++;
      contender.request(at).then(() => {
        took[at] = performance.now() - due;
        if (++answered === total) resolve();
      }, reject);
    };
    // A timer is a millisecond late; looking at the clock in every turn of the event loop is not.
    const look = () => {
      const now = performance.now();
      while (!over && sent < total && start + (sent * 1000) / perSecond <= now) send();
      if (!over && sent < total) setImmediate(look);
    };
    look();
  });
  try {
    await Promise.race([all, contender.ended]);
  } finally {
    over = true;
  }
  return took.sort();
}
