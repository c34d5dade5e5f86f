/**
 * One run of a cluster of real processes under load: with faults and planned changes, or a quiet one that
 * repeats the pushes of another. It ends when all pushes are durable and the job is redundant again.
 */
import { appendFileSync } from 'node:fs';
import { type Client, connect } from '../../src/client/client.js';
import { describe, KintsugiError } from '../../src/errors.js';
import type { RoleEvent } from '../../src/local/events.js';
import { timeText } from '../../src/local/text.js';
import type { PeerId } from '../../src/protocol/map.js';
import { monotonicMs } from '../../src/runtime/log.js';
import { checkPushes, type PushAudit } from '../../src/tools/audit.js';
import { type Digest, digest } from '../../src/tools/digest.js';
import { checkParity, type ParityCheck } from '../../src/tools/parity.js';
import type { Machines } from '../common/machines.js';
import { type ChangeCounts, Changes } from './changes.js';
import { LoadClient, type LoadDone } from './clients.js';
import { Cluster } from './cluster.js';
import { Crashers } from './crashers.js';
import { Faults } from './faults.js';
import type { Site } from './network-faults.js';
import type { ChaosOptions } from './options.js';
import { pause } from './pause.js';
import { MachinePlaces, ProxiedPlaces } from './places.js';
import { TABLES } from './pushes.js';
import type { Secrets } from './secrets.js';
import type { FaultKind } from './struck.js';

const CONNECT_MS = 60_000;
/** Without an acknowledgement for so long a client hangs. */
const HANG_MS = 60_000;
/** After the last fault the job must be whole again, and all pushes durable, within this time. */
const HEAL_MS = 120_000;
const POLL_MS = 200;

export interface ChaosRun {
  clients: LoadDone[];
  pushes: PushAudit;
  parity: ParityCheck;
  digest: Digest;
  faults: Partial<Record<FaultKind, number>>;
  changes: ChangeCounts;
  wrong: string[];
  seconds: number;
}

export interface RunHow {
  /** Pushes of each client in the run that this one repeats; undefined: this is the one with faults. */
  repeat?: readonly number[];
  /** Roles and clients are on these, each on its own; undefined: all are on this one. */
  machines?: Machines | undefined;
}

export class Run {
  private readonly abort = new AbortController();
  private readonly wrong: string[] = [];
  private readonly cluster: Cluster;
  private loads: LoadClient[] = [];
  /** Of the clients. */
  private readonly sites: Site[] = [];
  private crashers: Crashers | undefined;
  private client: Client | undefined;
  private changes: Changes | undefined;
  private readonly started = monotonicMs();

  constructor(
    private readonly options: ChaosOptions,
    private readonly secrets: Secrets,
    private readonly how: RunHow,
  ) {
    this.cluster = new Cluster({
      ps: options.ps,
      code: options.code,
      groups: options.groups,
      recoveryRate: options.recoveryRate,
      schedulers: options.schedulers,
      store: options.store,
      secrets,
      places: how.machines ? new MachinePlaces(how.machines) : new ProxiedPlaces(),
      onEvent: (event, line) => this.onEvent(event, line),
      onLeft: (role) => {
        if (this.changes) this.changes.left(role);
        else this.violation(`${role.name} has left, and nobody had asked for that`);
      },
      onDeath: (error) => this.violation(describe(error)),
    });
  }

  async run(): Promise<ChaosRun> {
    try {
      return await this.story();
    } catch (error) {
      // The first violation is the one to look at; what ended the run may only follow from it.
      if (this.wrong.length === 0) throw error;
      throw new KintsugiError('INTERNAL', `${this.wrong.slice(0, 5).join('; ')}; then: ${describe(error)}`);
    } finally {
      for (const load of this.loads) load.kill();
      await this.crashers?.stop();
      await this.client?.close();
      await this.cluster.stop();
    }
  }

  private async story(): Promise<ChaosRun> {
    const { options, cluster } = this;
    await cluster.start();
    const { tls, token } = this.secrets;
    this.client = await connect(cluster.address, {
      connectTimeoutMs: CONNECT_MS,
      token: token || undefined,
      tls: tls && { caFile: tls.certFile },
    });
    await this.client.createTables(TABLES);
    this.loads = Array.from({ length: options.clients }, (_, index) => this.startLoad(index));
    await this.unlessEnded(Promise.all(this.loads.map((load) => load.running)));
    const faults = this.how.repeat ? {} : await this.chaos(this.client);
    const clients = await this.finish();
    await this.settled(this.client);
    for (const what of (await this.crashers?.check(this.client)) ?? []) this.violation(what);
    const counts = clients.map(({ id, counts: own }) => ({ client: id, counts: own }));
    const pushes = await checkPushes(this.client, counts);
    const parity = await checkParity(this.client);
    return {
      clients,
      pushes,
      parity,
      digest: await digest(this.client),
      faults,
      changes: this.changes?.counts ?? {},
      wrong: this.wrong,
      seconds: (monotonicMs() - this.started) / 1000,
    };
  }

  private startLoad(index: number): LoadClient {
    const { seed, sharedRows, pauseMs } = this.options;
    const { tls, token } = this.secrets;
    const caFile = tls?.certFile;
    const own = { scheduler: this.cluster.address, caFile, seed, client: index, sharedRows, inFlight: 4 };
    const repeat = this.how.repeat ? { pushes: this.how.repeat[index]!, pauseMs: 0 } : { pauseMs };
    return new LoadClient(
      { ...own, ...repeat },
      (what) => this.violation(what),
      (line) => this.log(line),
      token,
      this.site(`client-${index}`),
    );
  }

  /** A place for a client: what its command line begins with. */
  private site(name: string): string[] {
    const { machines } = this.how;
    if (!machines) return [];
    const machine = machines.add();
    this.sites.push({ name, machine });
    return machines.on(machine);
  }

  /** A client that ends before it was told to is never right. */
  private unlessEnded<T>(promise: Promise<T>): Promise<T> {
    const early = this.loads.map((load) => load.done.then(() => new Promise<never>(() => {})));
    return Promise.race([promise, ...early]);
  }

  private async chaos(client: Client): Promise<Partial<Record<FaultKind, number>>> {
    const { options, abort } = this;
    const { seed, sharedRows, pauseMs } = options;
    const { tls, token } = this.secrets;
    const caFile = tls?.certFile;
    const load = { scheduler: this.cluster.address, caFile, seed, sharedRows, pauseMs, inFlight: 4 };
    this.crashers = new Crashers(
      load,
      (what) => this.violation(what),
      (line) => this.log(line),
      token,
      this.site('crashers'),
    );
    this.crashers.start();
    const { machines } = this.how;
    const faults = new Faults({
      network: machines && { machines, clients: this.sites },
      tell: (text) => this.tell(text),
      killClient: () => this.crashers?.crash(),
      cluster: this.cluster,
      client,
      seed: options.seed,
      pauseMs: options.faultPauseMs,
      onFault: (kind, victims, detail) => {
        this.log(JSON.stringify({ mono: monotonicMs(), event: 'fault', kind, victims, detail }));
        this.tell(`${kind} ${victims.join(', ')} ${detail}`);
      },
      onError: (error) => this.violation(describe(error)),
    });
    this.changes = new Changes({
      ...{ cluster: this.cluster, client, seed: options.seed + 1, ps: options.ps },
      onChange: (kind, end, detail) => {
        this.log(JSON.stringify({ mono: monotonicMs(), event: 'change', kind, end, detail }));
        this.tell(`${kind} ${detail} ${end}`);
      },
      onError: (error) => this.violation(describe(error)),
    });
    const timer = setInterval(() => this.lookForHangs(client), POLL_MS);
    const until = monotonicMs() + options.minutes * 60_000;
    const story = [faults.run(until, abort.signal), this.changes.run(until, abort.signal)];
    await this.unlessEnded(Promise.all(story));
    clearInterval(timer);
    await this.crashers.stop();
    return faults.counts;
  }

  private tell(text: string): void {
    const seconds = ((monotonicMs() - this.started) / 1000).toFixed(1).padStart(6);
    this.options.tell(`${seconds} s  ${text.trimEnd()}`);
  }

  private hanging = false;

  private lookForHangs(client: Client): void {
    const load = this.loads.find((each) => each.stalledMs > HANG_MS);
    if (!load || this.hanging) return;
    this.hanging = true;
    this.violation(`client ${load.options.client} made no progress for ${timeText(load.stalledMs)}`);
    void client
      .status()
      .then((status) => this.log(JSON.stringify({ event: 'hang', status, map: client.clusterMap })));
  }

  private async finish(): Promise<LoadDone[]> {
    if (this.how.repeat) return Promise.all(this.loads.map((load) => load.done));
    for (const load of this.loads) load.stop();
    return this.within(
      'the pushes under way did not become durable',
      Promise.all(this.loads.map((l) => l.done)),
    );
  }

  private async settled(client: Client): Promise<void> {
    const wait = async () => {
      for (;;) {
        await this.changes?.settled();
        const status = await client.status();
        const changing = status.scaling.changes.some((change) => change.state === 'running');
        // One that was told to leave and has not ended yet is none of the job's.
        const leaving = this.cluster.running.some(
          ({ name }) => !status.nodes.some((node) => node.name === name),
        );
        const all = status.nodes.every(({ id, alive }) => alive && this.hasShards(client, id));
        if (status.redundancy === 'full' && !changing && !leaving && all) return;
        this.log(JSON.stringify({ mono: monotonicMs(), event: 'settling', reasons: status.reasons }));
        await pause(POLL_MS);
      }
    };
    await this.within('the job did not become redundant again', wait());
  }

  /** Who comes back is a newcomer, and gets shards as one. Where there are few groups some have none. */
  private hasShards({ clusterMap }: Client, id: PeerId): boolean {
    if (this.options.groups !== undefined) return true;
    return clusterMap.groups.some(({ data, sinks }) => [...data, ...sinks].some(({ node }) => node === id));
  }

  private async within<T>(what: string, promise: Promise<T>): Promise<T> {
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<never>((_, reject) => {
      timer = setTimeout(() => {
        this.log(JSON.stringify({ event: 'hang', what, map: this.client?.clusterMap }));
        reject(new KintsugiError('TIMEOUT', `${what} within ${timeText(HEAL_MS)}`));
      }, HEAL_MS);
    });
    try {
      return await Promise.race([promise, late]);
    } finally {
      clearTimeout(timer);
    }
  }

  /** The first one ends the chaos: what follows would only cover the tracks. */
  private violation(what: string): void {
    this.wrong.push(what);
    this.log(JSON.stringify({ mono: monotonicMs(), event: 'violation', what }));
    this.options.tell(`WRONG: ${what}`);
    this.abort.abort();
  }

  private onEvent(_: RoleEvent, line: string): void {
    this.log(line);
  }

  private log(line: string): void {
    if (this.options.log !== undefined) appendFileSync(this.options.log, `${line}\n`);
  }
}
