// The scheduler dies and comes back on its durable state, on the same port, while pushes go on.
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { KintsugiError } from '../../../src/common/errors.js';
import { poolsFor } from '../../../src/core/placement/job.js';
import { stateOf } from '../../../src/core/scheduler/scheduler.js';
import type { SchedulerOptions } from '../../../src/roles/scheduler/scheduler.js';
import { openDirectoryStore } from '../../../src/stores/decisions/directory.js';
import { MemoryStore, type StateStore } from '../../../src/stores/decisions/index.js';
import {
  COUNTING,
  client,
  EventLog,
  expectExactSums,
  Pusher,
  ps,
  redundant,
  rejection,
  scheduler,
  temporaryDirectory,
} from '../support.js';

const job = (directory: string): Partial<SchedulerOptions> => ({
  store: openDirectoryStore(directory),
  nodes: 3,
  pools: poolsFor({ k: 2, r: 1 }, 3),
});

const node = (address: string, index: number) =>
  ps({ scheduler: address, name: `ps-${index}`, hostLabel: `host-${index}` });

describe('a scheduler that restarts', () => {
  it('resumes its job, and nobody loses a push or gets an id twice', async () => {
    const directory = join(temporaryDirectory(), 'state');
    let running = await scheduler(job(directory));
    const { address } = running;
    const nodes = [await node(address, 0), await node(address, 1), await node(address, 2)];
    const log = new EventLog();
    const a = await client(address, { log });
    const b = await client(address);
    await a.createTable({ name: 'counts', ...COUNTING });
    await b.createTable({ name: 'counts', ...COUNTING });
    const before = await redundant(a, 3);
    const pushers = [new Pusher(a, 'counts', 200, 0), new Pusher(b, 'counts', 200, 3)];
    await Promise.all(pushers.map((pusher) => pusher.more(3)));

    const disconnected = log.next('scheduler.disconnected');
    await running.close();
    await disconnected;
    // Training does not need the scheduler.
    await Promise.all(pushers.map((pusher) => pusher.more(5)));
    const reconnected = log.next('scheduler.reconnected');
    running = await scheduler({ ...job(directory), listen: address, job: 'ignored: the store has a job' });
    await reconnected;

    const after = await redundant(a, 3);
    expect(after.job).toBe(before.job);
    expect(after.epoch).toBeGreaterThanOrEqual(before.epoch);
    expect(after.nodes.map(({ id, inc }) => [id, inc])).toEqual(before.nodes.map(({ id, inc }) => [id, inc]));
    const c = await client(address);
    expect(c.tables().map((table) => table.name)).toEqual(['counts']);
    const ids = [a.id, b.id, c.id, ...nodes.map(({ id }) => id)];
    expect(new Set(ids).size).toBe(6);
    expect((await c.createTable({ name: 'another', dim: 2 })).spec.id).not.toBe(c.table('counts').spec.id);

    // The scheduler must still see and mend a failure.
    await nodes[1]!.close();
    await node(address, 1);
    await Promise.all(pushers.map((pusher) => pusher.more(5)));
    await redundant(c, 3);
    await expectExactSums(c, 'counts', pushers);
  });

  it('twice in a row, with a node that died while it was away', async () => {
    const directory = temporaryDirectory();
    let running = await scheduler(job(directory));
    const { address } = running;
    const nodes = [await node(address, 0), await node(address, 1), await node(address, 2)];
    const trainer = await client(address);
    await trainer.createTable({ name: 'counts', ...COUNTING });
    const pusher = new Pusher(trainer, 'counts', 200, 0);
    await pusher.more(3);
    for (const index of [0, 2]) {
      await running.close();
      await nodes[index]!.close();
      running = await scheduler({ ...job(directory), listen: address });
      nodes[index] = await node(address, index);
      await redundant(trainer, 3);
      await pusher.more(3);
    }
    await expectExactSums(trainer, 'counts', [pusher]);
  });

  it('takes connects that came while it was away', async () => {
    const directory = temporaryDirectory();
    const running = await scheduler({ ...job(directory), nodes: 1, pools: poolsFor({ k: 1, r: 0 }, 1) });
    await node(running.address, 0);
    const first = await client(running.address);
    await running.close();
    const early = client(running.address);
    expect((await rejection(client(running.address, { connectTimeoutMs: 50 }))).code).toBe('UNREACHABLE');
    await scheduler({ ...job(directory), listen: running.address });
    expect((await early).id).toBeGreaterThan(first.id);
  });

  it('lets clients come back whose signal for connecting is long over', async () => {
    const store = new MemoryStore();
    const running = await scheduler({ store });
    await ps({ scheduler: running.address });
    const controller = new AbortController();
    const log = new EventLog();
    const trainer = await client(running.address, { signal: controller.signal, log });
    controller.abort();
    const reconnected = log.next('scheduler.reconnected');
    await running.close();
    await scheduler({ store, listen: running.address });
    await reconnected;
    await trainer.createTable({ name: 't', ...COUNTING });
  });
});

describe('a store', () => {
  it('of another format is refused', async () => {
    const directory = temporaryDirectory();
    const other = openDirectoryStore(directory);
    await other.write(new Map([['state', { format: 99, value: {} }]]));
    await other.close();
    const options = job(directory);
    expect((await rejection(scheduler(options))).code).toBe('BAD_ARGUMENT');
    await options.store!.close();
  });

  it('of the format before is rewritten in one transaction, and the job goes on', async () => {
    const directory = temporaryDirectory();
    const first = openDirectoryStore(directory);
    let running = await scheduler({ ...job(directory), store: first });
    await Promise.all([0, 1, 2].map((index) => node(running.address, index)));
    const trainer = await client(running.address);
    await trainer.createTable({ name: 'counts', ...COUNTING });
    const before = await redundant(trainer, 3);
    await running.close();

    const second = openDirectoryStore(directory);
    const { state } = stateOf(await second.load())!;
    const entries = [...(await second.load()).keys()];
    const sessions = [...state.sessions.values()];
    const datasets = state.datasets.map((dataset) => ({ ...dataset, open: [...dataset.open.values()] }));
    const stored = { format: 2, value: { ...state, sessions, datasets } };
    await second.write(new Map(entries.map((key) => [key, key === 'state' ? stored : undefined])));
    expect([...(await second.load()).keys()]).toEqual(['state']);
    await second.close();

    running = await scheduler({ ...job(directory), listen: running.address });
    const after = await redundant(trainer, 3);
    expect([after.job, after.nodes.length, after.tables]).toEqual([before.job, 3, before.tables]);
    await running.close();
    const third = openDirectoryStore(directory);
    expect((await third.load()).get('state')).toEqual({ format: 3 });
    expect(stateOf(await third.load())!.state.map.tables).toEqual(state.map.tables);
    await third.close();
  });

  it('that fails stops the scheduler: what is not durable is not decided', async () => {
    const log = new EventLog();
    const failed = log.next('scheduler.store');
    let saves = 0;
    const memory = new MemoryStore();
    const store: StateStore = {
      load: () => memory.load(),
      write: (changes) => (++saves > 2 ? Promise.reject(new Error('disk full')) : memory.write(changes)),
      close: () => memory.close(),
    };
    const ends: KintsugiError[] = [];
    const { address } = await scheduler({ store, log, onFailed: (error) => ends.push(error) });
    const joining = rejection(ps({ scheduler: address, connectTimeoutMs: 200 }));
    const joiningToo = rejection(client(address, { connectTimeoutMs: 200 }));
    expect(String((await failed).message)).toContain('disk full');
    await Promise.allSettled([joining, joiningToo]);
    expect(saves).toBe(3);
    expect(ends).toMatchObject([{ code: 'STORE_FAILED', message: 'disk full' }]);
    expect((await rejection(client(address, { connectTimeoutMs: 50 }))).code).toBe('UNREACHABLE');
  });
});
