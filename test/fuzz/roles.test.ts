// Valid messages with any contents, from peers that are not the scheduler: a node or a scheduler handles them
// or refuses them. Anything else that it throws would end its process.
import { afterEach, describe, expect, it } from 'vitest';
import { isRefusal } from '../../src/common/errors.js';
import { packItems } from '../../src/protocol/items.js';
import { SCHEDULER } from '../../src/protocol/map.js';
import type { Message } from '../../src/protocol/messages.js';
import type { Role } from '../../src/protocol/senders.js';
import { toMessage } from '../../src/protocol/validate.js';
import { Cluster, kind } from '../core/harness.js';
import { senderOf } from '../core/senders.js';
import { SAMPLES } from './frames.js';

/** Clusters per state of an owner. */
const ROUNDS = 8;
const MESSAGES = Number(process.env.KINTSUGI_FRAMES ?? 20_000);

/** Some are beyond what a table can hold. */
const EXTENTS = [undefined, undefined, 2 ** 31, 2 ** 40];

let cluster: Cluster;
afterEach(() => cluster.close());

/** Numbers below 2^32 that are the same for the same seed. */
function numbers(seed: number): (limit: number) => number {
  let state = seed;
  return (limit) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * limit);
  };
}

/** Values that fit fields of the running cluster, more often than not. */
function forge(below: (limit: number) => number, samples = SAMPLES): Message {
  const sample = structuredClone(samples[below(samples.length)]!) as Record<string, unknown>;
  const { groups, epoch } = cluster.map;
  const group = groups[below(groups.length)]!;
  const choices: Record<string, number[]> = {
    g: [group.id, group.id, 1000],
    m: [0, 0, 1, 7],
    sid: group.sinks.map(({ sid }) => sid),
    gen: [group.data[0]!.gen, group.data[0]!.gen, group.data[1]!.gen, 0],
    sgen: [group.data[0]!.gen],
    v: [group.version, group.version, group.version - 1, group.version + 1],
    epoch: [epoch, 0],
    seq: [0, 1, 2, 3, 4, 2 ** 40],
    base: [0, 1, 2, 3, 2 ** 40],
    applied: [0, 1, 2, 3, 2 ** 40],
    committed: [0, 1, 2, 3, 2 ** 40],
    table: [0, 1, 2, 9],
    index: [0, 1, 9],
  };
  for (const [field, values] of Object.entries(choices))
    if (field in sample && below(8) > 0) sample[field] = values[below(values.length)]!;
  if ('extents' in sample && below(2) > 0) sample.extents = [[1, 16, EXTENTS[below(4)] ?? below(1000)]];
  if (sample.t === 'push' || sample.t === 'pull')
    sample.items = packItems(sample.t, itemsOf(sample.t, [below(5000)], below));
  if ('ok' in sample) sample.ok = below(2) > 0;
  if ('lacking' in sample) sample.lacking = [[below(3), group.data[0]!.gen]];
  return toMessage(sample);
}

/** A role that may send the message, but never the scheduler. */
function strangerFor({ t }: Message, to: Role): Role {
  const role = senderOf(t, to);
  return role === 'scheduler' ? 'client' : role;
}

/** Items of a request whose sections have these sizes. */
function itemsOf(t: 'push' | 'pull', sizes: number[], below: (limit: number) => number): number[][] {
  return sizes.map((size) => (t === 'push' ? [0, below(3), 1 + below(3), size] : [0, below(3), size]));
}

/** The parts of a message; of a request, more often than not, with items that fit them. */
function payload(message: Message, below: (limit: number) => number): Uint8Array[] {
  const made = parts(below);
  const { t } = message;
  if ((t !== 'push' && t !== 'pull') || below(8) === 0) return made;
  const section = made.at(-1)!;
  const first = below(section.byteLength + 1);
  const sizes = below(2) > 0 ? [section.byteLength] : [first, section.byteLength - first];
  message.items = packItems(t, itemsOf(t, sizes, below));
  return [section];
}

function parts(below: (limit: number) => number): Uint8Array[] {
  const blocks = Uint32Array.from({ length: below(6) }, () => below(5));
  const list = new Uint8Array(blocks.buffer);
  return [list, new Uint8Array(4 * below(2100)).fill(below(3))].slice(0, 1 + below(2));
}

/** Messages of nodes to each other about a stream. */
const OF_STREAMS = SAMPLES.filter((sample) =>
  [
    ...['open', 'start', 'delta', 'committed', 'content', 'lacking', 'recover'],
    ...['openAck', 'startAck', 'applied', 'want', 'equation', 'install'],
  ].includes((sample as Message).t),
);

/** Shard 0 has a new owner, and these messages to it are lost. */
function takeOver(...lost: Message['t'][]): void {
  cluster.lose(kind(lost));
  cluster.crash(0);
  cluster.settle();
}

/** The new owner of shard 0 had its mirror, and asks it for blocks. */
function takeOverFromMirror(): void {
  cluster.lose(kind(['recover', 'equation']));
  const { id } = cluster.client;
  const message: Message = { t: 'drain', id: 1, node: 'ps-0', timeoutMs: 0 };
  cluster.stepScheduler({ kind: 'message', from: id, role: 'client', message });
  cluster.settle();
  cluster.advance(10_000);
  expect(cluster.map.groups[0]!.data[0]!.node).not.toBe(cluster.nodes[0]!.id);
}

describe('valid messages with any contents', () => {
  it('are handled or refused by a node', () => {
    cluster = new Cluster({ k: 2, r: 2 });
    const below = numbers(1);
    const wrong: string[] = [];
    let refused = 0;
    for (let i = 0; i < MESSAGES; i++) {
      const { node } = cluster.nodes[below(4)]!;
      const message = forge(below);
      try {
        node!.step({
          kind: 'message',
          from: 1 + below(6),
          role: strangerFor(message, 'node'),
          message,
          parts: payload(message, below),
        });
        if (i % 50 === 0) node!.step({ kind: 'tick', now: cluster.now++ });
      } catch (error) {
        if (isRefusal(error)) refused++;
        else wrong.push(`${(error as Error).message} at ${JSON.stringify(message)}`);
      }
    }
    expect([...new Set(wrong.map((text) => text.slice(0, 150)))]).toEqual([]);
    expect(refused).toBeGreaterThan(MESSAGES / 100);
    expect(refused).toBeLessThan(MESSAGES);
  });

  it.each([
    ['in FENCE', () => takeOver('openAck')],
    ['in START', () => takeOver('startAck')],
    ['that decodes', () => takeOver('equation')],
    ['that has a mirror', takeOverFromMirror],
  ] as const)('are handled or refused by an owner %s', (_, prepare) => {
    for (let seed = 1; seed <= ROUNDS; seed++) {
      cluster = new Cluster({ k: 2, r: 2, spares: 2 });
      cluster.client.push({ 0: [{ keys: [1, 2, 3] }], 1: [{ keys: [1] }] });
      cluster.settle();
      prepare();
      const below = numbers(seed);
      const owner = cluster.nodeById(cluster.map.groups[0]!.data[0]!.node).node!;
      for (let i = 0; i < MESSAGES / 10; i++) {
        const message = forge(below, OF_STREAMS);
        try {
          owner.step({
            kind: 'message',
            from: 1 + below(6),
            role: strangerFor(message, 'node'),
            message,
            parts: parts(below),
          });
          if (i % 20 === 0) owner.step({ kind: 'tick', now: cluster.now++ });
        } catch (error) {
          if (!isRefusal(error))
            throw new Error(`seed ${seed}: ${JSON.stringify(message)}`, { cause: error });
        }
      }
      if (seed < ROUNDS) cluster.close();
    }
  });

  it('are handled or refused by a scheduler', () => {
    cluster = new Cluster({ k: 2, r: 2 });
    const below = numbers(2);
    const wrong: string[] = [];
    for (let i = 0; i < MESSAGES / 4; i++) {
      const message = forge(below);
      if (['join', 'attach'].includes(message.t)) continue;
      try {
        cluster.stepScheduler({
          kind: 'message',
          from: SCHEDULER + 1 + below(6),
          role: strangerFor(message, 'scheduler'),
          message,
        });
      } catch (error) {
        if (!isRefusal(error)) wrong.push(`${(error as Error).message} at ${JSON.stringify(message)}`);
      }
    }
    expect([...new Set(wrong.map((text) => text.slice(0, 150)))]).toEqual([]);
  });
});
