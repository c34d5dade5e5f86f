/**
 * Machines that vanish, are parted or hear nobody: network namespaces, and the real programs in them. They
 * need Linux and root; elsewhere this file says so and is left out.
 */
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Lan, type LanRole } from '../../bench/common/lan.js';
import { whyNoMachines } from '../../bench/common/machines.js';
import { Requests } from '../../bench/vanish/requests.js';
import type { Client } from '../../src/client/client.js';
import { Dataset } from '../../src/client/dataset.js';
import { checkPushes } from '../../src/tools/audit.js';
import { CLI } from '../cli/support.js';

const why = whyNoMachines();
if (why !== undefined) process.stderr.write(`\nLEFT OUT: machines that vanish: ${why}\n\n`);

const HOLDS_RANGE = fileURLToPath(new URL('../fixtures/holds-range.mjs', import.meta.url));
/** A stopped process lives. */
const STOPPED_MS = 3000;
const POLL_MS = 50;

describe.runIf(why === undefined)('a job on machines of its own', () => {
  let lan: Lan;
  let client: Client;
  let requests: Requests;
  beforeAll(async () => {
    lan = await Lan.start({ ps: 5, code: '2+1', cliPath: CLI });
    client = await lan.connect({ audit: true });
    requests = await Requests.begin(client, 4096);
  }, 60_000);
  afterAll(() => lan?.close(), 60_000);

  const until = async (condition: () => boolean | Promise<boolean>): Promise<void> => {
    while (!(await condition())) await new Promise((resolve) => setTimeout(resolve, POLL_MS));
  };
  const idOf = (role: LanRole): number => client.clusterMap.nodes.find(({ name }) => name === role.name)!.id;
  const holds = (role: LanRole): boolean =>
    client.clusterMap.groups.some(({ data, sinks }) =>
      [...data, ...sinks].some(({ node }) => node === idOf(role)),
    );
  /** Redundant, nothing moves, everybody alive, and everybody holds something. */
  const isWhole = async (): Promise<boolean> => {
    const { redundancy, nodes, scaling } = await client.status();
    const moving = scaling.changes.some(({ state }) => state === 'running');
    return redundancy === 'full' && !moving && nodes.every(({ alive }) => alive) && lan.ps.every(holds);
  };
  const lost = () =>
    lan.events.filter(({ event }) => event === 'node.lost').map(({ node, reason }) => [node, reason]);
  const answered = (): Promise<number> => requests.longestWait(0);

  it.each([
    ['vanishes', (role: LanRole) => lan.machines.unplug(role.machine)],
    ['hears nobody', (role: LanRole) => lan.machines.block(role.machine, 'in')],
    ['is heard by nobody', (role: LanRole) => lan.machines.block(role.machine, 'out')],
  ])(
    'gives up a machine that %s, goes on, and gives it shards when it is back',
    async (_, fault) => {
      await until(isWhole);
      const before = lost().length;
      const [, victim] = lan.ps as [LanRole, LanRole];
      fault(victim);
      await until(() => !holds(victim));
      expect(lost().slice(before)).toEqual([[idOf(victim), 'vanished']]);
      await answered();
      lan.machines.plug(victim.machine);
      await lan.machines.clear(victim.machine);
      await until(isWhole);
      expect(lost()).toHaveLength(before + 1);
    },
    60_000,
  );

  it('does not give up a process that is stopped for 3 s, nor one that is cut off for a moment', async () => {
    await until(isWhole);
    const before = lost().length;
    const [stopped, , , cut] = lan.ps as [LanRole, LanRole, LanRole, LanRole];
    stopped.child.signal('SIGSTOP');
    lan.machines.part(cut.machine, lan.scheduler.machine);
    await new Promise((resolve) => setTimeout(resolve, STOPPED_MS));
    stopped.child.signal('SIGCONT');
    await lan.machines.clear(cut.machine);
    await answered();
    await until(isWhole);
    expect(lost()).toHaveLength(before);
  }, 60_000);

  it('gives up a machine that only the scheduler does not hear, because it is silent', async () => {
    await until(isWhole);
    const before = lost().length;
    const [, , cut] = lan.ps as [LanRole, LanRole, LanRole];
    lan.machines.part(cut.machine, lan.scheduler.machine);
    await until(() => lost().length > before);
    expect(lost().slice(before)).toEqual([[idOf(cut), 'silent']]);
    await lan.machines.clear(cut.machine);
    await until(isWhole);
  }, 60_000);

  it("gives a worker's range to another one when its machine vanishes", async () => {
    const files = [{ name: 'f', size: 100, rangeBytes: 100 }];
    const spec = { files, batch: 4, epochs: 1, seed: 1, shuffle: false, staleness: 0 };
    const worker = lan.run(process.execPath, [HOLDS_RANGE, lan.address, JSON.stringify(spec)]);
    try {
      const [said] = (await once(worker.process.stdout!, 'data')) as [Buffer];
      expect(said.toString()).toBe('has range 0\n');
      lan.machines.unplug(worker.machine);
      const lease = await (await Dataset.open(client, 'd', spec)).acquire(0);
      expect(lease?.range.number).toBe(0);
      expect(lan.events.map(({ event }) => event)).toContain('worker.lost');
    } finally {
      worker.process.kill('SIGKILL');
    }
  }, 20_000);

  it('has every push exactly once after all that', async () => {
    requests.stop();
    await answered();
    expect(requests.failed).toBeUndefined();
    const pushes = await checkPushes(client, [{ client: client.id, counts: client.pushCounts() }]);
    expect(pushes).toMatchObject({ lost: 0, duplicated: 0 });
  }, 60_000);
});
