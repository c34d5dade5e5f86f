/** Whose job the state is, by the flags and variables of `kintsugi scheduler`, as real processes. */
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { temporaryDirectory } from '../roles/support.js';
import { Etcd, hasEtcd } from '../stores/decisions/etcd-server.js';
import { kintsugi, record, start } from './support.js';

const SCHEDULER = [
  'scheduler',
  '--listen',
  '127.0.0.1:0',
  '--ps',
  '1',
  '--code',
  'none',
  '--log-format',
  'json',
];

/** A scheduler has written its state there, and has ended. */
async function lived(where: readonly string[], uid: string): Promise<void> {
  const running = start([...SCHEDULER, ...where], { KINTSUGI_JOB_UID: uid });
  onTestFinished(() => void running.process.kill('SIGKILL'));
  const { address } = await record(running, 'scheduler.ready');
  const ps = start(['ps', '--scheduler', String(address), '--listen', '127.0.0.1:0', '--log-format', 'json']);
  onTestFinished(() => void ps.process.kill('SIGKILL'));
  await record(running, 'map.durable');
  running.process.kill('SIGTERM');
  await running.ended;
}

describe('kintsugi scheduler for a job', () => {
  it('ends with FOREIGN_STATE at the state of another one, and says what to do', async () => {
    const where = ['--dir', join(temporaryDirectory(), 'job')];
    await lived(where, 'uid-1');
    const refused = await kintsugi([...SCHEDULER, ...where], { KINTSUGI_JOB_UID: 'uid-2' });
    expect(refused.code).not.toBe(0);
    const last = refused.stderr.trim().split('\n').at(-1);
    expect(last).toMatch(/^kintsugi: FOREIGN_STATE: .*uid-1.*uid-2.*--foreign-state adopt.*discard/);
    const adopting = start([...SCHEDULER, ...where], {
      ...{ KINTSUGI_JOB_UID: 'uid-2', KINTSUGI_FOREIGN_STATE: 'adopt' },
    });
    onTestFinished(() => void adopting.process.kill('SIGKILL'));
    expect(await record(adopting, 'scheduler.ready')).toMatchObject({ resumed: true });
  });

  it('ends with STATE_LOST where it must resume a job that is not there', async () => {
    const where = ['--dir', join(temporaryDirectory(), 'job')];
    const flag = await kintsugi([...SCHEDULER, ...where, '--must-resume']);
    expect(flag.stderr.trim().split('\n').at(-1)).toMatch(/^kintsugi: STATE_LOST: .*no state.*has begun/);
    const told = await kintsugi([...SCHEDULER, ...where], { KINTSUGI_MUST_RESUME: 'yes' });
    expect([told.code, told.stderr]).toEqual([flag.code, flag.stderr]);
    expect(flag.code).not.toBe(0);
    const odd = await kintsugi([...SCHEDULER, ...where], { KINTSUGI_MUST_RESUME: 'maybe' });
    expect(odd.stderr).toBe('kintsugi: BAD_ARGUMENT: KINTSUGI_MUST_RESUME is yes or no, not "maybe"');
    await lived(where, 'uid-1');
    const resuming = start([...SCHEDULER, ...where, '--must-resume'], { KINTSUGI_JOB_UID: 'uid-1' });
    onTestFinished(() => void resuming.process.kill('SIGKILL'));
    expect(await record(resuming, 'scheduler.ready')).toMatchObject({ resumed: true });
  });

  it('says which choices there are', async () => {
    const alone = await kintsugi([...SCHEDULER, '--foreign-state', 'adopt']);
    expect(alone.stderr).toBe('kintsugi: BAD_ARGUMENT: --foreign-state needs --job-uid');
    const odd = await kintsugi(SCHEDULER, { KINTSUGI_JOB_UID: 'uid-1', KINTSUGI_FOREIGN_STATE: 'yes' });
    expect(odd.stderr).toMatch(
      /^kintsugi: BAD_ARGUMENT: KINTSUGI_FOREIGN_STATE is one of refuse, adopt, discard/,
    );
    const nowhere = await kintsugi([...SCHEDULER, '--job-uid', 'uid-1', '--remove-state']);
    expect(nowhere.stderr).toBe('kintsugi: BAD_ARGUMENT: --remove-state needs --store and --job-uid');
  });
});

describe.skipIf(!hasEtcd)('kintsugi scheduler --remove-state', () => {
  const remove = (url: string, uid: string, places: string) =>
    kintsugi([...SCHEDULER, '--store', url, '--job-uid', uid, '--remove-state', places]);
  const keysIn = async (etcd: Etcd): Promise<string[]> => {
    const key = Buffer.from('jobs/').toString('base64');
    const end = Buffer.from('jobs0').toString('base64');
    const { kvs = [] } = (await etcd.ask('/v3/kv/range', { key, range_end: end, keys_only: true })) as {
      kvs?: { key: string }[];
    };
    return kvs.map((one) => Buffer.from(one.key, 'base64').toString());
  };

  it('leaves no key of the job, in any of its places, and every key of another one', async () => {
    const etcd = await Etcd.start();
    const url = etcd.url('jobs/movies');
    await lived(['--store', url], 'uid-1');
    await lived(['--store', `${url}/life-2`], 'uid-1');
    await lived(['--store', `${url}/life-3`], 'uid-2');
    const foreign = await keysIn(etcd);
    expect(foreign.filter((key) => /movies\/(life-2\/)?entry\//.test(key)).length).toBeGreaterThan(4);

    expect(await remove(url, 'uid-3', 'life-2')).toMatchObject({ code: 0 });
    expect(await keysIn(etcd)).toEqual(foreign);

    expect(await remove(url, 'uid-1', 'life-2,life-3')).toMatchObject({ code: 0 });
    const left = await keysIn(etcd);
    expect(left).toEqual(foreign.filter((key) => key.includes('/life-3/')));
    expect(left.length).toBeGreaterThan(0);
    // Another attempt finds nothing.
    expect(await remove(url, 'uid-1', '')).toMatchObject({ code: 0 });
  });
});
