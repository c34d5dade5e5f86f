/** The client and the map: what moved is sent again, and a map that it lacks is asked for. */
import { describe, expect, it } from 'vitest';
import type { ClientEffect } from '../../../src/core/client/client.js';
import { Client, mapOf, POLICY, pushes } from './machine.js';

describe('changes of the map', () => {
  const asked = (effects: ClientEffect[]): number[] =>
    effects.flatMap((effect) =>
      effect.kind === 'send' && effect.message.t === 'mapRequest' ? [effect.message.epoch] : [],
    );
  const diffs = (owners: number[], gens: number[]) => {
    const [before, after] = [mapOf(1, [11, 11, 12]), mapOf(2, owners, gens)];
    const groups = after.groups;
    return { t: 'mapDiff' as const, from: before.epoch, to: 2, groups, nodes: [], removed: [], tables: [] };
  };

  it('send what goes to a shard that has moved to its new owner', () => {
    const client = new Client();
    client.push(1, 0, 1);
    expect(pushes(client.message(diffs([13, 11, 12], [2, 1, 1])))).toEqual([[13, ['0:1']]]);
    expect(client.core.map.epoch).toBe(2);
  });

  it('that do not follow the map are not applied: it asks for a whole one, then not for a while', () => {
    const client = new Client();
    client.tick(1000);
    const later = { ...diffs([13, 11, 12], [2, 1, 1]), from: 4, to: 5 };
    expect(asked(client.message(later))).toEqual([1]);
    expect(asked(client.message({ ...later, from: 5, to: 6 }))).toEqual([]);
    expect(client.core.map.epoch).toBe(1);
    client.tick(1000 + 2 * POLICY.retryMs + 1);
    expect(asked(client.message({ ...later, from: 6, to: 7 }))).toEqual([1]);
    client.message({ t: 'map', map: mapOf(7, [13, 11, 12], [2, 1, 1]) });
    expect(client.core.map.epoch).toBe(7);
  });

  it('may all be lost: it asks while an answer is overdue, but not right after a new map', () => {
    const client = new Client();
    client.tick(1000);
    client.message({ t: 'map', map: mapOf(2, [11, 11, 12]) });
    client.push(1, 0);
    client.pull(2, 1);
    expect(asked(client.tick(1000 + POLICY.retryMs + 1))).toEqual([]);
    const later = client.tick(1000 + 10 * POLICY.retryMs);
    expect(asked(later)).toEqual([2]);
  });
});
