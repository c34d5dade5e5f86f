/**
 * Several schedulers on one etcd, as real processes: one leads, another takes over when it dies, one that was
 * stopped can write nothing more, and while etcd is away training goes on.
 */
import { once } from 'node:events';
import { type AddressInfo, connect, createServer, type Socket } from 'node:net';
import { describe, expect, it, onTestFinished } from 'vitest';
import type { Client } from '../../src/library/client/client.js';
import type { JobStatus } from '../../src/protocol/messages.js';
import { COUNTING, client, expectExactSums, Pusher, ps, redundant, statusWhere } from '../roles/support.js';
import { Etcd, hasEtcd } from '../stores/decisions/etcd-server.js';
import { kintsugi, type Running, record, start } from './support.js';

interface Scheduler {
  running: Running;
  address: string;
  /** Parts the scheduler from etcd. */
  cutOff(): void;
}

/** A proxy to etcd that can be cut. */
async function wayTo(port: number): Promise<{ port: number; cut: () => void }> {
  const sockets = new Set<Socket>();
  const proxy = createServer((incoming) => {
    const outgoing = connect(port, '127.0.0.1');
    for (const socket of [incoming, outgoing]) {
      sockets.add(socket);
      socket.on('error', () => {});
      socket.on('close', () => {
        sockets.delete(socket);
        incoming.destroy();
        outgoing.destroy();
      });
    }
    incoming.pipe(outgoing).pipe(incoming);
  }).listen(0, '127.0.0.1');
  await once(proxy, 'listening');
  const cut = () => {
    proxy.close();
    for (const socket of sockets) socket.destroy();
  };
  onTestFinished(cut);
  return { port: (proxy.address() as AddressInfo).port, cut };
}

class Job {
  readonly schedulers: Scheduler[] = [];

  private constructor(readonly etcd: Etcd) {}

  static async start(count = 3): Promise<Job> {
    const job = new Job(await Etcd.start());
    for (let i = 0; i < count; i++) await job.add();
    await job.leader();
    for (let i = 0; i < 4; i++)
      await ps({
        scheduler: job.addresses,
        name: `ps-${i}`,
        hostLabel: `host-${i}`,
        connectTimeoutMs: 30_000,
      });
    return job;
  }

  /** Another scheduler process, which stands by at first. */
  async add(listen = '127.0.0.1:0'): Promise<Scheduler> {
    const way = await wayTo(this.etcd.port);
    const store = this.etcd.url().replace(`:${this.etcd.port}/`, `:${way.port}/`);
    const where = ['--listen', listen, '--store', store, '--store-lease', '2s'];
    const args = ['scheduler', ...where, '--ps', '4', '--code', '2+1', '--log-format', 'json'];
    const running = start(args);
    onTestFinished(() => void running.process.kill('SIGKILL'));
    const { address } = await record(running, 'scheduler.standby');
    const scheduler = { running, address: address as string, cutOff: way.cut };
    this.schedulers.push(scheduler);
    return scheduler;
  }

  get addresses(): string {
    return this.schedulers.map(({ address }) => address).join(',');
  }

  /** The first of `candidates` that leads. */
  leader(candidates = this.schedulers): Promise<Scheduler> {
    return Promise.any(
      candidates.map(async (scheduler) => {
        await record(scheduler.running, 'scheduler.ready');
        return scheduler;
      }),
    );
  }

  others(than: Scheduler): Scheduler[] {
    return this.schedulers.filter((scheduler) => scheduler !== than);
  }

  async training(): Promise<{ trainer: Client; pushers: Pusher[] }> {
    const trainer = await client(this.addresses, { connectTimeoutMs: 30_000 });
    await trainer.createTable({ name: 'counts', ...COUNTING });
    const pushers = [new Pusher(trainer, 'counts', 200, 0)];
    await pushers[0]!.more(3);
    return { trainer, pushers };
  }
}

/** Longer than a silent node has, and than another scheduler needs to lead. */
const HELD_MS = 15_000;

/** A PS of its own process, which has joined and whose event loop is held; `held`: it turns again. */
async function heldPs(scheduler: string, blockMs: number): Promise<{ busy: Running; held: Promise<string> }> {
  const hook = new URL('../fixtures/blocks.mjs', import.meta.url).href;
  const args = ['ps', '--scheduler', scheduler, '--name', 'busy', '--log-format', 'json'];
  const busy = start(args, { NODE_OPTIONS: `--import=${hook}`, BLOCK_MS: `${blockMs}` });
  onTestFinished(() => void busy.process.kill('SIGKILL'));
  await record(busy, 'ps.ready');
  busy.process.kill('SIGUSR2');
  await busy.line((text) => text === 'blocked');
  return { busy, held: busy.line((text) => text === 'turns again') };
}

describe.skipIf(!hasEtcd)('several schedulers', () => {
  it('a PS whose event loop is held while the leader dies proves to the next one that it lives', async () => {
    const job = await Job.start(2);
    const first = await job.leader();
    const [next] = job.others(first);
    const { busy, held } = await heldPs(job.addresses, HELD_MS);
    first.running.process.kill('SIGKILL');
    await record(next!.running, 'scheduler.ready');
    await held;
    const turning = await record(next!.running, 'node.turning');
    expect(turning).toMatchObject({ name: 'busy' });
    const told: string[] = [];
    const watcher = await client(next!.address, { connectTimeoutMs: 30_000 });
    for await (const { kind, subject } of watcher.events()) if (subject === 'busy') told.push(kind);
    expect(told).toEqual(['node.joined', 'node.stopped', 'node.turning']);
    busy.process.kill('SIGKILL');
  }, 90_000);

  it('commands that are told of one that stands by reach the one that leads', async () => {
    const job = await Job.start(2);
    const [standby] = job.others(await job.leader());
    const to = ['--scheduler', standby!.address];
    const scaled = await kintsugi(['scale', '--ps', '4', ...to]);
    expect([scaled.code, scaled.stdout]).toEqual([0, expect.stringMatching(/^4 PS serve/m)]);
    const events = await kintsugi(['events', ...to]);
    expect([events.code, events.stdout]).toEqual([0, expect.stringContaining('ps-3')]);
  }, 90_000);

  it('one that stands by says where the pages of the job are', async () => {
    const job = await Job.start(2);
    const first = await job.leader();
    const [standing] = job.others(first);
    await record(standing!.running, 'scheduler.follows');
    const at = (path: string) => `http://${standing!.address}${path}`;
    for (const path of ['/status', '/events?since=1']) {
      const answer = await fetch(at(path), { redirect: 'manual' });
      expect([answer.status, answer.headers.get('location'), await answer.json()]).toEqual([
        307,
        `http://${first.address}${path}`,
        { leader: first.address },
      ]);
    }
    const followed = (await (await fetch(at('/status'))).json()) as JobStatus;
    expect(followed.nodes).toHaveLength(4);
    expect((await fetch(at('/nothing'))).status).toBe(404);
  });

  it('the leader is killed: another one leads, sees failures, and nothing is lost', async () => {
    const job = await Job.start();
    const { trainer, pushers } = await job.training();
    const before = await redundant(trainer, 4);
    const first = await job.leader();
    first.running.process.kill('SIGKILL');
    await job.leader(job.others(first));
    await trainer.createTable({ name: 'later', ...COUNTING });
    const after = await redundant(trainer, 4);
    expect(after.job).toBe(before.job);
    expect(after.nodes.map(({ id, inc }) => [id, inc])).toEqual(before.nodes.map(({ id, inc }) => [id, inc]));
    expect(after.tables.map(({ name }) => name)).toEqual(['counts', 'later']);
    // A scheduler that stands by sends a newcomer to the leader.
    const [standing] = job.others(first).filter((each) => each.running !== undefined);
    const late = await client(`${first.address},${standing!.address}`, { connectTimeoutMs: 30_000 });
    expect(late.tables()).toHaveLength(2);
    await pushers[0]!.more(3);
    await expectExactSums(late, 'counts', pushers);
  });

  it('the leader is stopped and goes on: it stands by, and another one leads', async () => {
    const job = await Job.start(2);
    const { trainer, pushers } = await job.training();
    const first = await job.leader();
    first.running.process.kill('SIGSTOP');
    const second = await job.leader(job.others(first));
    await trainer.createTable({ name: 'later', ...COUNTING });
    const deposed = record(first.running, 'scheduler.deposed');
    const stands = record(first.running, 'scheduler.standby', 1);
    const again = record(first.running, 'scheduler.ready', 1);
    first.running.process.kill('SIGCONT');
    expect(await deposed).toMatchObject({ level: 'warn', message: expect.stringMatching(/does not lead/) });
    expect(await stands).toMatchObject({ address: first.address });
    // The one that was stopped takes over from the second, in the process that it always was.
    second.running.process.kill('SIGTERM');
    expect((await second.running.ended).code).toBe(0);
    expect(await again).toMatchObject({ address: first.address, resumed: true });
    await redundant(trainer, 4);
    await pushers[0]!.more(3);
    await expectExactSums(trainer, 'counts', pushers);
  });

  it('the leader is cut off from etcd only: all go to the one that leads now', async () => {
    const job = await Job.start(2);
    const { trainer, pushers } = await job.training();
    const before = await redundant(trainer, 4);
    const first = await job.leader();
    first.cutOff();
    await job.leader(job.others(first));
    await trainer.createTable({ name: 'later', ...COUNTING });
    const after = await redundant(trainer, 4);
    expect(after.nodes.map(({ id, inc }) => [id, inc])).toEqual(before.nodes.map(({ id, inc }) => [id, inc]));
    await pushers[0]!.more(3);
    await expectExactSums(trainer, 'counts', pushers);
  });

  it('etcd stalls for longer than the lease, three times: every scheduler lives, and one leads', async () => {
    const job = await Job.start();
    const { trainer, pushers } = await job.training();
    for (let round = 0; round < 3; round++) {
      await job.etcd.stall(2500);
      // Whether the lease has ended is up to etcd; without its key the leader leads no more.
      await job.etcd.dropLeader();
      await trainer.createTable({ name: `later-${round}`, ...COUNTING });
      await pushers[0]!.more(3);
    }
    expect(job.schedulers.map(({ running }) => running.process.exitCode)).toEqual([null, null, null]);
    const status = await redundant(trainer, 4);
    expect(status.tables.map(({ name }) => name)).toEqual(['counts', 'later-0', 'later-1', 'later-2']);
    await expectExactSums(trainer, 'counts', pushers);
    for (const { running } of job.schedulers) running.process.kill('SIGTERM');
    const ends = await Promise.all(job.schedulers.map(({ running }) => running.ended));
    expect(ends.map(({ code }) => code)).toEqual([0, 0, 0]);
  });

  it('etcd is away: training goes on, decisions wait, status says so', async () => {
    const job = await Job.start(2);
    const { trainer, pushers } = await job.training();
    await job.etcd.kill();
    const waiting = (status: { warnings: string[] }) => status.warnings.some((text) => text.includes('etcd'));
    await statusWhere(trainer, 'the store missing', waiting);
    const creating = trainer.createTable({ name: 'later', ...COUNTING });
    await pushers[0]!.more(20);
    const { code, stdout } = await kintsugi(['status', '--scheduler', job.addresses]);
    expect([code, stdout]).toEqual([
      0,
      expect.stringMatching(/warning: decisions wait for the store: etcd at /),
    ]);
    await job.etcd.start();
    await creating;
    const status = await statusWhere(trainer, 'the store back', (each) => !waiting(each));
    expect(status.tables.map(({ name }) => name)).toEqual(['counts', 'later']);
    await expectExactSums(trainer, 'counts', pushers);
  });

  it('etcd comes back empty: all end and say what to do, and no empty job begins', async () => {
    const job = await Job.start(2);
    await job.training();
    const first = await job.leader();
    const [standing] = job.others(first);
    await record(standing!.running, 'scheduler.follows');
    await job.etcd.kill();
    job.etcd.loseData();
    await job.etcd.start();
    for (const { running } of job.schedulers) {
      const { code, said } = await running.ended;
      expect([code, said]).toEqual([
        1,
        [expect.stringMatching(/^kintsugi: STORE_FAILED: the store has no job any more.* What to do: /)],
      ]);
    }
    const [key, end] = ['jobs/test/', 'jobs/test0'].map((text) => Buffer.from(text).toString('base64'));
    expect(await job.etcd.ask('/v3/kv/range', { key, range_end: end })).not.toHaveProperty('kvs');
  });

  it('an etcd that is not there is said at once, and waited for', async () => {
    const etcd = await Etcd.start();
    await etcd.kill();
    const args = ['scheduler', '--listen', '127.0.0.1:0', '--store', etcd.url(), '--log-format', 'json'];
    const running = start(args);
    onTestFinished(() => void running.process.kill('SIGKILL'));
    const { address } = await record(running, 'scheduler.standby');
    expect(await record(running, 'store.unreachable')).toMatchObject({
      level: 'warn',
      message: expect.stringContaining('ECONNREFUSED'),
    });
    const ready = await (await fetch(`http://${address as string}/readyz`)).text();
    expect(ready).toMatch(/stands by; who leads is unknown: etcd at .*ECONNREFUSED/);
    await etcd.start();
    await record(running, 'scheduler.ready');
  });

  it('one that cannot resume the job gives the lease back, and ends', async () => {
    const etcd = await Etcd.start();
    const key = Buffer.from('jobs/test/entry/state').toString('base64');
    await etcd.ask('/v3/kv/put', { key, value: Buffer.from('{"format":99}').toString('base64') });
    const args = ['scheduler', '--listen', '127.0.0.1:0', '--store', etcd.url(), '--log-format', 'json'];
    const { code, said } = await kintsugi(args);
    expect([code, said]).toEqual([1, [expect.stringMatching(/^kintsugi: BAD_ARGUMENT: .*format 99/)]]);
    const leader = Buffer.from('jobs/test/leader').toString('base64');
    expect(await etcd.ask('/v3/kv/range', { key: leader })).not.toHaveProperty('kvs');
  });

  it('a store that cannot be used ends the command with a reason', async () => {
    for (const [args, text] of [
      [['--store', 'etcd://127.0.0.1'], /^kintsugi: BAD_ARGUMENT: .*is not of the form/],
      [['--store', 'etcd://a/b', '--dir', '/tmp/x'], /^kintsugi: BAD_ARGUMENT: .*not in both/],
      [['--store-ca', '/tmp/x'], /^kintsugi: BAD_ARGUMENT: .*need --store etcds/],
      [['--store', 'etcd://a/b', '--store-lease', '1500ms'], /^kintsugi: BAD_ARGUMENT: .*whole seconds/],
    ] as const) {
      const { code, said } = await kintsugi(['scheduler', '--listen', '127.0.0.1:0', ...args]);
      expect([code, said]).toEqual([2, [expect.stringMatching(text)]]);
    }
  });
});
