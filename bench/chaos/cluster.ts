/**
 * A cluster of real role processes, each in a place of its own. Where that is behind a proxy, peers reach a
 * PS only at the proxy's address, which it advertises, and everyone reaches a scheduler through that
 * scheduler's proxy, which survives it. Of several schedulers the one that leads is the one that faults hit.
 */
import { randomUUID } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { KintsugiError } from '../../src/common/errors.js';
import { Child } from '../../src/fleet/local/child.js';
import type { RoleEvent } from '../../src/fleet/local/events.js';
import { psName } from '../../src/fleet/local/processes.js';
import { parseAddress } from '../../src/net/address.js';
import type { ChaosPlace, ChaosPlaces } from './places.js';
import type { Secrets } from './secrets.js';

/** Schedulers that all stand by without a word from the store for so long: the store is not there. */
const STORE_MS = 4000;
const TAKEN = /^(replace sink|shard refused)/;

export interface ClusterOptions {
  ps: number;
  code: string;
  groups: number | undefined;
  recoveryRate: string | undefined;
  /** `--memory` of each PS; undefined: no limit. */
  memory: string | undefined;
  schedulers: number;
  /** URL of an etcd; undefined: the scheduler has a directory. */
  store: string | undefined;
  /** Place of checkpoints, and how they are made; undefined: none. */
  checkpoint: { url: string; every: string; barrier: boolean } | undefined;
  /** The checkpoint that the job begins with; undefined: it begins empty. */
  restore?: string | undefined;
  secrets: Secrets;
  places: ChaosPlaces;
  onEvent(event: RoleEvent, line: string): void;
  /** A PS ended by itself, in order: it was emptied and told to leave, or something is wrong. */
  onLeft(role: ChaosRole): void;
  /** A role ended by itself otherwise: never right. */
  onDeath(error: KintsugiError): void;
}

export interface ChaosRole {
  name: string;
  child: Child;
  place: ChaosPlace;
  /** Up and joined. */
  ready: boolean;
  suspended: boolean;
}

export class ChaosCluster {
  readonly roles = new Map<string, ChaosRole>();
  /** Place and address of each scheduler, by its name. */
  private readonly fronts = new Map<string, ChaosPlace & { advertise: string }>();
  private leader = '';
  private led: (() => void)[] = [];
  /** Why a scheduler does not reach the store. */
  private problem: string | undefined;
  /** Each run is a job of its own. */
  private readonly job = randomUUID();
  private readonly directory = mkdtempSync(join(tmpdir(), 'kintsugi-chaos-'));
  private stopping = false;
  /** Called when the scheduler has taken something from a living PS: members of groups lack. */
  onTaken: () => void = () => {};
  private readonly emergency = () => this.killAll();

  constructor(private readonly options: ClusterOptions) {
    process.on('exit', this.emergency);
  }

  /** Where everyone reaches the scheduler, whichever process it is. */
  get address(): string {
    return [...this.fronts.values()].map(({ advertise }) => advertise).join(',');
  }

  /** The scheduler that leads, or led last. */
  get scheduler(): ChaosRole {
    return this.role(this.leader);
  }

  /** Resolves when a scheduler begins to lead from now on. */
  nextLeader(): Promise<void> {
    return new Promise((resolve) => this.led.push(resolve));
  }

  async start(): Promise<void> {
    const { schedulers } = this.options;
    const names = Array.from({ length: schedulers }, (_, i) => (i === 0 ? 'scheduler' : `scheduler-${i}`));
    for (const name of names) this.fronts.set(name, await this.options.places.scheduler());
    const leads = this.nextLeader();
    for (const name of names) await this.startScheduler(name);
    await Promise.race([leads, this.storeMissing()]);
    await Promise.all(Array.from({ length: this.options.ps }, (_, index) => this.startPs(psName(index))));
  }

  /** @throws STORE_FAILED when no scheduler reaches the store in time */
  private async storeMissing(): Promise<void> {
    await pause(STORE_MS, undefined, { ref: false });
    if (this.problem === undefined) return new Promise(() => {});
    throw new KintsugiError('STORE_FAILED', `no scheduler reaches the store: ${this.problem}`);
  }

  async startScheduler(name: string): Promise<void> {
    const { ps, code, groups, store, checkpoint, restore } = this.options;
    const front = this.fronts.get(name)!;
    const shape = ['--ps', `${ps}`, '--code', code];
    if (groups !== undefined) shape.push('--groups', `${groups}`);
    if (checkpoint) shape.push('--checkpoint', checkpoint.url, '--every', checkpoint.every);
    if (checkpoint?.barrier) shape.push('--barrier');
    // A scheduler that finds a job in its store goes on with that one.
    if (restore !== undefined) shape.push('--restore', restore);
    const where =
      store === undefined
        ? ['--dir', join(this.directory, 'scheduler')]
        : ['--store', `${store}/${this.job}`, '--advertise', front.advertise];
    const args = ['scheduler', '--listen', front.listen, ...where, ...shape];
    const role = this.launch(name, args, front);
    const up = await role.child.event(store === undefined ? 'scheduler.ready' : 'scheduler.standby');
    front.aim(parseAddress(String(up.address)).port);
    role.ready = true;
  }

  async startPs(name: string): Promise<void> {
    const place = await this.options.places.ps(name);
    const args = ['ps', '--scheduler', this.address, '--connect-timeout', '60s', '--listen', place.listen];
    if (place.advertise !== undefined) args.push('--advertise', place.advertise);
    args.push('--name', name, '--host-label', `host-of-${name}`);
    const { recoveryRate, memory } = this.options;
    if (memory !== undefined) args.push('--memory', memory);
    if (recoveryRate !== undefined) args.push('--recovery-rate', recoveryRate);
    const role = this.launch(name, args, place);
    role.child.event('ps.listening').then(
      (event) => place.aim(Number(event.port)),
      () => {},
    );
    await role.child.event('ps.ready');
    role.ready = true;
  }

  private launch(name: string, args: string[], place: ChaosPlace): ChaosRole {
    if (this.stopping) {
      place.close();
      throw new KintsugiError('ABORTED', 'the run is ending');
    }
    const { onEvent, onLeft, onDeath } = this.options;
    const { tls, token, nodeToken } = this.options.secrets;
    if (tls) args.push('--tls-cert', tls.certFile, '--tls-key', tls.keyFile, '--tls-ca', tls.certFile);
    const env = { KINTSUGI_TOKEN: token, KINTSUGI_NODE_TOKEN: nodeToken };
    const child: Child = new Child({
      ...{ name, args, env, prefix: place.prefix },
      onEvent: (event, line) => {
        if (event.event === 'store.unreachable') this.problem = String(event.message);
        if (event.event === 'store.reached') this.problem = undefined;
        if (event.event === 'scheduler.ready') {
          this.leader = name;
          for (const resolve of this.led.splice(0)) resolve();
        }
        if (this.isTaken(event)) this.onTaken();
        onEvent(event, line);
      },
    });
    const role: ChaosRole = { name, child, place, ready: false, suspended: false };
    this.roles.set(name, role);
    void child.exited.then((exit) => {
      role.ready = false;
      this.disconnect(role);
      if (child.expected || this.stopping) return;
      if (this.fronts.has(name) || exit.code !== 0) return onDeath(child.deathOf(exit));
      this.roles.delete(name);
      this.options.places.left(name);
      onLeft(role);
    });
    return role;
  }

  /** The scheduler took a sink or a shard from a living PS, or gave it up or is about to. */
  private isTaken({ event, name, reason }: RoleEvent): boolean {
    if (event === 'map.durable') return TAKEN.test(String(reason));
    if (event !== 'node.lost' && event !== 'node.suspected') return false;
    const role = this.roles.get(String(name));
    return role?.ready === true && !role.suspended;
  }

  /** PS that are up and not suspended. */
  get running(): ChaosRole[] {
    return [...this.roles.values()].filter(
      (role) => !this.fronts.has(role.name) && role.ready && !role.suspended,
    );
  }

  /** PS that are up, or will be again. */
  get size(): number {
    return this.roles.size - this.fronts.size;
  }

  role(name: string): ChaosRole {
    return this.roles.get(name)!;
  }

  kill(name: string): void {
    const role = this.role(name);
    role.ready = false;
    role.child.kill();
    this.disconnect(role);
  }

  /** The role's process is gone, and so are its connections and its port. */
  private disconnect({ name, place, child }: ChaosRole): void {
    if (!this.fronts.has(name)) place.close();
    else if (this.roles.get(name)?.child === child) place.lose();
  }

  /** SIGSTOP: alive for its connections, and silent. */
  suspend(name: string): void {
    const role = this.role(name);
    role.suspended = true;
    role.child.signal('SIGSTOP');
  }

  resume(name: string): void {
    const role = this.roles.get(name);
    // The role had left the job before it could be stopped.
    if (!role) return;
    role.suspended = false;
    role.child.signal('SIGCONT');
  }

  async stop(): Promise<void> {
    this.stopping = true;
    for (const role of this.roles.values()) if (role.suspended) role.child.signal('SIGCONT');
    await Promise.all([...this.roles.values()].map((role) => role.child.stop()));
    for (const front of this.fronts.values()) front.close();
    rmSync(this.directory, { recursive: true, force: true });
    process.off('exit', this.emergency);
  }

  /** Every process at once; nothing of the job is left but its checkpoints. Their number. */
  killAll(): number {
    this.stopping = true;
    const alive = [...this.roles.values()].filter(({ child }) => child.alive);
    for (const { child } of alive) child.kill();
    return alive.length;
  }
}
