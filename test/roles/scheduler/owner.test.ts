/** State says whose job it is: a scheduler of another job does not go on with it unless it is told to. */
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { JobOwner } from '../../../src/roles/scheduler/owner.js';
import type { RunningScheduler, SchedulerOptions } from '../../../src/roles/scheduler/scheduler.js';
import { openDirectoryStore } from '../../../src/stores/decisions/directory.js';
import { openEtcdStore } from '../../../src/stores/decisions/etcd/store.js';
import type { StateStore } from '../../../src/stores/decisions/index.js';
import { Etcd, hasEtcd } from '../../stores/decisions/etcd-server.js';
import { client, EventLog, ps, redundant, rejection, scheduler, temporaryDirectory } from '../support.js';

type Place = () => StateStore;

/** A place for the state; each call is the store of another process. */
const PLACES: [name: string, make: () => Promise<Place>][] = [
  [
    'a directory',
    async () => {
      const path = join(temporaryDirectory(), 'job');
      return () => openDirectoryStore(path);
    },
  ],
  ...((hasEtcd
    ? [
        [
          'etcd',
          async () => {
            const { port } = await Etcd.start();
            return () => openEtcdStore(`etcd://127.0.0.1:${port}/jobs/movies`, { leaseMs: 1000 });
          },
        ],
      ]
    : []) as [string, () => Promise<Place>][]),
];

const of = (uid: string, foreign: JobOwner['foreign'] = 'refuse'): JobOwner => ({ uid, foreign });

/** Starts a scheduler that must end by itself, or not start. */
async function refusal(options: Partial<SchedulerOptions>): Promise<{ code: string; message: string }> {
  return new Promise((resolve, reject) => {
    scheduler({ ...options, onFailed: resolve }).then(
      // A scheduler that stands by starts, and ends when it leads.
      () => {},
      (error: unknown) => rejection(Promise.reject(error)).then(resolve, reject),
    );
  });
}

/** A job with a PS and an entry of a training; its scheduler has ended. */
async function lived(store: StateStore, owner?: JobOwner, job = 'first'): Promise<void> {
  const running = await scheduler({ store, job, ...(owner ? { owner } : {}) });
  const node = await ps({ scheduler: running.address, connectTimeoutMs: 30_000 });
  const asking = await client(running.address);
  await redundant(asking);
  await asking.close();
  await node.close();
  await running.close();
}

const told = ({ events }: EventLog, name: string) =>
  events.filter(({ event }) => event === name).map(({ fields }) => fields);

const jobOf = async ({ address }: RunningScheduler): Promise<string> => {
  const asking = await client(address, { waitForJob: false });
  const { job } = await asking.status();
  await asking.close();
  return job;
};

const ownerIn = async (store: StateStore): Promise<unknown> => {
  await store.election?.lead('looks', {
    onLeader: () => {},
    onReach: () => {},
    onDoubt: () => {},
    onDeposed: () => {},
  });
  const entries = await store.load();
  await store.close();
  return entries.get('owner');
};

describe.each(PLACES)('the state in %s', (_, make) => {
  it('is resumed by the job that wrote it', async () => {
    const place = await make();
    await lived(place(), of('uid-1'));
    expect(await jobOf(await scheduler({ store: place(), job: 'second', owner: of('uid-1') }))).toBe('first');
  });

  it('is refused by another job, and left as it is', async () => {
    const place = await make();
    await lived(place(), of('uid-1'));
    expect(await refusal({ store: place(), job: 'second', owner: of('uid-2') })).toMatchObject({
      code: 'FOREIGN_STATE',
      message: expect.stringMatching(/uid-1.*uid-2.*adopt.*discard/),
    });
    expect(await jobOf(await scheduler({ store: place(), job: 'third', owner: of('uid-1') }))).toBe('first');
  });

  it('is adopted on demand, and belongs to the new job from then on', async () => {
    const place = await make();
    await lived(place(), of('uid-1'));
    const log = new EventLog();
    const running = await scheduler({ store: place(), job: 'second', owner: of('uid-2', 'adopt'), log });
    expect(await jobOf(running)).toBe('first');
    expect(told(log, 'state.adopted')).toMatchObject([{ job: 'first', owner: 'uid-2', before: 'uid-1' }]);
    await running.close();
    expect(await refusal({ store: place(), owner: of('uid-1') })).toMatchObject({ code: 'FOREIGN_STATE' });
  });

  it('is discarded on demand, in one transaction and once', async () => {
    const place = await make();
    await lived(place(), of('uid-1'));
    const log = new EventLog();
    const running = await scheduler({ store: place(), job: 'second', owner: of('uid-2', 'discard'), log });
    expect(await jobOf(running)).toBe('second');
    expect(told(log, 'state.discarded')).toMatchObject([{ job: 'first', owner: 'uid-2', before: 'uid-1' }]);
    await running.close();
    // The new job has decided nothing, and is in the store all the same: another scheduler goes on with it.
    const next = await scheduler({ store: place(), job: 'third', owner: of('uid-2', 'discard') });
    expect(await jobOf(next)).toBe('second');
    const asking = await client(next.address, { waitForJob: false });
    expect((await asking.status()).nodes).toEqual([]);
    await ps({ scheduler: next.address });
    await redundant(asking);
  });

  it('without an owner, which an earlier version has written, is adopted', async () => {
    const place = await make();
    await lived(place());
    const running = await scheduler({ store: place(), job: 'second', owner: of('uid-1') });
    expect(await jobOf(running)).toBe('first');
    await running.close();
    expect(await ownerIn(place())).toBe('uid-1');
  });

  it('is resumed by a scheduler that no job was named to', async () => {
    const place = await make();
    await lived(place(), of('uid-1'));
    const running = await scheduler({ store: place(), job: 'second' });
    expect(await jobOf(running)).toBe('first');
    await running.close();
    expect(await ownerIn(place())).toBe('uid-1');
  });
});
