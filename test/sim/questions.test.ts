import { describe, expect, it } from 'vitest';
import { bytes } from '../../src/core/shared/bytes.js';
import { type ClusterMap, EMPTY_MAP } from '../../src/protocol/map.js';
import type { Message } from '../../src/protocol/messages.js';
import { Questions } from '../../src/sim/questions.js';
import { Violation } from '../../src/sim/violation.js';

const recover: Message = { t: 'recover', g: 0, m: 1, sid: 2, gen: 3, seq: 4, v: 5, extents: [] };

const withMap = (map: ClusterMap) => ({
  now: 1,
  retry: 25,
  nodes: [{ node: { map, ownerAt: () => undefined } }],
});

describe('the check of questions for lost blocks', () => {
  it('finds an owner that asks one sink again and again, and not one that waits', () => {
    const cluster = withMap(EMPTY_MAP);
    const questions = new Questions(cluster);
    const ask = (to: number, block: number) =>
      questions.look(1, to, recover, [bytes(Uint32Array.of(2, block))]);
    for (let round = 0; round < 10; round++) {
      for (const to of [4, 5, 6]) for (const block of [7, 8]) ask(to, block);
      cluster.now += 10;
    }
    ask(4, 7);
    expect(() => ask(4, 7)).toThrow(Violation);
    ask(4, 9);
  });

  it('lets an owner ask anew that has dropped a table', () => {
    const cluster = withMap({ ...EMPTY_MAP, lastTable: 1 });
    const questions = new Questions(cluster);
    const ask = () => questions.look(1, 4, recover, [bytes(Uint32Array.of(6, 7))]);
    for (let time = 0; time < 3; time++) ask();
    cluster.nodes[0]!.node.map = { ...EMPTY_MAP, lastTable: 2 };
    for (let time = 0; time < 3; time++) ask();
    expect(ask).toThrow(Violation);
  });
});
