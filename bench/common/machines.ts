/**
 * Machines that can vanish: network namespaces of this one, each behind a cable of its own to a common
 * switch, to which this process is connected, too. A cable that is pulled loses what is sent, and resets
 * nothing. Needs Linux, root, and the programs `ip` and `iptables`.
 */
import { type ChildProcess, execFileSync, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { KintsugiError } from '../../src/common/errors.js';
import { delayBetween, whyNoDelay } from './delay.js';

/** Why there can be no such machines here; undefined: there can. */
export function whyNoMachines(): string | undefined {
  if (process.platform !== 'linux') return 'network namespaces are a thing of Linux';
  if (process.getuid?.() !== 0) return 'network namespaces need root';
  for (const program of ['ip', 'iptables'])
    if (spawnSync(program, ['-V']).error) return `the program "${program}" is missing`;
  const name = `kt${process.pid}try`;
  const tried = spawnSync('ip', ['netns', 'add', name]);
  if (tried.status !== 0) return `no network namespace can be made: ${tried.stderr.toString().trim()}`;
  spawnSync('ip', ['netns', 'del', name]);
  return undefined;
}

const run = (...args: string[]): void => {
  try {
    execFileSync('ip', args, { stdio: 'pipe' });
  } catch (error) {
    throw new KintsugiError('INTERNAL', `ip ${args.join(' ')}: ${(error as Error).message}`);
  }
};

/** Delay of packets from a slow machine. */
const SLOW_DELAY_MS = 200;
/** Share of the packets to and from a slow machine that is lost. */
const LOST = 0.05;
/** Numbers of machines begin above these addresses. */
const FIRST_NUMBER = 10;
const MAX_MACHINES = 240;

const SIGNALS = ['SIGINT', 'SIGTERM'] as const;
/** Exit code that shells give to a program that was interrupted. */
const INTERRUPTED = 130;

export type MachineWay = 'in' | 'out';

let networks = 0;

export class Machines {
  /** Prefix of the names of all namespaces and devices of these machines. */
  readonly prefix: string;
  private readonly subnet: string;
  private count = 0;
  /** Programs that delay slow machines, by the number of the machine. */
  private readonly delays = new Map<number, ChildProcess>();
  private readonly emergency = () => this.remove();
  /** Exits, so that this and all other listeners of `exit` clean up. */
  private readonly interrupted = () => process.exit(INTERRUPTED);

  constructor() {
    const number = networks++;
    this.prefix = `kt${process.pid.toString(36)}${number}`;
    // 40 networks of a process differ, and so do the networks of 256 consecutive process ids.
    this.subnet = `10.${200 + (number % 40)}.${process.pid % 256}`;
    run('netns', 'add', `${this.prefix}s`);
    process.on('exit', this.emergency);
    for (const signal of SIGNALS) process.on(signal, this.interrupted);
    this.switch('link', 'add', 'br0', 'type', 'bridge');
    this.switch('link', 'set', 'br0', 'up');
    run('link', 'add', `${this.prefix}h`, 'type', 'veth', 'peer', 'name', 'host', 'netns', `${this.prefix}s`);
    this.switch('link', 'set', 'host', 'master', 'br0', 'up');
    run('addr', 'add', `${this.subnet}.1/24`, 'dev', `${this.prefix}h`);
    run('link', 'set', `${this.prefix}h`, 'up');
  }

  private switch(...args: string[]): void {
    run('-n', `${this.prefix}s`, ...args);
  }

  private get common(): string[] {
    return ['ip', 'netns', 'exec', `${this.prefix}s`];
  }

  /** Address of this process for the machines, and their gateway to the other addresses of this host. */
  get host(): string {
    return `${this.subnet}.1`;
  }

  /** Addresses of all machines that there can be. */
  get addresses(): string[] {
    return Array.from({ length: MAX_MACHINES }, (_, i) => this.addressOf(i + 1));
  }

  private addressOf(number: number): string {
    return `${this.subnet}.${FIRST_NUMBER + number}`;
  }

  /** A new machine, by its address. Names of machines are their addresses. */
  add(): string {
    if (this.count === MAX_MACHINES) throw new KintsugiError('LIMIT', `${MAX_MACHINES} machines at most`);
    const number = ++this.count;
    const space = `${this.prefix}n${number}`;
    const address = this.addressOf(number);
    run('netns', 'add', space);
    this.switch('link', 'add', `c${number}`, 'type', 'veth', 'peer', 'name', 'eth0', 'netns', space);
    this.switch('link', 'set', `c${number}`, 'master', 'br0', 'up');
    run('-n', space, 'link', 'set', 'lo', 'up');
    run('-n', space, 'addr', 'add', `${address}/24`, 'dev', 'eth0');
    run('-n', space, 'link', 'set', 'eth0', 'up');
    run('-n', space, 'route', 'add', 'default', 'via', this.host);
    return address;
  }

  private spaceOf(address: string): string {
    return `${this.prefix}n${this.numberOf(address)}`;
  }

  private numberOf(address: string): number {
    return Number(address.slice(address.lastIndexOf('.') + 1)) - FIRST_NUMBER;
  }

  /** Words before a program on the command line that run it on the machine. */
  on(address: string): string[] {
    return ['ip', 'netns', 'exec', this.spaceOf(address)];
  }

  /** The machine is off the network, and nobody is told. */
  unplug(address: string): void {
    this.switch('link', 'set', `c${this.numberOf(address)}`, 'down');
  }

  plug(address: string): void {
    this.switch('link', 'set', `c${this.numberOf(address)}`, 'up');
  }

  private filter(address: string, ...rule: string[]): void {
    const [program, ...args] = [...this.on(address), 'iptables', '-w', ...rule];
    execFileSync(program!, args, { stdio: 'pipe' });
  }

  /** Drops the packets between the two machines, and no others. */
  part(address: string, other: string): void {
    this.filter(address, '-A', 'INPUT', '-s', other, '-j', 'DROP');
    this.filter(address, '-A', 'OUTPUT', '-d', other, '-j', 'DROP');
  }

  /** Drops all packets to the machine, or all from it. */
  block(address: string, way: MachineWay): void {
    this.filter(address, '-A', way === 'in' ? 'INPUT' : 'OUTPUT', '-j', 'DROP');
  }

  /** All traffic passes again, and at full speed. A cable that was pulled stays so. */
  async clear(address: string): Promise<void> {
    this.filter(address, '-F');
    const number = this.numberOf(address);
    const delay = this.delays.get(number);
    if (!delay) {
      spawnSync('ip', ['netns', 'exec', this.spaceOf(address), 'tc', 'qdisc', 'del', 'dev', 'eth0', 'root']);
      return;
    }
    this.delays.delete(number);
    this.switch('link', 'set', `c${number}`, 'master', 'br0');
    const ended = once(delay, 'close');
    delay.kill('SIGKILL');
    await ended;
    this.switch('link', 'del', `br${number}`);
  }

  /**
   * Drops one of twenty packets in each direction, and delays those that the machine sends by 200 ms: by the
   * kernel's netem where there is that, else by a program. Where neither can be, packets are lost only, and
   * this resolves to the reason.
   */
  async slow(address: string): Promise<string | undefined> {
    const chance = ['-m', 'statistic', '--mode', 'random', '--probability', `${LOST}`];
    for (const chain of ['INPUT', 'OUTPUT']) this.filter(address, '-A', chain, ...chance, '-j', 'DROP');
    const netem = ['tc', 'qdisc', 'add', 'dev', 'eth0', 'root', 'netem', 'delay', `${SLOW_DELAY_MS}ms`];
    const delayed = spawnSync('ip', ['netns', 'exec', this.spaceOf(address), ...netem]);
    if (delayed.status === 0) return undefined;
    const why = whyNoDelay();
    if (why === undefined) await this.delay(this.numberOf(address));
    return why;
  }

  /** The program stands between the common switch and a switch of the machine's own. */
  private async delay(number: number): Promise<void> {
    const [own, near, far] = [`br${number}`, `n${number}`, `f${number}`];
    this.delays.set(number, await delayBetween(this.common, near, far, SLOW_DELAY_MS));
    this.switch('link', 'add', own, 'type', 'bridge');
    this.switch('link', 'set', own, 'up');
    this.switch('link', 'set', near, 'master', own, 'up');
    this.switch('link', 'set', far, 'master', 'br0', 'up');
    this.switch('link', 'set', `c${number}`, 'master', own);
  }

  /** Removes all of it. What runs on the machines loses its network; it is not ended. */
  remove(): void {
    process.off('exit', this.emergency);
    for (const signal of SIGNALS) process.off(signal, this.interrupted);
    for (const delay of this.delays.values()) delay.kill('SIGKILL');
    const spaces = Array.from({ length: this.count }, (_, i) => `${this.prefix}n${i + 1}`);
    for (const space of [...spaces, `${this.prefix}s`]) spawnSync('ip', ['netns', 'del', space]);
    spawnSync('ip', ['link', 'del', `${this.prefix}h`]);
  }
}
