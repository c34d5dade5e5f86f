/**
 * Machines that can vanish: network namespaces of this one, each behind a cable of its own to a common
 * switch, to which this process is connected, too. A cable that is pulled loses what is sent, and resets
 * nothing. Needs Linux, root, and the programs `ip` and `iptables`.
 */
import { execFileSync, spawnSync } from 'node:child_process';
import { KintsugiError } from '../../src/errors.js';

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

/** Of messages to and from a slow machine. */
const SLOW_DELAY = '200ms';
const LOST = 0.05;

export type Way = 'in' | 'out';

let networks = 0;

export class Machines {
  private readonly prefix: string;
  private readonly subnet: string;
  private count = 0;
  private readonly emergency = () => this.remove();

  constructor() {
    const number = networks++;
    this.prefix = `kt${process.pid.toString(36)}${number}`;
    // Of 256 networks of this process, and of many processes.
    this.subnet = `10.${200 + (number % 40)}.${process.pid % 256}`;
    run('netns', 'add', `${this.prefix}s`);
    process.on('exit', this.emergency);
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

  /** A new machine, by its address. Names of machines are their addresses. */
  add(): string {
    const number = ++this.count;
    const space = `${this.prefix}n${number}`;
    const address = `${this.subnet}.${10 + number}`;
    run('netns', 'add', space);
    this.switch('link', 'add', `c${number}`, 'type', 'veth', 'peer', 'name', 'eth0', 'netns', space);
    this.switch('link', 'set', `c${number}`, 'master', 'br0', 'up');
    run('-n', space, 'link', 'set', 'lo', 'up');
    run('-n', space, 'addr', 'add', `${address}/24`, 'dev', 'eth0');
    run('-n', space, 'link', 'set', 'eth0', 'up');
    return address;
  }

  private spaceOf(address: string): string {
    return `${this.prefix}n${this.numberOf(address)}`;
  }

  private numberOf(address: string): number {
    return Number(address.slice(address.lastIndexOf('.') + 1)) - 10;
  }

  /** What a command line begins with that is to run on a machine. */
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

  /** Nothing passes between the two, and all else does. */
  part(address: string, other: string): void {
    this.filter(address, '-A', 'INPUT', '-s', other, '-j', 'DROP');
    this.filter(address, '-A', 'OUTPUT', '-d', other, '-j', 'DROP');
  }

  /** Nothing gets in any more, or nothing out. */
  block(address: string, way: Way): void {
    this.filter(address, '-A', way === 'in' ? 'INPUT' : 'OUTPUT', '-j', 'DROP');
  }

  /** All traffic passes again, and at full speed. */
  clear(address: string): void {
    this.filter(address, '-F');
    spawnSync('ip', ['netns', 'exec', this.spaceOf(address), 'tc', 'qdisc', 'del', 'dev', 'eth0', 'root']);
  }

  /**
   * One of twenty packets is lost, and each is late by 200 ms. Returns what this kernel cannot do: a delay
   * needs its module sch_netem.
   */
  slow(address: string): string | undefined {
    for (const chain of ['INPUT', 'OUTPUT'])
      this.filter(
        address,
        '-A',
        chain,
        '-m',
        'statistic',
        '--mode',
        'random',
        '--probability',
        `${LOST}`,
        '-j',
        'DROP',
      );
    const netem = ['tc', 'qdisc', 'add', 'dev', 'eth0', 'root', 'netem', 'delay', SLOW_DELAY];
    const delayed = spawnSync('ip', ['netns', 'exec', this.spaceOf(address), ...netem]);
    return delayed.status === 0 ? undefined : 'without delay, because this kernel has no sch_netem';
  }

  /** Removes all of it. What runs on the machines loses its network; it is not ended. */
  remove(): void {
    process.off('exit', this.emergency);
    const spaces = Array.from({ length: this.count }, (_, i) => `${this.prefix}n${i + 1}`);
    for (const space of [...spaces, `${this.prefix}s`]) spawnSync('ip', ['netns', 'del', space]);
    spawnSync('ip', ['link', 'del', `${this.prefix}h`]);
  }
}
