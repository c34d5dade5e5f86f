/** What kinds of faults there are, and what those of each room have in common. */
import type { Cluster, Role } from './cluster.js';

/** Of processes (faults.ts). */
export type ProcessFault =
  | 'killPs'
  | 'killTwoPs'
  | 'killPsDuringRecovery'
  | 'stopPs'
  | 'killScheduler'
  | 'killSchedulerAndPs'
  | 'stopScheduler'
  | 'killClient';
/** Every process of the job at once (restarts.ts). */
export type JobFault = 'killAll';
/** Of connections through a proxy (link-faults.ts). */
export type LinkFault = 'cutPs' | 'holdPs' | 'cutScheduler' | 'holdScheduler';
/** Of machines of their own (network-faults.ts). */
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
export type FaultKind = ProcessFault | JobFault | LinkFault | NetworkFault;

export type Weights<Kind> = readonly (readonly [kind: Kind, weight: number])[];

/** A kind of faults beside those of processes. */
export interface Faculty {
  weights: Weights<FaultKind>;
  /** Those that cost no data. */
  harmless: readonly FaultKind[];
  /** Undefined: it is none of these. false: not possible now. */
  cause(kind: FaultKind): boolean | undefined;
}

/** What they need of the others. */
export interface Struck {
  readonly cluster: Cluster;
  between(least: number, most: number): number;
  /** 0 to `below` - 1. */
  oneOf(below: number): number;
  pick<T>(from: readonly T[]): T | undefined;
  /** `count` victims that may be lost at once, and are in the ledger from now on. */
  victims(count: number, mayBe: (role: Role) => boolean): Role[] | undefined;
  /** Live nodes may be given up for a silence that is not theirs. */
  doubt(): void;
  /** A PS that dies together with one that is wrongly taken for silent would be one too many. */
  readonly anyLacking: boolean;
  schedulerDown: boolean;
  during(work: () => Promise<void>, costly?: boolean): void;
  count(kind: FaultKind, victims: readonly string[], detail?: string): true;
  /** What a reader of the result should know. */
  tell(text: string): void;
}
