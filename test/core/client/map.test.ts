/** The client and the map: what moved is sent again, and a map that it lacks is asked for. */
import { describe, expect, it } from 'vitest';
import {
  type ClientEffect,
  type ClientInput,
  listSections,
  PsClientCore,
} from '../../../src/core/client/client.js';
import type { ClusterMap, DataEntry } from '../../../src/protocol/map.js';
import type { Message } from '../../../src/protocol/messages.js';
import { ackMessage, pushesIn } from '../packed.js';

const POLICY = { retryMs: 100, maxRetryMs: 400, wrongOwnerMs: 20 };
/** Shards of one group, by the node that owns each. */
const mapOf = (epoch: number, owners: number[], gens: number[] = owners.map(() => 1)): ClusterMap => ({
  epoch,
  job: 'test',
  pools: [],
  groups: [
    {
      id: 0,
      pool: 0,
      version: epoch,
      data: owners.map((node, m): DataEntry => ({ node, inc: 1, gen: gens[m]!, init: true })),
      sinks: [],
    },
  ],
  nodes: [],
  tables: [],
});
const section = (m: number): Uint8Array => Uint8Array.of(m);
const items = (...members: number[]) => members.map((m) => ({ g: 0, m, section: section(m) }));

/** A client of shards 0 and 1 at node 11 and shard 2 at node 12. */
class Client {
  readonly core = new PsClientCore(POLICY);
  constructor(owners: number[] = [11, 11, 12]) {
    this.message({ t: 'map', map: mapOf(1, owners) });
  }
  step(input: ClientInput): ClientEffect[] {
    return this.core.step(input);
  }
  message(message: Message, parts: Uint8Array[] = []): ClientEffect[] {
    return this.step({ kind: 'message', from: message.t.startsWith('map') ? 0 : 11, message, parts });
  }
  push(ticket: number, ...members: number[]): ClientEffect[] {
    return this.step({ kind: 'push', ticket, lists: listSections(items(...members)) });
  }
  pull(ticket: number, ...members: number[]): ClientEffect[] {
    return this.step({ kind: 'pull', ticket, lists: listSections(items(...members)) });
  }
  tick(now: number): ClientEffect[] {
    return this.step({ kind: 'tick', now });
  }
  ack(m: number, ...numbers: number[]): ClientEffect[] {
    return this.message(ackMessage(numbers.map((cseq) => [0, m, cseq])));
  }
}

/** Pushes on their way: node -> "member:number". */
const pushes = (effects: ClientEffect[]): [number, string[]][] =>
  effects.flatMap((effect): [number, string[]][] => {
    if (effect.kind !== 'send' || effect.message.t !== 'push') return [];
    const pushed = pushesIn(effect.message);
    expect(effect.parts).toEqual([Uint8Array.from(pushed.map(([, m]) => m!))]);
    return [[effect.to, pushed.map(([, m, cseq]) => `${m}:${cseq}`)]];
  });
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
