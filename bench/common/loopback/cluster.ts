/**
 * A scheduler and one PS as processes of their own, without redundancy, and a client of them in this process.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { OptimizerSpec } from '../../../src/engine/native.js';
import { Child } from '../../../src/fleet/local/child.js';
import { type Client, connect, type Table } from '../../../src/library/client/client.js';
import type { Contender } from './measure.js';
import { DIM } from './options.js';
import { consecutive } from './requests.js';

/** Rows of one push while a table is filled. */
const FILL_ROWS = 8192;
const SGD: OptimizerSpec = { kind: 'sgd', lr: 0.01 };

export class OnePs {
  /** Rejects when one of the processes has ended. */
  private readonly ended: Promise<never>;

  private constructor(
    readonly client: Client,
    private readonly children: Child[],
    private readonly directory: string,
  ) {
    const ends = children.map(async (child): Promise<never> => {
      throw child.deathOf(await child.exited);
    });
    this.ended = Promise.race(ends);
    // Processes also end on `close`, when no caller waits for these promises any more.
    for (const end of [this.ended, ...ends]) end.catch(() => {});
  }

  static async start(): Promise<OnePs> {
    const directory = mkdtempSync(join(tmpdir(), 'kintsugi-bench-'));
    const children: Child[] = [];
    const launch = (name: string, args: string[]): Child => {
      const child = new Child({
        name,
        args,
        env: { KINTSUGI_TOKEN: '', KINTSUGI_NODE_TOKEN: '' },
        onEvent: () => {},
      });
      children.push(child);
      return child;
    };
    try {
      const here = ['--listen', '127.0.0.1:0'];
      const shape = ['--dir', directory, '--ps', '1', '--code', 'none'];
      const scheduler = launch('scheduler', ['scheduler', ...here, ...shape]);
      const address = String((await scheduler.event('scheduler.ready')).address);
      await launch('ps-0', ['ps', ...here, '--scheduler', address, '--name', 'ps-0']).event('ps.ready');
      return new OnePs(await connect(address), children, directory);
    } catch (error) {
      await stop(children, directory);
      throw error;
    }
  }

  /** Process id of the PS. */
  get pid(): number {
    return this.children[1]?.pid ?? 0;
  }

  contender(name: string, request: (i: number) => Promise<unknown>): Contender {
    const { pid: serverPid, ended } = this;
    return { name, serverPid, ended, request: async (i) => void (await request(i)) };
  }

  /**
   * A table of keys 0 .. rows - 1, all of them pushed once. Requests of a client outlive their PS, so it ends
   * with its processes. @throws what their death says
   */
  fill(name: string, rows: number): Promise<Table> {
    return Promise.race([this.filled(name, rows), this.ended]);
  }

  private async filled(name: string, rows: number): Promise<Table> {
    const table = await this.client.createTable({ name, dim: DIM, optimizer: SGD, seed: 7 });
    const zeros = new Float32Array(FILL_ROWS * DIM);
    let next = 0;
    const lane = async () => {
      while (next < rows) {
        const from = next;
        const count = Math.min(FILL_ROWS, rows - from);
        next += count;
        await table.push(consecutive(from, count), zeros.subarray(0, count * DIM));
      }
    };
    await Promise.all([lane(), lane(), lane()]);
    return table;
  }

  async close(): Promise<void> {
    await this.client.close();
    await stop(this.children, this.directory);
  }
}

async function stop(children: readonly Child[], directory: string): Promise<void> {
  await Promise.all(children.map((child) => child.stop()));
  rmSync(directory, { recursive: true, force: true });
}
