/** A job whose roles run on machines that can vanish, one machine each. */
import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Child } from '../../src/fleet/local/child.js';
import type { RoleEvent } from '../../src/fleet/local/events.js';
import { psName } from '../../src/fleet/local/processes.js';
import { type Client, type ConnectOptions, connect } from '../../src/library/client/client.js';
import { Machines } from './machines.js';

const CONNECT_MS = 60_000;
/** Token of the job: roles that listen at other addresses than loopback ask for one. */
const TOKEN = 'of machines that can vanish';
const ENV = { KINTSUGI_TOKEN: TOKEN };

export interface LanOptions {
  ps: number;
  code: string;
  /** Further arguments of the scheduler. */
  scheduler?: readonly string[];
  /** Several schedulers, and the etcd that they use: its URL, by the address of this host on the network. */
  several?: { schedulers: number; store: (host: string) => Promise<string> };
  onEvent?: (event: RoleEvent, line: string) => void;
  /** As of `Child`. */
  cliPath?: string | undefined;
}

export interface LanRole {
  name: string;
  machine: string;
  child: Child;
}

export class Lan {
  readonly machines = new Machines();
  readonly ps: LanRole[] = [];
  readonly events: RoleEvent[] = [];
  /** One, or several of which one leads. */
  readonly schedulers: LanRole[] = [];
  address = '';
  private readonly directory = mkdtempSync(join(tmpdir(), 'kintsugi-lan-'));
  private readonly clients: Client[] = [];
  private readonly emergency = () => this.killAll();

  private constructor(private readonly options: LanOptions) {
    process.on('exit', this.emergency);
  }

  static async start(options: LanOptions): Promise<Lan> {
    const lan = new Lan(options);
    try {
      await lan.open();
      return lan;
    } catch (error) {
      await lan.close();
      throw error;
    }
  }

  get scheduler(): LanRole {
    return this.schedulers[0]!;
  }

  private async open(): Promise<void> {
    const { ps, several } = this.options;
    const url = await several?.store(this.machines.host);
    const where = url === undefined ? ['--dir', this.directory] : ['--store', url];
    const names = [
      'scheduler',
      ...Array.from({ length: (several?.schedulers ?? 1) - 1 }, (_, i) => `s-${i + 1}`),
    ];
    const ready = names.map((name) => this.startScheduler(name, where).child);
    const up = several ? 'scheduler.standby' : 'scheduler.ready';
    const [addresses] = await Promise.all([
      Promise.all(ready.map((child) => child.event(up))),
      Promise.any(ready.map((child) => child.event('scheduler.ready'))),
    ]);
    this.address = addresses.map(({ address }) => String(address)).join(',');
    await Promise.all(Array.from({ length: ps }, (_, index) => this.startPs(psName(index))));
  }

  /** Starts a scheduler and does not wait until it is up. `where`: flags for its state. */
  private startScheduler(name: string, where: readonly string[]): LanRole {
    const { ps, code, scheduler = [] } = this.options;
    const args = ['scheduler', ...where, '--ps', `${ps}`, '--code', code, ...scheduler];
    const role = this.launch(name, this.machines.add(), args);
    this.schedulers.push(role);
    return role;
  }

  /** A PS on a machine of its own. */
  async startPs(name: string): Promise<LanRole> {
    const args = ['ps', '--scheduler', this.address, '--connect-timeout', '60s', '--name', name];
    const role = this.launch(name, this.machines.add(), [...args, '--host-label', `host-of-${name}`]);
    await role.child.event('ps.ready');
    this.ps.push(role);
    return role;
  }

  private launch(name: string, machine: string, args: string[]): LanRole {
    const child = new Child({
      name,
      prefix: this.machines.on(machine),
      args: [...args, '--listen', `${machine}:0`],
      env: ENV,
      cliPath: this.options.cliPath,
      onEvent: (event, line) => {
        this.events.push(event);
        this.options.onEvent?.(event, line);
      },
    });
    return { name, machine, child };
  }

  /** Any program, on a machine of its own. It is for the caller to end it. */
  run(program: string, args: readonly string[]): { machine: string; process: ChildProcess } {
    const machine = this.machines.add();
    const [first, ...rest] = [...this.machines.on(machine), program, ...args];
    const stdio = ['pipe', 'pipe', 'inherit'] as const;
    return { machine, process: spawn(first!, rest, { stdio: [...stdio], env: { ...process.env, ...ENV } }) };
  }

  async connect(options: ConnectOptions = {}): Promise<Client> {
    const client = await connect(this.address, { connectTimeoutMs: CONNECT_MS, token: TOKEN, ...options });
    this.clients.push(client);
    return client;
  }

  async close(): Promise<void> {
    for (const client of this.clients) await client.close();
    const roles = [...this.ps, ...this.schedulers];
    for (const { child } of roles) if (child.alive) child.kill();
    await Promise.all(roles.map(({ child }) => child.exited));
    this.machines.remove();
    rmSync(this.directory, { recursive: true, force: true });
    process.off('exit', this.emergency);
  }

  private killAll(): void {
    for (const { child } of [...this.ps, ...this.schedulers]) if (child.alive) child.kill();
  }
}
