// The connection to the scheduler, where several may lead.
import { spawn } from 'node:child_process';
import { connect } from 'node:net';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { type Link, listen } from '../../src/net/transport/index.js';
import { Uplink } from '../../src/net/uplink.js';
import { EMPTY_MAP } from '../../src/protocol/map.js';
import { EventLog } from '../roles/support.js';

/** A scheduler that leads, or names the one that does. */
class Scheduler {
  /** Address of the leader; undefined: this scheduler leads. */
  leader: string | undefined;
  /** Called once in place of an answer; the link is closed then. */
  refuse: (() => void) | undefined;
  readonly links: Link[] = [];
  /** Links that the other side has closed. */
  closed = 0;
  address = '';
  private readonly waiting: (() => void)[] = [];

  nextClosed(): Promise<void> {
    return new Promise((resolve) => this.waiting.push(resolve));
  }

  async open(): Promise<this> {
    const listener = await listen({
      host: '127.0.0.1',
      port: 0,
      handlers: {
        onOpen: (link) => this.links.push(link),
        onMessage: (link) => {
          const { refuse } = this;
          this.refuse = undefined;
          if (refuse) {
            refuse();
            link.close('not now');
          } else if (this.leader === undefined)
            link.send({ t: 'welcome', id: 1, inc: 0, map: { ...EMPTY_MAP, job: 'a job' } });
          else link.send({ t: 'redirect', to: this.leader });
        },
        onClose: (_, reason) => {
          if (reason === 'cut') return;
          this.closed++;
          for (const wake of this.waiting.splice(0)) wake();
        },
      },
    });
    onTestFinished(() => listener.close());
    this.address = `127.0.0.1:${listener.port}`;
    return this;
  }

  cut(): void {
    this.links.at(-1)!.close('cut');
  }
}

/** Connects, and records the log. */
async function uplinkTo(scheduler: string): Promise<EventLog> {
  const log = new EventLog();
  const uplink = await Uplink.open({
    scheduler,
    role: 'client',
    introduce: () => ({ t: 'attach' }),
    onWelcome: () => {},
    onMessage: () => {},
    onStale: () => {},
    log,
    connectTimeoutMs: 10_000,
  });
  onTestFinished(() => uplink.close());
  return log;
}

/** A program that listens and takes no connection: the kernel takes two, and answers no more. */
const FULL = `
const server = require('node:net').createServer().listen({ port: 0, host: '127.0.0.1', backlog: 1 }, () => {
  require('node:fs').writeSync(1, server.address().port + '\\n');
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
});
`;

/** Address of a machine that acknowledges nothing. */
async function silentAddress(): Promise<string> {
  const child = spawn(process.execPath, ['-e', FULL]);
  onTestFinished(() => void child.kill('SIGKILL'));
  const port = Number(await new Promise((resolve) => child.stdout.once('data', resolve)));
  for (let taken = 0; taken < 4; taken++) {
    const socket = connect(port, '127.0.0.1');
    socket.on('error', () => {});
    onTestFinished(() => void socket.destroy());
    await Promise.race([
      new Promise((resolve) => socket.once('connect', resolve)),
      new Promise((resolve) => setTimeout(resolve, 200)),
    ]);
  }
  return `127.0.0.1:${port}`;
}

describe('Uplink', () => {
  it('asks who leads again and again while the machine of the last leader is silent', async () => {
    const [silent, other] = [await silentAddress(), await new Scheduler().open()];
    await uplinkTo(`${other.address},${silent}`);
    // The other one stands by from now on, and knows of no leader but the silent one.
    other.leader = silent;
    other.cut();
    const began = performance.now();
    for (let asked = 0; asked < 5; asked++) await other.nextClosed();
    // With a second for each attempt to reach the silent one it would be 12 s.
    expect(performance.now() - began).toBeLessThan(8000);
  }, 30_000);

  it('looks for another leader when its own may be none, and keeps the link until there is one', async () => {
    const [first, second] = [await new Scheduler().open(), await new Scheduler().open()];
    second.leader = first.address;
    const log = await uplinkTo(`${first.address},${second.address}`);
    const doubt = () => first.links[0]!.send({ t: 'redirect', to: '' });
    for (let looks = 1; looks <= 3; looks++) {
      const looked = second.nextClosed();
      doubt();
      await looked;
      expect([first.links.length, first.closed, second.links.length]).toEqual([1, 0, looks]);
    }
    second.leader = undefined;
    const left = first.nextClosed();
    doubt();
    await left;
    expect([first.links.length, second.links.length, second.closed]).toEqual([1, 4, 3]);
    // The new link is watched as the old one was.
    const again = log.next('scheduler.disconnected');
    second.cut();
    await again;
    expect(log.events.filter(({ event }) => event === 'scheduler.disconnected').length).toBe(1);
  });

  it('has one connection, also after another scheduler has named the leader', async () => {
    const [known, leader] = [await new Scheduler().open(), await new Scheduler().open()];
    const log = await uplinkTo(known.address);
    known.leader = leader.address;
    const cuts = 5;
    for (let i = 0; i < cuts; i++) {
      const again = log.next('scheduler.reconnected');
      (i === 0 ? known : leader).cut();
      await again;
    }
    expect(known.links.length).toBe(1 + cuts);
    expect(leader.links.length).toBe(cuts);
    expect(leader.closed).toBe(0);
    expect(log.events.filter(({ event }) => event === 'scheduler.disconnected').length).toBe(cuts);
  });

  it('goes on connecting for its time when the clock of the machine is set', async () => {
    const scheduler = await new Scheduler().open();
    const clock = vi.spyOn(Date, 'now');
    onTestFinished(() => clock.mockRestore());
    // The first connection is closed before a welcome, and in that moment the clock goes on by an hour.
    scheduler.refuse = () => {
      const now = Date.now();
      clock.mockImplementation(() => now + 3_600_000);
    };
    await uplinkTo(scheduler.address);
    expect(scheduler.links.length).toBe(2);
  });
});
