/**
 * Where roles run, and how others reach them: behind a proxy each on this machine, so that single connections
 * can be cut and held; or on a machine each, a network namespace that can vanish and be parted from others.
 */
import type { Machines } from '../common/machines.js';
import { TcpProxy } from './proxy.js';

/** Schedulers on machines of their own listen here, also when they are started again. */
const SCHEDULER_PORT = 7077;

export interface ChaosPlace {
  /** Proxy in front of the process, if there is one. */
  readonly proxy?: TcpProxy;
  /** Name of the machine; undefined: the process has no machine of its own. */
  readonly machine?: string;
  /** Words before the program on the command line, which put it on its machine. */
  readonly prefix: readonly string[];
  /** Value of `--listen`. */
  readonly listen: string;
  /** host:port at which others reach it; undefined: where it listens. */
  readonly advertise: string | undefined;
  /** The process listens at this port. */
  aim(port: number): void;
  /** The process is gone, and none will come. */
  close(): void;
  /** The process is gone, and another one will come. */
  lose(): void;
}

export interface ChaosPlaces {
  /** A scheduler's stays, whichever process it is; its address is known before. */
  scheduler(): Promise<ChaosPlace & { advertise: string }>;
  /** As on a real machine, a PS that comes back has another port. */
  ps(name: string): Promise<ChaosPlace>;
  /** The PS has left for good. */
  left(name: string): void;
}

export class ProxiedPlaces implements ChaosPlaces {
  async scheduler(): Promise<ChaosPlace & { advertise: string }> {
    return behind(await TcpProxy.start(false));
  }

  async ps(): Promise<ChaosPlace> {
    return behind(await TcpProxy.start(true));
  }

  left(): void {}
}

function behind(proxy: TcpProxy): ChaosPlace & { advertise: string } {
  return {
    proxy,
    prefix: [],
    listen: '127.0.0.1:0',
    advertise: proxy.address,
    aim: (port) => proxy.aim(port),
    close: () => proxy.close(),
    lose: () => proxy.lose(),
  };
}

export class MachinePlaces implements ChaosPlaces {
  /** By names of PS. */
  private readonly taken = new Map<string, string>();
  private readonly free: string[] = [];

  constructor(private readonly machines: Machines) {}

  async scheduler(): Promise<ChaosPlace & { advertise: string }> {
    const address = `${this.machines.add()}:${SCHEDULER_PORT}`;
    return { ...this.on(address), advertise: address };
  }

  async ps(name: string): Promise<ChaosPlace> {
    const machine = this.taken.get(name) ?? this.free.shift() ?? this.machines.add();
    this.taken.set(name, machine);
    return this.on(`${machine}:0`);
  }

  left(name: string): void {
    const machine = this.taken.get(name);
    this.taken.delete(name);
    if (machine !== undefined) this.free.push(machine);
  }

  /** The kernel of a machine resets the connections of a process that ends, and refuses new ones. */
  private on(listen: string): ChaosPlace {
    const machine = listen.slice(0, listen.lastIndexOf(':'));
    const prefix = this.machines.on(machine);
    return { machine, prefix, listen, advertise: undefined, aim() {}, close() {}, lose() {} };
  }
}
