/**
 * Attacks of `bench overload` in the middle of the faults, one after the other: clients that pull wide rows,
 * clients that never read, connections that say nothing. Their rows are in tables of their own, which are
 * gone at the end. What an attacker is refused is its own affair; the other clients must lose nothing.
 */
import { describe } from '../../src/common/errors.js';
import { seededRandom } from '../../src/fleet/local/kills.js';
import type { Client } from '../../src/library/client/client.js';
import { monotonicMs } from '../../src/net/log.js';
import type { Attack, AttackedJob } from '../common/attacks/attack.js';
import { boundOf, OVERLOAD_MEMORY } from '../common/attacks/bound.js';
import { ATTACKS } from '../common/attacks/index.js';
import { MemoryWatch } from '../common/attacks/memory-watch.js';
import { BROAD_TABLE, WIDE_TABLE } from '../common/attacks/pulls.js';
import type { ChaosCluster } from './cluster.js';
import { between, pause } from './pause.js';

/** `--memory` of each PS. */
export const OVERLOADED_MEMORY = `${OVERLOAD_MEMORY.memoryMiB}MiB`;
/** Most resident bytes of a PS. */
export const OVERLOADED_BOUND = boundOf({
  memoryBytes: OVERLOAD_MEMORY.memoryMiB * 2 ** 20,
  overheadBytes: OVERLOAD_MEMORY.overheadMiB * 2 ** 20,
});

const KINDS = ['wide-pulls', 'never-read', 'idle-connections'] as const;
type OverloadKind = (typeof KINDS)[number];
const TABLES: string[] = [WIDE_TABLE.name, BROAD_TABLE.name];
/** Milliseconds of an attack that is under way, and until the next one. */
const ATTACK_MS: [least: number, most: number] = [3000, 10_000];
const PAUSE_MS: [least: number, most: number] = [1000, 4000];
const PS_NAME = /^ps-\d+$/;

export interface OverloadCounts {
  /** Attacks that came under way, by name. */
  attacks: Partial<Record<OverloadKind, number>>;
  /** Attacks that faults kept from it. */
  failed: number;
  /** Highest resident memory of a PS, in bytes. */
  peakBytes: number;
}

export interface OverloadStoryOptions {
  cluster: ChaosCluster;
  client: Client;
  seed: number;
  /** Clients and connections of an attack, of those that `bench overload` has. */
  scale: number;
  onAttack(name: OverloadKind, detail: string): void;
  onError(error: Error): void;
}

export class ChaosOverload {
  readonly counts: OverloadCounts = { attacks: {}, failed: 0, peakBytes: 0 };
  private readonly random: () => number;

  constructor(private readonly options: OverloadStoryOptions) {
    this.random = seededRandom(options.seed);
  }

  /** Attacks until `until` (monotonic milliseconds) or an abort. */
  async run(until: number, signal: AbortSignal): Promise<void> {
    const { cluster, client } = this.options;
    const watch = new MemoryWatch(() => processesOf(cluster), {
      mostBytes: Number.POSITIVE_INFINITY,
      leastAvailableBytes: 0,
      onTooMuch: () => {},
    });
    try {
      while (monotonicMs() < until && !signal.aborted) {
        await this.once(KINDS[this.random() % KINDS.length]!, until, signal);
        await pause(between(this.random, ...PAUSE_MS));
      }
      for (const { name } of client.tables()) if (TABLES.includes(name)) await client.table(name).drop();
    } catch (error) {
      this.options.onError(error as Error);
    } finally {
      watch.look();
      watch.stop();
      this.counts.peakBytes = Math.max(0, ...watch.peaks.values());
    }
  }

  private async once(kind: OverloadKind, until: number, signal: AbortSignal): Promise<void> {
    const { onAttack } = this.options;
    const attack = ATTACKS[kind](this.job);
    const abort = () => attack.abort();
    signal.addEventListener('abort', abort);
    try {
      await attack.prepare();
      if (!(await this.isStarted(attack, kind)) || signal.aborted) return;
      this.counts.attacks[kind] = (this.counts.attacks[kind] ?? 0) + 1;
      onAttack(kind, 'begun');
      // Faults end at that time.
      await pause(Math.min(between(this.random, ...ATTACK_MS), Math.max(0, until - monotonicMs())));
    } finally {
      signal.removeEventListener('abort', abort);
      const { answered, refused } = await attack.stop();
      onAttack(kind, `over: ${answered} answered, refused: ${JSON.stringify(refused)}`);
    }
  }

  /** False: the attackers did not reach the job, whose scheduler or PS may be gone at this time. */
  private async isStarted(attack: Attack, kind: OverloadKind): Promise<boolean> {
    try {
      await attack.start();
      return true;
    } catch (error) {
      this.counts.failed++;
      this.options.onAttack(kind, `not begun: ${describe(error)}`);
      attack.abort();
      return false;
    }
  }

  private get job(): AttackedJob {
    const { cluster, client, scale } = this.options;
    const never = () => {
      throw new Error('these attacks do not ask for it');
    };
    return {
      address: cluster.address,
      client,
      psAddresses: () => client.clusterMap.nodes.map(({ address }) => address),
      scaled: (full) => Math.max(1, Math.round(full * scale)),
      killOne: never,
      startKilled: never,
      slowPlace: '',
      onLine: () => {},
    };
  }
}

function* processesOf({ roles }: ChaosCluster): Generator<readonly [name: string, pid: number]> {
  for (const { name, child } of roles.values())
    if (PS_NAME.test(name) && child.alive && child.pid !== undefined) yield [name, child.pid];
}
