/**
 * More machines that vanish than the code restores, and the machine of the scheduler that leads: network
 * namespaces, and the real programs in them. They need Linux and root, and some need etcd.
 */
import { describe, expect, it, onTestFinished } from 'vitest';
import { Lan, type LanOptions, type LanRole } from '../../bench/common/lan.js';
import { whyNoMachines } from '../../bench/common/machines.js';
import { Requests } from '../../bench/vanish/requests.js';
import type { Client } from '../../src/library/client/client.js';
import { checkPushes } from '../../src/library/tools/audit.js';
import { CLI } from '../cli/support.js';
import { Etcd, hasEtcd } from '../stores/decisions/etcd-server.js';

const why = whyNoMachines();
if (why !== undefined) process.stderr.write(`\nLEFT OUT: machines that vanish together: ${why}\n\n`);

const POLL_MS = 50;
/** Links to a machine that vanished are abandoned after 2 s, and its sinks are reported after 3 s. */
const ABANDONED_MS = 4500;
/** Nobody is given up for silence alone. */
const PATIENT = ['--limit', 'silentMs=120000'];

async function until(condition: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await condition())) await new Promise((resolve) => setTimeout(resolve, POLL_MS));
}

class Job {
  private constructor(
    readonly lan: Lan,
    readonly client: Client,
    readonly requests: Requests,
  ) {}

  static async start(options: Partial<LanOptions>): Promise<Job> {
    const lan = await Lan.start({ ps: 5, code: '2+1', cliPath: CLI, ...options });
    onTestFinished(() => lan.close());
    const client = await lan.connect({ audit: true });
    return new Job(lan, client, await Requests.begin(client, 2048));
  }

  idOf(role: LanRole): number {
    return this.client.clusterMap.nodes.find(({ name }) => name === role.name)!.id;
  }

  async isWhole(): Promise<boolean> {
    const { redundancy, nodes, scaling } = await this.client.status();
    const moving = scaling.changes.some(({ state }) => state === 'running');
    return redundancy === 'full' && !moving && nodes.every(({ alive }) => alive);
  }

  get lost(): unknown[] {
    return this.lan.events
      .filter(({ event }) => event === 'node.lost')
      .map(({ node, reason }) => [node, reason]);
  }

  async isExact(): Promise<void> {
    this.requests.stop();
    await this.requests.longestWait(0);
    expect(this.requests.failed).toBeUndefined();
    const own = { client: this.client.id, counts: this.client.pushCounts() };
    expect(await checkPushes(this.client, [own])).toMatchObject({ lost: 0, duplicated: 0 });
  }
}

describe.runIf(why === undefined)('machines that vanish together', () => {
  it('more than the code restores: when one is back, the other is known to be gone', async () => {
    const job = await Job.start({ scheduler: PATIENT });
    const { machines } = job.lan;
    await until(() => job.isWhole());
    const [one, other] = job.lan.ps as [LanRole, LanRole];
    machines.unplug(one.machine);
    machines.unplug(other.machine);
    await new Promise((resolve) => setTimeout(resolve, ABANDONED_MS));
    expect(job.lost).toEqual([]);
    machines.plug(one.machine);
    await until(() => job.lost.length > 0);
    expect(job.lost).toEqual([[job.idOf(other), 'vanished']]);
    machines.plug(other.machine);
    await job.isExact();
    await until(() => job.isWhole());
  }, 90_000);

  it.runIf(hasEtcd)(
    'the scheduler that leads: another one leads, and everybody follows it',
    async () => {
      const store = async (host: string): Promise<string> => (await Etcd.start(undefined, host)).url();
      const job = await Job.start({ several: { schedulers: 3, store } });
      const { lan } = job;
      await until(() => job.isWhole());
      const leaders = (): string[] =>
        lan.events.filter(({ event }) => event === 'scheduler.ready').map(({ address }) => String(address));
      const [first] = leaders();
      const leader = lan.schedulers.find(({ machine }) => first!.startsWith(`${machine}:`))!;
      lan.machines.unplug(leader.machine);
      await until(() => leaders().length > 1);
      expect(leaders()[1]).not.toBe(first);
      await job.client.createTable({ name: 'later', dim: 1, optimizer: { kind: 'sgd', lr: 1 } });
      await until(() => job.isWhole());
      expect(job.lost).toEqual([]);
      const [victim] = lan.ps as [LanRole];
      lan.machines.unplug(victim.machine);
      await until(() => job.lost.length > 0);
      expect(job.lost).toEqual([[job.idOf(victim), 'vanished']]);
      lan.machines.plug(victim.machine);
      // Back on the network, the first one can write nothing more, and stands by.
      lan.machines.plug(leader.machine);
      await until(() => lan.events.some(({ event }) => event === 'scheduler.deposed'));
      await job.isExact();
      await until(() => job.isWhole());
    },
    90_000,
  );
});
