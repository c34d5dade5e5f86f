/** Defects that a review of the core found, each with one PsNode that the test drives by hand. */
import { expect, it } from 'vitest';
import { PsNode } from '../../../src/core/node/node.js';
import type { Effect } from '../../../src/core/shared/outbox.js';
import { DEFAULT_POLICY, type Policy } from '../../../src/core/shared/policy.js';
import { loadNative } from '../../../src/engine/native.js';
import { packItems } from '../../../src/protocol/items.js';
import { CAPABILITIES, type ClusterMap, type DataEntry, type SinkEntry } from '../../../src/protocol/map.js';
import type { Message } from '../../../src/protocol/messages.js';
import { acksIn, pushMessage } from '../packed.js';
import { senderOf } from '../senders.js';

const native = loadNative();
const CLIENT = 10;
const ROWS = 64;
const keys = BigUint64Array.from({ length: ROWS }, (_, i) => BigInt(i + 1));
const order = Uint32Array.from({ length: ROWS }, (_, i) => i);

function mapOf(epoch: number, data: DataEntry, sinks: SinkEntry[], r = 1): ClusterMap {
  const optimizer = { kind: 'sgd' as const, lr: -1 };
  const initializer = { kind: 'zeros' as const };
  return {
    epoch,
    job: 'j',
    pools: [{ name: 'e', k: 1, r, firstGroup: 0, groups: 1 }],
    groups: [{ id: 0, pool: 0, version: epoch, data: [data], sinks }],
    nodes: [],
    tables: [{ id: 1, name: 't', pool: 'e', dim: 4, optimizer, initializer, seed: 0 }],
  };
}

const sinkAt = (sid: number, index: number, node: number): SinkEntry => ({
  sid,
  kind: 'P',
  index,
  node,
  inc: 1,
  init: true,
  ...CAPABILITIES.P,
});

function section(push: boolean): Uint8Array {
  const part = { table: 1, width: 4, keys, order, start: 0, end: ROWS };
  return native.encodeRequest(0, [push ? { ...part, rows: new Float32Array(ROWS * 4).fill(1) } : part]);
}

function startNode(id: number, policy: Partial<Policy>, map: ClusterMap): PsNode {
  const node = new PsNode(id, 1, native, native.createMemory(0), { ...DEFAULT_POLICY, ...policy });
  node.step({ kind: 'tick', now: 1000 });
  send(node, 0, { t: 'map', map });
  return node;
}

function send(node: PsNode, from: number, message: Message, parts: Uint8Array[] = []): Effect[] {
  return node.step({ kind: 'message', from, role: senderOf(message.t, 'node'), message, parts });
}

const push = (node: PsNode, cseq: number) => {
  const bytes = section(true);
  return send(node, CLIENT, pushMessage(2, [0, 0, cseq], bytes.byteLength), [bytes]);
};

function messages<T extends Message['t']>(effects: readonly Effect[], t: T): Extract<Message, { t: T }>[] {
  return effects.flatMap((effect) =>
    effect.kind === 'send' && effect.message.t === t ? [effect.message as Extract<Message, { t: T }>] : [],
  );
}

const OWN: DataEntry = { node: 1, inc: 1, gen: 1, init: true };

it('pushes that waited for acknowledgements are applied once when the last sink goes', () => {
  const node = startNode(
    1,
    { maxUncommittedBytes: 3000, maxOpenBytes: 500 },
    mapOf(2, OWN, [sinkAt(1, 0, 2)]),
  );
  const effects: Effect[] = [];
  const endTurn = () => effects.push(...node.step({ kind: 'turn' }), ...node.step({ kind: 'flush' }));
  for (let cseq = 1; cseq <= 12; cseq++) {
    effects.push(...push(node, cseq));
    endTurn();
  }
  effects.push(...send(node, 0, { t: 'map', map: mapOf(3, OWN, []) }));
  endTurn();
  for (let t = 1; t <= 5; t++) {
    effects.push(...node.step({ kind: 'tick', now: 1000 + 20 * t }));
    endTurn();
  }
  const acknowledged = messages(effects, 'pushAck').flatMap((ack) => acksIn(ack).map(([, , cseq]) => cseq));
  expect(acknowledged).toEqual(Array.from({ length: 12 }, (_, i) => i + 1));
  const wanted = section(false);
  const items = packItems('pull', [[0, 0, wanted.byteLength]]);
  const answer = send(node, CLIENT, { t: 'pull', epoch: 3, id: 1, items }, [wanted]);
  const rows = answer.find((effect) => effect.kind === 'send' && effect.message.t === 'rows');
  if (rows?.kind !== 'send') throw new Error('no rows');
  const values = new Float32Array(ROWS * 4);
  native.scatterRows(values, 4, order, 0, ROWS, rows.parts[0]!, 0);
  expect(values[0]).toBe(12);
  node.close();
});

it('a new owner reports the sink that is silent, not the one that has promised', () => {
  const data = { node: 2, inc: 1, gen: 5, init: false };
  const node = startNode(2, {}, mapOf(5, data, [sinkAt(1, 0, 3), sinkAt(2, 1, 4)], 2));
  const where = { g: 0, m: 0, sid: 1, gen: 5 };
  send(node, 3, { t: 'openAck', ...where, none: false, sgen: 1, applied: 7, attempt: 1 });
  const stalled: number[] = [];
  for (let t = 1; t < 400; t++) {
    const effects = node.step({ kind: 'tick', now: 1000 + 20 * t });
    stalled.push(...messages(effects, 'stalled').map(({ sid }) => sid));
  }
  expect(new Set(stalled)).toEqual(new Set([2]));
  node.close();
});

it('a sink that answers nothing is asked for its position though deltas keep flowing', () => {
  const node = startNode(1, {}, mapOf(2, OWN, [sinkAt(1, 0, 2)]));
  const opens: number[] = [];
  for (let t = 1; t < 100; t++) {
    const effects = [...push(node, t), ...node.step({ kind: 'flush' })];
    effects.push(...node.step({ kind: 'tick', now: 1000 + 20 * t }));
    opens.push(...messages(effects, 'open').map(() => 20 * t));
  }
  expect(opens.length).toBeGreaterThan(3);
  expect(opens[0]).toBeLessThan(2 * DEFAULT_POLICY.retryMs);
  node.close();
});

it('a request whose items and sections do not match is refused whole', () => {
  const node = startNode(1, {}, mapOf(2, OWN, []));
  const bytes = section(true);
  const size = bytes.byteLength;
  const refused: [sizes: number[], parts: Uint8Array[], why: RegExp][] = [
    [[size, size], [bytes], /items of \d+ bytes with a payload of/],
    [[size, 1], [bytes], /items of/],
    [[size - 1], [bytes], /items of/],
    [[], [bytes], /items of/],
    [[2 ** 32 - 8, size + 8], [bytes], /items of/],
    [[size], [], /one part, not 0/],
    [[size], [bytes, new Uint8Array(0)], /one part, not 2/],
  ];
  for (const [sizes, parts, why] of refused) {
    const items = packItems(
      'push',
      sizes.map((each, i) => [0, 0, i + 1, each]),
    );
    expect(() => send(node, CLIENT, { t: 'push', epoch: 2, items }, parts)).toThrow(why);
    const wanted = packItems(
      'pull',
      sizes.map((each) => [0, 0, each]),
    );
    expect(() => send(node, CLIENT, { t: 'pull', epoch: 2, id: 1, items: wanted }, parts)).toThrow(why);
  }
  // No push was applied: the shard knows no client.
  expect(node.ownerAt(0, 0)!.clients()).toEqual([]);
  node.close();
});
