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

/** A place for the state; each call is the store of another process. `where`: its address. */
type Place = (() => StateStore) & { where: string };

const placeAt = (where: string, open: (where: string) => StateStore): Place =>
  Object.assign(() => open(where), { where });

/** Makes a place of its own, or one of this name inside another one. */
type MakePlace = (outer?: Place, name?: string) => Promise<Place>;

const PLACES: [name: string, make: MakePlace][] = [
  [
    'a directory',
    async (outer, name = '') =>
      placeAt(outer ? join(outer.where, name) : join(temporaryDirectory(), 'job'), openDirectoryStore),
  ],
  ...((hasEtcd
    ? [
        [
          'etcd',
          async (outer, name) => {
            const where = outer
              ? `${outer.where}/${name}`
              : `etcd://127.0.0.1:${(await Etcd.start()).port}/jobs/movies`;
            return placeAt(where, (url) => openEtcdStore(url, { leaseMs: 1000 }));
          },
        ],
      ]
    : []) as [string, MakePlace][]),
];

const of = (uid: string, foreign: JobOwner['foreign'] = 'refuse'): JobOwner => ({ uid, foreign });

/** Starts a scheduler that must end by itself, or not start. */
async function refusal(options: Partial<SchedulerOptions>): Promise<{ code: string; message: string }> {
  const log = new EventLog();
  return new Promise((resolve, reject) => {
    void log.next('scheduler.ready').then(() => reject(new Error('a scheduler leads that must be refused')));
    scheduler({ ...options, log, onFailed: resolve }).then(
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

/** A scheduler of the second job discards what it finds, has this job then, and ends. */
async function discarding(store: StateStore, job: string, started = job): Promise<void> {
  const running = await scheduler({ store, job: started, owner: of('uid-2', 'discard') });
  expect(await jobOf(running)).toBe(job);
  await running.close();
}

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

  it('of the first life is not adopted when the job had later ones, and is left as it is', async () => {
    const place = await make();
    const second = await make(place, 'life-2');
    for (const where of [place, second]) await lived(where(), of('uid-1'));
    expect(await refusal({ store: place(), job: 'second', owner: of('uid-2', 'adopt') })).toMatchObject({
      code: 'FOREIGN_STATE',
      message: expect.stringMatching(/first life of job uid-1.*later.*checkpoint.*discard/),
    });
    expect([await ownerIn(place()), await ownerIn(second())]).toEqual(['uid-1', 'uid-1']);
    await discarding(place(), 'second');
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

  it('is discarded with that of all lives of the job, and nothing else goes', async () => {
    const place = await make();
    const [second, other] = [await make(place, 'life-2'), await make(place, 'lifelong')];
    for (const where of [place, second, other]) await lived(where(), of('uid-1'));
    await discarding(place(), 'second');
    expect(await ownerIn(place())).toBe('uid-2');
    expect(await ownerIn(second())).toBeUndefined();
    expect(await ownerIn(other())).toBe('uid-1');
    // The job that has discarded it goes on as its own, and what it writes there later stays.
    await lived(second(), of('uid-2'));
    await discarding(place(), 'second', 'third');
    expect(await ownerIn(second())).toBe('uid-2');
  });

  it('of later lives is discarded where the first life has left none', async () => {
    const place = await make();
    const second = await make(place, 'life-2');
    await lived(second(), of('uid-1'));
    await discarding(place(), 'second');
    expect(await ownerIn(second())).toBeUndefined();
  });

  it('without an owner, which an earlier version has written, is adopted', async () => {
    const place = await make();
    await lived(place());
    const running = await scheduler({ store: place(), job: 'second', owner: of('uid-1') });
    expect(await jobOf(running)).toBe('first');
    await running.close();
    expect(await ownerIn(place())).toBe('uid-1');
  });

  it('has to be there when the job has begun: nothing begins anew, and nothing is written', async () => {
    const place = await make();
    const begun = { job: 'second', owner: of('uid-1', 'discard'), mustResume: true };
    const lost = { code: 'STATE_LOST', message: expect.stringMatching(/no state.*has begun.*--restore/) };
    expect(await refusal({ ...begun, store: place() })).toMatchObject(lost);
    expect(await ownerIn(place())).toBeUndefined();
    await lived(place(), of('uid-1'));
    expect(await jobOf(await scheduler({ ...begun, store: place() }))).toBe('first');
  });

  it('of another job is not discarded, nor adopted, when the job has begun', async () => {
    const place = await make();
    await lived(place(), of('uid-1'));
    for (const foreign of ['refuse', 'adopt', 'discard'] as const) {
      const begun = { job: 'second', owner: of('uid-2', foreign), mustResume: true };
      expect(await refusal({ ...begun, store: place() })).toMatchObject({
        code: 'STATE_LOST',
        message: expect.stringMatching(/that of job uid-1.*uid-2.*has begun/),
      });
    }
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
