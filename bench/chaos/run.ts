/**
 * One run of a cluster of real processes under load: with faults and planned changes, or a quiet one that
 * repeats the pushes of another. It ends when all pushes are durable and the job is redundant again.
 */
import { appendFileSync } from 'node:fs';
import { describe, KintsugiError } from '../../src/common/errors.js';
import type { RoleEvent } from '../../src/fleet/local/events.js';
import { timeText } from '../../src/fleet/local/text.js';
import { type Client, connect } from '../../src/library/client/client.js';
import { checkPushes, type PushAudit } from '../../src/library/tools/audit.js';
import { type Digest, digest } from '../../src/library/tools/digest.js';
import { checkParity, type ParityCheck } from '../../src/library/tools/parity.js';
import { monotonicMs } from '../../src/net/log.js';
import type { PeerId } from '../../src/protocol/map.js';
import type { Machines } from '../common/machines.js';
import { addChanges, type ChangeCounts, ChaosChanges } from './changes.js';
import { LoadClient, type LoadDone } from './clients.js';
import { ChaosCluster } from './cluster.js';
import { Crashers } from './crashers.js';
import { ChaosFaults } from './faults.js';
import type { ChaosLoadOptions } from './load.js';
import type { Site } from './network-faults.js';
import type { ChaosOptions } from './options.js';
import { ChaosOverload, OVERLOADED_MEMORY, type OverloadCounts } from './overload.js';
import { pause } from './pause.js';
import { MachinePlaces, ProxiedPlaces } from './places.js';
import { createTables } from './pushes.js';
import { ChaosReplicas, type ReplicaFault } from './replicas.js';
import { type Restart, Restarts } from './restarts.js';
import { changedSince, type Held } from './restored.js';
import type { Secrets } from './secrets.js';
import type { StruckKind } from './struck.js';
import { ChaosTables } from './tables.js';

const CONNECT_MS = 60_000;
/** Without an acknowledgement for so long a client hangs. */
const HANG_MS = 60_000;
/** After the last fault the job must be whole again, and all pushes durable, within this time. */
const HEAL_MS = 120_000;
const POLL_MS = 200;

export interface ChaosRun {
  /** Load clients that came to their end, and the number of the first of them. */
  clients: LoadDone[];
  firstClient: number;
  /** Restored pushes of clients that were killed together with the job. */
  held: Held[];
  restarts: Restart[];
  pushes: PushAudit;
  parity: ParityCheck;
  digest: Digest;
  faults: Partial<Record<StruckKind, number>>;
  changes: ChangeCounts;
  /** Undefined: there were none. */
  replicas: Partial<Record<ReplicaFault, number>> | undefined;
  overload: OverloadCounts | undefined;
  wrong: string[];
  seconds: number;
}

export interface RunHow {
  /** The run that this one repeats; undefined: this is the one with faults. */
  repeat?: Pick<ChaosRun, 'clients' | 'firstClient' | 'held'>;
  /** Roles and clients are on these, each on its own; undefined: all are on this one. */
  machines?: Machines | undefined;
}

export class ChaosSchedule {
  private readonly abort = new AbortController();
  private readonly wrong: string[] = [];
  private readonly faults: ChaosRun['faults'] = {};
  private readonly changeCounts: ChangeCounts = {};
  /** Everything is killed now and then, and restored; undefined: it is not. */
  private readonly restarts: Restarts | undefined;
  private cluster: ChaosCluster;
  private loads: LoadClient[] = [];
  private firstClient: number;
  private crashed = 0;
  /** Machine or place of each client. */
  private readonly sites: Site[] = [];
  private crashers: Crashers | undefined;
  private client: Client | undefined;
  private changes: ChaosChanges | undefined;
  private replicas: ChaosReplicas | undefined;
  private overload: ChaosOverload | undefined;
  private readonly started = monotonicMs();

  constructor(
    private readonly options: ChaosOptions,
    private readonly secrets: Secrets,
    private readonly how: RunHow,
  ) {
    const { checkpoint, killAllPauseMs, seed } = options;
    if (checkpoint && !how.repeat)
      this.restarts = new Restarts(checkpoint.url, checkpoint.barrier, killAllPauseMs, seed + 2);
    this.firstClient = how.repeat?.firstClient ?? 0;
    this.cluster = this.newCluster();
  }

  /** `restore`: the checkpoint that its job begins with. */
  private newCluster(restore?: string): ChaosCluster {
    const { options, secrets, how } = this;
    const { ps, code, groups, recoveryRate, schedulers, store } = options;
    return new ChaosCluster({
      memory: options.overload > 0 ? OVERLOADED_MEMORY : undefined,
      ...{ ps, code, groups, recoveryRate, schedulers, store, secrets, restore },
      checkpoint: this.restarts && options.checkpoint,
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
      await this.replicas?.stop();
      await this.client?.close();
      await this.cluster.stop();
    }
  }

  private async story(): Promise<ChaosRun> {
    await this.cluster.start();
    await this.connect();
    await createTables(this.client!);
    if (this.options.replicas > 0 && !this.how.repeat) await this.startReplicas();
    if (this.how.repeat) await this.repeatHeld(this.how.repeat.held);
    await this.startLoads();
    if (!this.how.repeat) await this.chaos();
    const client = this.client!;
    const clients = await this.finish();
    await this.settled(client);
    for (const what of (await this.crashers?.check(client)) ?? []) this.violation(what);
    const { held = [], all: restarts = [] } = this.restarts ?? {};
    for (const what of await changedSince(client, held)) this.violation(what);
    const own = clients.map(({ id, counts }) => ({ client: id, counts }));
    const pushes = await checkPushes(client, own);
    const parity = await checkParity(client);
    return {
      ...{ clients, firstClient: this.firstClient, held, restarts, pushes, parity },
      digest: await digest(client),
      faults: this.faults,
      changes: this.changeCounts,
      replicas: this.replicas?.counts,
      overload: this.overload?.counts,
      wrong: this.wrong,
      seconds: (monotonicMs() - this.started) / 1000,
    };
  }

  private async connect(): Promise<void> {
    const { tls, token } = this.secrets;
    this.client = await connect(this.cluster.address, {
      connectTimeoutMs: CONNECT_MS,
      token: token || undefined,
      tls: tls && { caFile: tls.certFile },
    });
  }

  /** Starts each client as a process; resolves when all of them have durable pushes. */
  private async startLoads(): Promise<void> {
    this.loads = Array.from({ length: this.options.clients }, (_, index) => this.startLoad(index));
    await this.unlessEnded(Promise.all(this.loads.map((load) => load.running)));
  }

  /** Repeats the pushes of killed clients that checkpoints held, with a few clients at a time. */
  private async repeatHeld(held: readonly Held[]): Promise<void> {
    const waiting = held.filter(({ load }) => !load.options.crash).values();
    const repeats = Array.from({ length: this.options.clients }, async () => {
      for (const { load, counts } of waiting) {
        const again = { ...load.options, ...this.where, tellsAll: false, pauseMs: 0, held: counts };
        await this.loadClient(again, []).done;
      }
    });
    await Promise.all(repeats);
  }

  /** Address and certificate for every load client. */
  private get where(): Pick<ChaosLoadOptions, 'scheduler' | 'caFile'> {
    return { scheduler: this.cluster.address, caFile: this.secrets.tls?.certFile };
  }

  private startLoad(index: number): LoadClient {
    const { seed, sharedRows, pauseMs } = this.options;
    const own = { seed, client: this.firstClient + index, sharedRows, inFlight: 4, ...this.where };
    const { repeat } = this.how;
    const length = repeat ? { pushes: repeat.clients[index]!.pushes, pauseMs: 0 } : { pauseMs };
    const watched = { tellsAll: this.restarts !== undefined, replicas: this.replicas !== undefined };
    return this.loadClient({ ...own, ...length, ...watched }, this.site(`client-${index}`));
  }

  private loadClient(options: ChaosLoadOptions, prefix: readonly string[]): LoadClient {
    return new LoadClient(
      options,
      (what) => this.violation(what),
      (line) => this.log(line),
      this.secrets.token,
      prefix,
    );
  }

  private async startReplicas(): Promise<void> {
    const { options, secrets } = this;
    this.replicas = new ChaosReplicas({
      ...{ count: options.replicas, scheduler: this.cluster.address, seed: options.seed + 2, secrets },
      machines: this.how.machines,
      onLine: (line) => this.log(line),
      onFault: (kind, name) => {
        this.log(JSON.stringify({ mono: monotonicMs(), event: 'fault', kind, victims: [name] }));
        this.tell(`${kind} ${name}`);
      },
      onError: (error) => this.violation(describe(error)),
    });
    await this.replicas.start();
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

  private async chaos(): Promise<void> {
    const until = monotonicMs() + this.options.minutes * 60_000;
    for (let life = 0; ; life++) {
      const isKilled = await this.live(life, until);
      if (!isKilled) return;
      await this.startAgain();
    }
  }

  /** Faults and changes. True: everything is to be killed in the middle of them. */
  private async live(life: number, until: number): Promise<boolean> {
    const { options, abort } = this;
    const [client, { sharedRows, pauseMs }] = [this.client!, options];
    const seed = options.seed + life * 1000;
    /** Aborted just before every process is killed: from then on errors do not count. */
    const over = new AbortController();
    const onError = (error: Error) => {
      if (!over.signal.aborted) this.violation(describe(error));
    };
    const crashers = new Crashers(
      { seed: options.seed, sharedRows, pauseMs, inFlight: 4, ...this.where },
      (what) => this.violation(what),
      (line) => this.log(line),
      this.secrets.token,
      this.site('crashers'),
      this.crashed,
    );
    this.crashers = crashers;
    crashers.start();
    const { machines } = this.how;
    const faults = new ChaosFaults({
      network: machines && { machines, clients: this.sites },
      tell: (text) => this.tell(text),
      killClient: () => crashers.crash(),
      ...{ cluster: this.cluster, client, seed, pauseMs: options.faultPauseMs },
      onFault: (kind, victims, detail) => {
        this.log(JSON.stringify({ mono: monotonicMs(), event: 'fault', kind, victims, detail }));
        this.tell(`${kind} ${victims.join(', ')} ${detail}`);
      },
      onError,
    });
    // Restored shards have no redundancy yet.
    if (life > 0) faults.doubt();
    const changes = new ChaosChanges({
      ...{ cluster: this.cluster, client, seed: seed + 1, ps: options.ps, first: life === 0 },
      onChange: (kind, end, detail) => {
        this.log(JSON.stringify({ mono: monotonicMs(), event: 'change', kind, end, detail }));
        this.tell(`${kind} ${detail} ${end}`);
      },
      onError,
    });
    this.changes = changes;
    const timer = setInterval(() => this.lookForHangs(client), POLL_MS);
    const signal = AbortSignal.any([abort.signal, over.signal]);
    const onDrop = (name: string) => this.tell(`dropTable ${name}`);
    if (options.overload > 0)
      this.overload = new ChaosOverload({
        ...{ cluster: this.cluster, client, seed: seed + 4, scale: options.overload, onError },
        onAttack: (name, detail) => this.tell(`${name} ${detail}`),
      });
    const tables = new ChaosTables({ client, seed: seed + 3, onDrop, onError });
    const stories = [faults, changes, tables].map((each) => each.run(until, signal));
    for (const each of [this.replicas, this.overload]) if (each) stories.push(each.run(until, signal));
    const story = Promise.all(stories);
    const killed = this.restarts?.due().then(() => true) ?? new Promise<never>(() => {});
    const isKilled = await this.unlessEnded(Promise.race([story.then(() => false), killed]));
    clearInterval(timer);
    over.abort();
    this.crashed += crashers.dead.length + 1;
    for (const [kind, count] of Object.entries(faults.counts))
      this.faults[kind as StruckKind] = (this.faults[kind as StruckKind] ?? 0) + count;
    addChanges(this.changeCounts, changes.counts);
    if (!isKilled) await crashers.stop();
    return isKilled;
  }

  /** SIGKILL of every process; then the job is started again with its newest checkpoint. */
  private async startAgain(): Promise<void> {
    const restarts = this.restarts!;
    const killedAt = monotonicMs();
    this.tell(`killAll of ${this.cluster.killAll()} roles and all clients`);
    this.faults.killAll = (this.faults.killAll ?? 0) + 1;
    for (const load of this.loads) load.kill();
    this.crashers!.killAll();
    const gone = [...this.loads, ...this.crashers!.dead];
    this.loads = [];
    await Promise.all(gone.map((load) => load.gone));
    await this.client!.close();
    await this.cluster.stop();
    const newest = await restarts.newest();
    let again = 0;
    for (;;) {
      this.cluster = this.newCluster(`${this.options.checkpoint!.url}@${newest}`);
      const ready = this.cluster.start();
      const killed = restarts.killedAgain(ready);
      if (!killed) {
        await this.within(
          'the job was not restored',
          ready.then(() => this.connect()),
        );
        break;
      }
      again++;
      const isOver = ready.catch(() => {});
      await killed;
      this.tell(`killAll of ${this.cluster.killAll()} roles that are restored`);
      this.faults.killAll++;
      await isOver;
      await this.cluster.stop();
    }
    const wrong = await this.within(
      'what was restored could not be read',
      restarts.check(this.client!, newest, gone, again, killedAt),
    );
    for (const what of wrong) this.violation(what);
    const { seconds, acknowledged, lostAfterCheckpoint } = restarts.all.at(-1)!;
    this.tell(
      `restored checkpoint ${newest} in ${seconds.toFixed(1)} s: of ${acknowledged} acknowledged pushes ` +
        `${lostAfterCheckpoint} came after it`,
    );
    this.firstClient += this.options.clients;
    await this.startLoads();
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
        // A PS that was told to leave and still runs is not in the job any more.
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

  /** True: this PS holds a shard, or --groups is given: then there may be too few groups for every PS. */
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

  /** Keeps the first violation and ends the chaos: more faults would cover the tracks. */
  private violation(what: string): void {
    this.wrong.push(what);
    this.log(JSON.stringify({ mono: monotonicMs(), event: 'violation', what }));
    this.options.tell(`WRONG: ${what}`);
    this.abort.abort();
  }

  private onEvent(event: RoleEvent, line: string): void {
    this.restarts?.onEvent(event);
    this.log(line);
  }

  private log(line: string): void {
    if (this.options.log !== undefined) appendFileSync(this.options.log, `${line}\n`);
  }
}
