/** Whole maps go to who lacks something that was decided a while ago, and to nobody else. */
import { beforeEach, describe, expect, it } from 'vitest';
import { DEFAULT_SCHEDULER_POLICY } from '../../../src/core/shared/policy.js';
import { BareScheduler, type Identity } from './bare.js';

const { lateMapMs } = DEFAULT_SCHEDULER_POLICY;
let job: BareScheduler;
let client: number;
let node: Identity;

const table = (name: string) => ({
  ...{ name, pool: 'embedding', dim: 4, seed: 1 },
  optimizer: { kind: 'sgd' as const, lr: 0.1 },
  initializer: { kind: 'zeros' as const },
});
const decide = (name: string): void => job.hear(client, { t: 'createTables', id: 1, specs: [table(name)] });
/** Epochs of whole maps that were sent in the last step, and to whom. */
const maps = (): [number, number][] =>
  job.effects.flatMap((effect): [number, number][] =>
    effect.kind === 'send' && effect.message.t === 'map' ? [[effect.to, effect.message.map.epoch]] : [],
  );
const beat = (epoch: number): void => job.heartbeat(node, { epoch });

beforeEach(() => {
  job = new BareScheduler(1, 1);
  node = job.join('ps-0');
  job.join('ps-1');
  client = job.attach().id;
});

describe('a peer that has an older map', () => {
  it('gets none while the changes are on their way, one when they are lost, and the next not at once', () => {
    job.tick(lateMapMs);
    const { epoch } = job.scheduler.map;
    decide('a');
    expect(job.effects.filter(({ kind }) => kind === 'broadcast')).toHaveLength(1);
    job.tick(50);
    beat(epoch);
    expect(maps()).toEqual([]);
    job.tick(lateMapMs);
    beat(epoch);
    expect(maps()).toEqual([[node.id, epoch + 1]]);
    beat(epoch);
    expect(maps()).toEqual([]);
    job.tick(lateMapMs);
    beat(epoch);
    expect(maps()).toEqual([[node.id, epoch + 1]]);
  });

  it('is not behind when only newer decisions are missing, however many there are', () => {
    for (let round = 0; round < 20; round++) {
      const { epoch } = job.scheduler.map;
      decide(`t${round}`);
      job.tick(lateMapMs / 2);
      beat(epoch);
      expect(maps()).toEqual([]);
    }
  });

  it('asks, when it is a client: the answer is the newest map, or nothing', () => {
    const { epoch } = job.scheduler.map;
    decide('a');
    job.tick(50);
    job.tick(lateMapMs);
    job.hear(client, { t: 'mapRequest', epoch: epoch + 1 });
    expect(maps()).toEqual([]);
    job.hear(client, { t: 'mapRequest', epoch });
    expect(maps()).toEqual([[client, epoch + 1]]);
  });

  it('is not behind for what waits for the store, however long that is away', () => {
    const before = job.scheduler.map.epoch;
    decide('a');
    job.leaveStore();
    decide('b');
    const { epoch } = job.scheduler.map;
    for (let seconds = 0; seconds < 60; seconds++) {
      job.tick(lateMapMs);
      beat(epoch - 1);
      expect(maps()).toEqual([]);
    }
    // A peer that lacks a durable map gets that at once.
    beat(before);
    expect(maps()).toEqual([[node.id, epoch - 1]]);
    job.returnStore();
    expect(maps()).toEqual([]);
    expect(job.effects.filter(({ kind }) => kind === 'broadcast')).toHaveLength(1);
    job.tick(50);
    job.tick(lateMapMs);
    beat(epoch - 1);
    expect(maps()).toEqual([[node.id, epoch]]);
  });
});
