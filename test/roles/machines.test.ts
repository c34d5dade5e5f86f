/**
 * Machines that vanish, are parted or hear nobody: network namespaces, and the real programs in them. They
 * need Linux and root; elsewhere this file says so and is left out.
 */
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Lan, type LanRole } from '../../bench/common/lan.js';
import { whyNoMachines } from '../../bench/common/machines.js';
import { Requests } from '../../bench/vanish/requests.js';
import type { Client } from '../../src/library/client/client.js';
import { Dataset } from '../../src/library/client/dataset.js';
import { type ClientCounts, checkPushes } from '../../src/library/tools/audit.js';
import { CLI } from '../cli/support.js';

const why = whyNoMachines();
if (why !== undefined) process.stderr.write(`\nLEFT OUT: machines that vanish: ${why}\n\n`);

const fixture = (name: string): string => fileURLToPath(new URL(`../fixtures/${name}`, import.meta.url));
const HOLDS_RANGE = fixture('holds-range.mjs');
const PUSHES = fixture('pushes.mjs');
/** A stopped process lives. */
const STOPPED_MS = 3000;
/** A silent node is given up after `silentMs` (5 s), but for a scheduler that is cut off itself. */
const LONG_MS = 7000;
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

  it("goes on while the scheduler's machine is away, and gives up nobody when it is back", async () => {
    await until(isWhole);
    const before = lost().length;
    lan.machines.unplug(lan.scheduler.machine);
    expect(await requests.longestWait(LONG_MS)).toBeLessThan(LONG_MS);
    lan.machines.plug(lan.scheduler.machine);
    // The scheduler decides again.
    await client.createTable({ name: 'later', dim: 1, optimizer: { kind: 'sgd', lr: 1 } });
    await until(isWhole);
    expect(lost()).toHaveLength(before);
    const [victim] = lan.ps as [LanRole];
    lan.machines.unplug(victim.machine);
    await until(() => !holds(victim));
    expect(lost().slice(before)).toEqual([[idOf(victim), 'vanished']]);
    lan.machines.plug(victim.machine);
    await answered();
    await until(isWhole);
  }, 60_000);

  it('takes each push of a client once whose machine vanishes in the middle and returns', async () => {
    const other = lan.run(process.execPath, [PUSHES, lan.address, 'rows', '10000', '64']);
    const said: string[] = [];
    const lines = createInterface({ input: other.process.stdout! }).on('line', (line) => said.push(line));
    try {
      await once(lines, 'line');
      lan.machines.unplug(other.machine);
      // Nobody else waits for it.
      expect(await requests.longestWait(STOPPED_MS)).toBeLessThan(STOPPED_MS);
      lan.machines.plug(other.machine);
      other.process.stdin!.write('enough\n');
      await once(lines, 'close');
    } finally {
      other.process.kill('SIGKILL');
    }
    expect(said).toEqual(['pushes', expect.any(String)]);
    const own = JSON.parse(said[1]!) as ClientCounts;
    expect(await checkPushes(client, [own])).toMatchObject({
      lost: 0,
      duplicated: 0,
    });
    expect(own.counts.some(({ acknowledged }) => acknowledged > 0)).toBe(true);
  }, 60_000);

  it('has every push exactly once after all that', async () => {
    requests.stop();
    await answered();
    expect(requests.failed).toBeUndefined();
    const pushes = await checkPushes(client, [{ client: client.id, counts: client.pushCounts() }]);
    expect(pushes).toMatchObject({ lost: 0, duplicated: 0 });
  }, 60_000);
});
