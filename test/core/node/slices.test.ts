// An answer that is larger than a turn of the event loop is gathered in slices, and sent when it is whole.
import { afterEach, describe, expect, it } from 'vitest';
import { AnswerQueue } from '../../../src/core/node/answer-queue.js';
import { Slices } from '../../../src/core/node/slices.js';
import type { PullOwner } from '../../../src/core/shard/host.js';
import { type Effect, Outbox } from '../../../src/core/shared/outbox.js';
import { DEFAULT_POLICY } from '../../../src/core/shared/policy.js';
import { Turn } from '../../../src/core/shared/turn.js';
import { WaitingBytes } from '../../../src/core/shared/waiting-bytes.js';
import { packItems } from '../../../src/protocol/items.js';
import type { PeerId } from '../../../src/protocol/map.js';
import { Cluster, DIM, section } from '../harness.js';

const ROWS = 8;
const ROW_BYTES = DIM * 4;
const HEADER_BYTES = 64;

const keys = (count: number, first = 0): number[] => Array.from({ length: count }, (_, i) => first + i);

/** A REQUEST section of tables with these rows and widths, whose keys count up from 0. */
function requestOf(tables: readonly (readonly [rows: number, width: number])[]): Uint8Array {
  const words: number[] = [tables.length, 0];
  for (const [i, [rows, width]] of tables.entries()) words.push(i + 1, rows, width, 7);
  let key = 0;
  for (const [rows] of tables) for (let i = 0; i < rows; i++) words.push(key++, 0);
  return new Uint8Array(Uint32Array.from(words).buffer);
}

/** Table, keys and place of each slice. */
function slicesOf(request: Uint8Array, maxTurnRows: number, maxTurnBytes: number) {
  const slices = new Slices(request, { rows: 0, bytes: 0 }, { maxTurnRows, maxTurnBytes });
  const all = [];
  for (; slices.next; slices.shift()) {
    const { section: cut, at, work } = slices.next;
    const [tables, , table, rows, , rate, ...rest] = new Uint32Array(cut.buffer);
    expect([tables, rate, rows]).toEqual([1, 7, work.rows]);
    all.push({ table, keys: rest.filter((_, i) => i % 2 === 0), at, bytes: work.bytes });
  }
  return all;
}

describe('slices', () => {
  it('are whole rows of one table, as many as fit a turn', () => {
    const request = requestOf([
      [5, 4],
      [0, 2],
      [1, 2],
    ]);
    expect(slicesOf(request, 2, 1000)).toEqual([
      { table: 1, keys: [0, 1], at: 0, bytes: 32 },
      { table: 1, keys: [2, 3], at: 32, bytes: 32 },
      { table: 1, keys: [4], at: 64, bytes: 16 },
      { table: 3, keys: [5], at: 80, bytes: 8 },
    ]);
    expect(slicesOf(request, 1000, 50).map((slice) => slice.keys.length)).toEqual([3, 2, 1]);
  });

  it('begin aligned where rows are not, and have one row where a row is larger than a turn', () => {
    const odd = slicesOf(requestOf([[5, 3]]), 3, 1000);
    expect(odd.map(({ at, bytes }) => [at, bytes])).toEqual([
      [0, 24],
      [24, 24],
      [48, 16],
    ]);
    expect(slicesOf(requestOf([[2, 4]]), 8, 10).map(({ at }) => at)).toEqual([0, 16]);
  });

  it('are one where the section has another size than its header says', () => {
    const request = requestOf([[5, 4]]).subarray(0, 48);
    const slices = new Slices(request, { rows: 5, bytes: 80 }, { maxTurnRows: 2, maxTurnBytes: 1000 });
    expect(slices.next).toEqual({ section: request, at: 0, work: { rows: 5, bytes: 80 } });
    slices.shift();
    expect(slices.next).toBeUndefined();
  });
});

describe('the queue of a node', () => {
  function start() {
    const policy = { ...DEFAULT_POLICY, maxTurnRows: ROWS };
    const turn = new Turn(policy);
    const dropped: number[] = [];
    let now = 0;
    const queue = new AnswerQueue({
      ...{ policy, turn, out: new Outbox(), waiting: new WaitingBytes(1 << 20), now: () => now },
      memory: (size) => {
        const drop = () => void dropped.push(size);
        return { memory: new Uint8Array(size), at: 0, took: () => {}, drop };
      },
    });
    const served: PeerId[] = [];
    const owner = (): PullOwner => ({
      serveCharged: () => {},
      readSlice: () => true,
      serveSliced: ({ client }) => void served.push(client),
      expire: () => {},
    });
    return {
      queue,
      served,
      dropped,
      owner,
      later: (ms: number) => {
        now += ms;
        queue.tick();
      },
      ask: (by: PullOwner, client: PeerId, rows: number) => {
        const pull = {
          client,
          id: client,
          first: client,
          item: 0,
          rows,
          bytes: rows * 16,
          at: now,
          since: now,
        };
        queue.wait(by, pull, requestOf([[rows, 4]]));
        queue.report([]);
      },
      turn: () => {
        turn.begin();
        queue.serve();
      },
    };
  }

  it('gives up an answer whose shard is elsewhere, and goes on with the next one', () => {
    const { queue, served, dropped, owner, ask, turn } = start();
    const [gone, other] = [owner(), owner()];
    ask(gone, 1, 3 * ROWS);
    ask(other, 2, 4 * ROWS);
    turn();
    expect(queue.bytes.gatheringFor(1)).toBeGreaterThan(0);
    queue.forget(gone);
    expect([queue.bytes.used, dropped]).toEqual([0, [3 * ROWS * 16]]);
    for (let i = 0; i < 4; i++) turn();
    expect([served, queue.needsTurn]).toEqual([[2], false]);
  });

  it('gives up an answer that has waited for too long, and goes on with the next one', () => {
    const { queue, served, dropped, owner, ask, turn, later } = start();
    ask(owner(), 1, 3 * ROWS);
    turn();
    later(1);
    ask(owner(), 2, 4 * ROWS);
    later(DEFAULT_POLICY.parkedPullMs);
    expect([queue.bytes.used, dropped]).toEqual([0, [3 * ROWS * 16]]);
    for (let i = 0; i < 4; i++) turn();
    expect(served).toEqual([2]);
  });
});

describe('a large answer', () => {
  let cluster: Cluster;
  afterEach(() => cluster.close());

  function start() {
    cluster = new Cluster({ k: 1, r: 1, clients: 2, policy: { maxTurnRows: ROWS } });
    const node = cluster.nodeById(cluster.map.groups[0]!.data[0]!.node).node!;
    const { epoch } = cluster.map;
    const [a, b] = cluster.clients.map(({ id }) => id);
    const step = (from: PeerId, t: 'pull' | 'push', items: Uint8Array, part: Uint8Array) => {
      const message = t === 'pull' ? { t, epoch, id: ++last, items } : { t, epoch, items };
      return node.step({ kind: 'message', from, role: 'client', message, parts: [part] });
    };
    let last = 0;
    return {
      node,
      a: a!,
      b: b!,
      pull: (from: PeerId, wanted: readonly number[]) => {
        const part = section([{ keys: [...wanted] }], false);
        return step(from, 'pull', packItems('pull', [[0, 0, part.byteLength]]), part);
      },
      push: (from: PeerId, cseq: number, wanted: readonly number[]) => {
        const part = section([{ keys: [...wanted] }], true);
        return step(from, 'push', packItems('push', [[0, 0, cseq, part.byteLength]]), part);
      },
      turn: () => node.step({ kind: 'turn' }),
    };
  }

  /** Rows of answers, and codes of rejections. */
  const answers = (effects: readonly Effect[]) =>
    effects.flatMap((effect): (Uint8Array | string)[] => {
      if (effect.kind !== 'send') return [];
      const { message, parts } = effect;
      if (message.t === 'reject') return message.items.map(([, code]) => code);
      return message.t === 'rows' ? [parts[0]!] : [];
    });

  it('is gathered over several turns, and has the rows that a small one has', () => {
    const { a, b, pull, push, turn } = start();
    push(b, 1, keys(ROWS, 3));
    turn();
    const small = keys(3 * ROWS).flatMap((key) => {
      turn();
      return [...new Float32Array((answers(pull(b, [key]))[0] as Uint8Array).slice().buffer)];
    });
    turn();
    expect(answers(pull(a, keys(3 * ROWS)))).toEqual([]);
    const turns = [1, 2, 3, 4].map(() => answers(turn()));
    expect(turns.map(({ length }) => length)).toEqual([0, 0, 1, 0]);
    expect([...new Float32Array((turns[2]![0] as Uint8Array).slice().buffer)]).toEqual(small);
    expect(new Set(small).size).toBeGreaterThan(1);
  });

  it('is charged before its first slice, and stays charged until its socket has it', () => {
    const { a, pull, turn, node } = start();
    const charge = 3 * ROWS * ROW_BYTES + HEADER_BYTES;
    const held = (linkBytes: number) => {
      node.step({ kind: 'taken', links: [[a, linkBytes]] });
      return [node.answers.heldBy(a), node.answers.used];
    };
    pull(a, keys(3 * ROWS));
    expect(held(0)).toEqual([0, 0]);
    turn();
    expect(held(0)).toEqual([charge, charge]);
    expect([turn(), turn()].map((effects) => answers(effects).length)).toEqual([0, 1]);
    expect(held(charge)).toEqual([charge, charge]);
    expect(held(10)).toEqual([10, 10]);
  });

  it('is given up when the link of its client closes between two slices, and the next one goes on', () => {
    const { a, b, pull, turn, node } = start();
    pull(b, keys(2 * ROWS));
    pull(a, keys(3 * ROWS));
    while (node.answers.heldBy(a) === 0) turn();
    const heldByB = node.answers.heldBy(b);
    pull(b, keys(2 * ROWS));
    node.step({ kind: 'gone', client: a });
    expect([node.answers.heldBy(a), node.answers.used]).toEqual([0, heldByB]);
    const rest = Array.from({ length: 6 }, () => answers(turn()));
    expect(rest.flat()).toHaveLength(1);
  });

  it('is the only one that is being gathered', () => {
    const { a, b, pull, turn, node } = start();
    pull(a, keys(3 * ROWS));
    pull(b, keys(4 * ROWS));
    const gathering = [1, 2, 3, 4, 5, 6, 7, 8].map(() => {
      turn();
      return [a, b].map((client) => (node.answers.gatheringFor(client) > 0 ? 1 : 0));
    });
    expect(gathering).toEqual([
      [1, 0],
      [1, 0],
      [0, 0],
      [0, 1],
      [0, 1],
      [0, 1],
      [0, 0],
      [0, 0],
    ]);
  });

  it('is refused with the code of the slice that cannot be read, and nothing stays charged', () => {
    const { a, b, pull, turn, node } = start();
    const reserved = (1n << 64n) - 1n;
    pull(a, [...keys(2 * ROWS), reserved as unknown as number]);
    const turns = [1, 2, 3, 4].map(() => answers(turn()));
    expect(turns).toEqual([[], [], ['KEY_RESERVED'], []]);
    expect(node.answers.used).toBe(0);
    pull(b, keys(2 * ROWS));
    expect(answers([...turn(), ...turn()])).toHaveLength(1);
  });
});
