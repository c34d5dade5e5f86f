/** An attack on a running job, and what it may use. Each attack is one mechanism in a file of its own. */
import type { Client } from '../../../src/library/client/client.js';

export interface Attack {
  readonly name: string;
  /** PS that the attack kills in a round. They are the only ones that the job may declare lost. */
  readonly kills: number;
  /** Processes that the attack consists of, whose processor time is told. */
  readonly pids: () => readonly number[];
  /** Processes of Kintsugi between an attacker and the job, by their names: their memory is watched, too. */
  readonly watched: () => ReadonlyMap<string, number>;
  /** Makes what the attack needs of the job, while nothing is measured. */
  prepare(): Promise<void>;
  /** Resolves when the attack is under way. */
  start(): Promise<void>;
  /** The part that happens in the baseline, too: a loss of a PS is no overload. */
  beside?(): Promise<void>;
  /** Kills its processes at once. */
  abort(): void;
  /** Ends it; all of its processes are gone then. */
  stop(): Promise<AttackOutcome>;
}

/** Counts that attackers tell at their end. */
export interface AttackOutcome {
  /** Requests that were answered, bytes that arrived, and refusals by their code. */
  answered: number;
  refused: Record<string, number>;
  /** Pushes of each client of the attack that pushed with an audit, to be checked. */
  pushed: PushedBy[];
}

/** As `checkPushes` takes it. */
export interface PushedBy {
  client: number;
  counts: ReturnType<Client['pushCounts']>;
}

export const NOTHING_TOLD: AttackOutcome = { answered: 0, refused: {}, pushed: [] };

/** The job that is attacked. */
export interface AttackedJob {
  readonly address: string;
  /** The client of this process, for tables and plans of an attack. */
  readonly client: Client;
  /** host:port of each PS. */
  psAddresses(): string[];
  /** SIGKILL of a PS that is up, which is started again later. */
  killOne(): void;
  /** Resolves when the PS that was killed is up again. */
  startKilled(): Promise<void>;
  /** A number of clients or connections at the scale of this run, at least 1. */
  scaled(full: number): number;
  /** URL of a place that takes one byte a second. */
  readonly slowPlace: string;
  /** Appends a record of a process of an attack to the log. */
  readonly onLine: (line: string) => void;
}

/** Sums of outcomes. */
export function outcomesOf(all: readonly AttackOutcome[]): AttackOutcome {
  const sum: AttackOutcome = { answered: 0, refused: {}, pushed: [] };
  for (const { answered, refused, pushed } of all) {
    sum.answered += answered;
    sum.pushed.push(...pushed);
    for (const [code, count] of Object.entries(refused)) sum.refused[code] = (sum.refused[code] ?? 0) + count;
  }
  return sum;
}
