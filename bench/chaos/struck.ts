/** Kinds of faults, and the interface of the modules that cause them. */
import type { ChaosCluster, ChaosRole } from './cluster.js';

/** Faults of processes (faults.ts). */
export type ProcessFault =
  | 'killPs'
  | 'killTwoPs'
  | 'killPsDuringRecovery'
  | 'stopPs'
  | 'killScheduler'
  | 'killSchedulerAndPs'
  | 'stopScheduler'
  | 'killClient';
/** Kill of every process of the job at once (restarts.ts). */
export type JobFault = 'killAll';
/** Faults of connections through a proxy (link-faults.ts). */
export type LinkFault = 'cutPs' | 'holdPs' | 'cutScheduler' | 'holdScheduler';
/** Faults of machines of their own (network-faults.ts). */
export type NetworkFault =
  | 'vanishPs'
  | 'vanishTwoPs'
  | 'vanishScheduler'
  | 'vanishClient'
  | 'cutTwoPs'
  | 'cutPsFromAll'
  | 'cutPsFromScheduler'
  | 'cutClient'
  | 'onewayPs'
  | 'onewayClient'
  | 'slowPs'
  | 'slowScheduler'
  | 'slowClient';
export type StruckKind = ProcessFault | JobFault | LinkFault | NetworkFault;

export type Weights<Kind> = readonly (readonly [kind: Kind, weight: number])[];

/** Faults of links or of machines, beside those of processes. */
export interface Faculty {
  weights: Weights<StruckKind>;
  /** Kinds that cost no data. */
  harmless: readonly StruckKind[];
  /** Causes the fault. Undefined: another module causes this kind; false: not possible now. */
  cause(kind: StruckKind): boolean | undefined;
}

/** Services of faults.ts for the other modules. */
export interface Struck {
  readonly cluster: ChaosCluster;
  between(least: number, most: number): number;
  /** A number from 0 to `below` - 1. */
  oneOf(below: number): number;
  pick<T>(from: readonly T[]): T | undefined;
  /** `count` victims that may be lost at once, and are in the ledger from now on. */
  victims(count: number, mayBe: (role: ChaosRole) => boolean): ChaosRole[] | undefined;
  /** Says that live nodes may be given up for a silence of others. */
  doubt(): void;
  /**
   * True: the ledger has a PS that is lacking. One that is wrongly taken for silent would be one too many.
   */
  readonly anyLacking: boolean;
  schedulerDown: boolean;
  during(work: () => Promise<void>, costly?: boolean): void;
  count(kind: StruckKind, victims: readonly string[], detail?: string): true;
  /** Prints a fact for the reader of the result. */
  tell(text: string): void;
}
