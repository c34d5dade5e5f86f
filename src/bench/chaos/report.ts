/** What a run of chaos shows, beside its goals. Pure. */
import { cpus } from 'node:os';
import type { ChaosRun } from '../chaos.js';
import type { ChaosOptions } from './options.js';

interface Goal {
  name: string;
  value: number | string;
  goal: string;
  met: boolean;
}

export interface ChaosReport {
  name: 'chaos';
  machine: { cpu: string; cores: number; node: string };
  parameters: Record<string, unknown>;
  faults: ChaosRun['faults'];
  clients: { pushes: number; checks: number; longestStallMs: number; longestPullMs: number }[];
  /** Shard pushes, as in every report: a push counts once per shard that it touches. */
  pushes: ChaosRun['pushes'];
  parity: ChaosRun['parity'];
  digest: string;
  quietDigest: string;
  rows: number;
  wrong: string[];
  seconds: number;
  goals: Goal[];
}

export function chaosReport(options: ChaosOptions, chaotic: ChaosRun, quiet: ChaosRun): ChaosReport {
  const { minutes, seed, ps, code, clients, sharedRows, pauseMs, faultPauseMs, recoveryRate } = options;
  const faults = Object.values(chaotic.faults).reduce((sum, count) => sum + count, 0);
  const { pushes, parity } = chaotic;
  const wrong = [...chaotic.wrong, ...quiet.wrong];
  const none = (name: string, value: number): Goal => ({ name, value, goal: '0', met: value === 0 });
  const stall = Math.max(...chaotic.clients.map((client) => client.longestStallMs));
  return {
    name: 'chaos',
    machine: { cpu: cpus()[0]?.model ?? 'unknown', cores: cpus().length, node: process.version },
    parameters: {
      minutes,
      seed,
      ps,
      code,
      clients,
      sharedRows,
      pauseMs,
      faultPauseMs,
      recoveryRate: recoveryRate ?? null,
    },
    faults: chaotic.faults,
    clients: chaotic.clients.map((client) => ({
      pushes: client.pushes,
      checks: client.checks,
      longestStallMs: Math.round(client.longestStallMs),
      longestPullMs: Math.round(client.longestPullMs),
    })),
    pushes,
    parity,
    digest: chaotic.digest.sha256,
    quietDigest: quiet.digest.sha256,
    rows: chaotic.digest.rows,
    wrong,
    seconds: Math.round(chaotic.seconds),
    goals: [
      { name: 'faults', value: faults, goal: `>= ${options.faultGoal}`, met: faults >= options.faultGoal },
      { name: 'acknowledged pushes', value: pushes.acked, goal: '> 0', met: pushes.acked > 0 },
      none('lost', pushes.lost),
      none('duplicated', pushes.duplicated),
      none('mismatched blocks', parity.mismatched),
      none('unprotected blocks', parity.blocksUnprotected),
      none('wrong reads and failed requests', wrong.length),
      {
        name: 'digest equal to a quiet run',
        value: chaotic.digest.sha256.slice(0, 16),
        goal: quiet.digest.sha256.slice(0, 16),
        met: chaotic.digest.sha256 === quiet.digest.sha256 && chaotic.digest.rows === quiet.digest.rows,
      },
      { name: 'longest stall of a client (ms)', value: Math.round(stall), goal: 'reported', met: true },
    ],
  };
}
