/** The client machine in tests: a job of three shards, and what is said to the machine and by it. */
import { expect } from 'vitest';
import {
  type ClientEffect,
  type ClientInput,
  listSections,
  PsClientCore,
} from '../../../src/core/client/client.js';
import { type Busy, IDLE } from '../../../src/core/client/state.js';
import type { ClusterMap, DataEntry } from '../../../src/protocol/map.js';
import type { Message } from '../../../src/protocol/messages.js';
import { ackMessage, pushesIn } from '../packed.js';

export const POLICY = { retryMs: 100, maxRetryMs: 400, wrongOwnerMs: 20, maxBusyMs: 1000 };
/** Shards of one group, by the node that owns each. */
export const mapOf = (epoch: number, owners: number[], gens: number[] = owners.map(() => 1)): ClusterMap => ({
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
export class Client {
  readonly core = new PsClientCore(POLICY);
  constructor(owners: number[] = [11, 11, 12]) {
    this.message({ t: 'map', map: mapOf(1, owners) });
  }
  step(input: ClientInput): ClientEffect[] {
    return this.core.step(input);
  }
  message(message: Message, parts: readonly Uint8Array[] = []): ClientEffect[] {
    return this.step({ kind: 'message', from: message.t.startsWith('map') ? 0 : 11, message, parts });
  }
  push(ticket: number, ...members: number[]): ClientEffect[] {
    return this.step({ kind: 'push', ticket, lists: listSections(items(...members)) });
  }
  pull(ticket: number, ...members: number[]): ClientEffect[] {
    return this.step({ kind: 'pull', ticket, lists: listSections(items(...members)) });
  }
  tick(now: number, busy: Busy = IDLE): ClientEffect[] {
    return this.step({ kind: 'tick', now, busy });
  }
  ack(m: number, ...numbers: number[]): ClientEffect[] {
    return this.message(ackMessage(numbers.map((cseq) => [0, m, cseq])));
  }
}

/** Pushes on their way: node -> "member:number". */
export const pushes = (effects: ClientEffect[]): [number, string[]][] =>
  effects.flatMap((effect): [number, string[]][] => {
    if (effect.kind !== 'send' || effect.message.t !== 'push') return [];
    const pushed = pushesIn(effect.message);
    expect(effect.parts).toEqual([Uint8Array.from(pushed.map(([, m]) => m!))]);
    return [[effect.to, pushed.map(([, m, cseq]) => `${m}:${cseq}`)]];
  });
