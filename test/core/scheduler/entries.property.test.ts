/**
 * The entries in the store say the same as the state in memory, after any decisions: nodes come, go and come
 * back, tables, sessions, changes, ranges. A transaction has only the entries that changed.
 */
import { expect, test } from 'vitest';
import { splitMix } from '../../../src/core/scheduler/samples/ranges.js';
import type { DurableState } from '../../../src/core/scheduler/scheduler.js';
import { UNBOUNDED } from '../../../src/protocol/samples.js';
import { BareScheduler, type Identity } from './bare.js';

const SPEC = {
  ...{ batch: 4, epochs: 2, seed: 1, shuffle: true, staleness: UNBOUNDED },
  files: [{ name: 'f', size: 400, rangeBytes: 40 }],
};
const GROWING = { ...SPEC, follow: true, epochs: 1, files: [{ name: 'g', size: 0, rangeBytes: 40 }] };

const TABLE = {
  ...{ pool: 'embedding', dim: 4, seed: 1, optimizer: { kind: 'sgd' as const, lr: 0.1 } },
  initializer: { kind: 'zeros' as const },
};

class Story extends BareScheduler {
  private readonly random: () => number;
  readonly nodes = new Map<string, Identity>();
  private clients: number[] = [];
  private readonly leases: {
    client: number;
    name: string;
    number: number;
    lease: number;
    session: number;
  }[] = [];
  private id = 1;

  constructor(seed: number) {
    super(2, 1, 3, { maxUnsavedBatches: 1, maxAbsentNodes: 4, maxRangeFailures: 2, balanceJoining: true });
    this.random = splitMix(seed);
  }

  get memory(): DurableState {
    return (this.scheduler as unknown as { ledger: { state: DurableState } }).ledger.state;
  }

  private below(n: number): number {
    return this.random() % n;
  }

  private pick<T>(list: readonly T[]): T | undefined {
    return list[this.below(list.length)];
  }

  act(): void {
    const id = this.id++;
    const client = this.pick(this.clients);
    const name = this.pick(['d', 'e'])!;
    switch (this.below(15)) {
      case 0:
      case 1: {
        const node = `ps-${this.below(7)}`;
        this.nodes.set(node, this.join(node));
        return;
      }
      case 2: {
        const node = this.pick([...this.nodes.values()]);
        if (node) this.step({ kind: 'closed', peer: node.id, inc: node.inc });
        if (node) this.step({ kind: 'refused', node: node.id, inc: node.inc });
        return;
      }
      case 3:
      case 4:
        for (const node of this.nodes.values()) this.complete(node);
        return;
      case 5:
        this.clients.push(this.attach().id);
        return;
    }
    if (client === undefined) return;
    switch (this.below(13)) {
      case 0:
        if (this.below(3) > 0) return;
        this.clients = this.clients.filter((other) => other !== client);
        return this.hear(client, { t: 'detach' });
      case 1: {
        const specs = [{ ...TABLE, name: `t${this.below(5)}` }];
        return this.hear(client, { t: 'createTables', id, specs });
      }
      case 2:
        return this.hear(client, { t: 'scale', id, ps: 3 + this.below(4), timeoutMs: 5000 });
      case 3:
        return this.hear(client, { t: 'rebalance', id, timeoutMs: 0, dryRun: false });
      case 4:
        return this.hear(client, { t: 'openDataset', id, name, spec: name === 'd' ? SPEC : GROWING });
      case 5:
        return this.hear(client, { t: 'extendDataset', id, name: 'e', sizes: [this.below(500)] });
      case 6:
        return this.tick(this.below(2) > 0 ? 30 : 3000);
      case 7:
      case 8: {
        this.hear(client, { t: 'acquire', id, name, clock: 0 });
        for (const effect of this.effects) {
          if (effect.kind !== 'send' || effect.message.t !== 'acquired' || !effect.message.range) continue;
          const { number } = effect.message.range;
          const { id: lease, session } = effect.message;
          this.leases.push({ client: effect.to, name, number, lease, session });
        }
        return;
      }
      case 9: {
        const table = `t${this.below(5)}`;
        return this.hear(client, { t: 'setTable', id, name: table, lr: 0.1 + this.below(4) });
      }
      case 10: {
        const table = this.pick(this.memory.map.tables);
        return table && this.hear(client, { t: 'dropTable', id, table: table.id });
      }
      case 11: {
        const lease = this.pick(this.leases);
        const done = this.below(9);
        const counts = { done, begun: done, clock: 0 };
        if (lease) this.hear(lease.client, { t: 'rangeProgress', ...lease, ...counts });
        return;
      }
      default: {
        const lease = this.leases.splice(this.below(this.leases.length + 1), 1)[0];
        const outcome = this.pick(['finished', 'failed', 'returned'] as const)!;
        const counts = { done: 1, begun: 1, samples: 3, redone: 1, batch: 1 };
        if (lease) this.hear(lease.client, { t: 'release', id, ...lease, outcome, ...counts });
      }
    }
  }
}

const SEEDS = Number(process.env.KINTSUGI_ENTRY_SEEDS ?? 20);

test('the state rebuilt from the entries is the state in memory', () => {
  const written = new Set<string>();
  for (let seed = 1; seed <= SEEDS; seed++) {
    const story = new Story(seed);
    for (let i = 0; i < 300; i++) {
      story.act();
      for (const effect of story.effects)
        if (effect.kind === 'persist')
          for (const key of effect.changes.keys()) written.add(key.split('/')[0]!);
      if (i % 10 === 0) expect(story.state, `seed ${seed}, step ${i}`).toEqual(story.memory);
    }
  }
  const kinds = ['name', 'session', 'dataset', 'cursor', 'epoch', 'file', 'aside', 'open', 'rates', 'event'];
  const all = ['state', 'job', 'head', 'scaling', 'group', 'node', 'table', 'change', ...kinds];
  expect([...written].sort()).toEqual(all.sort());
});

test('a decision writes what it changed, however large the job is', () => {
  const story = new Story(1);
  for (let i = 0; i < 6; i++) story.nodes.set(`ps-${i}`, story.join(`ps-${i}`));
  const client = story.attach();
  for (let i = 0; i < 500; i++) story.attach();
  const written = (): [key: string, value: unknown][] =>
    story.effects.flatMap((effect) => (effect.kind === 'persist' ? [...effect.changes] : []));
  const changed = (): string[] =>
    written()
      .map(([key]) => key)
      .filter((key) => !key.startsWith('event/'))
      .sort();
  const { id } = story.attach();
  expect(changed()).toEqual(['head', `session/${id}`]);
  const specs = Array.from({ length: 200 }, (_, i) => ({ ...TABLE, name: `t${i}` }));
  story.hear(id, { t: 'createTables', id: 1, specs });
  let bytes = 0;
  for (let i = 0; i < 200; i++) {
    story.hear(id, { t: 'setTable', id: 2 + i, name: `t${i}`, lr: 0.5 });
    expect(changed()).toEqual(['head', expect.stringMatching(`^rates/${id}/`), `table/${i + 1}`]);
    bytes = Math.max(bytes, JSON.stringify(written()).length);
  }
  expect(bytes).toBeLessThan(2000);
  story.hear(client.id, { t: 'detach' });
  expect(changed()).toEqual(['head', `session/${client.id}`]);
  story.hear(id, { t: 'openDataset', id: 1, name: 'd', spec: SPEC });
  expect(changed()).toEqual(['cursor/0', 'dataset/0', 'head']);
  story.hear(id, { t: 'acquire', id: 2, name: 'd', clock: 0 });
  expect(changed()).toEqual(['cursor/0', 'head', 'open/0/0', `session/${id + 1}`]);
});
