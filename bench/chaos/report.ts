/** Report of a run of chaos: its counts and its goals. */

import { BenchReport } from '../common/report.js';
import { median } from '../common/statistics.js';
import type { ChaosOptions } from './options.js';
import { OVERLOADED_BOUND } from './overload.js';
import type { AuditCounts } from './replica-audit.js';
import type { ChaosRun } from './run.js';

/** Fields of the JSON that only this measurement has. */
export interface ChaosDetails {
  faults: ChaosRun['faults'];
  /** Planned changes among them, and how they ended. */
  changes: ChaosRun['changes'];
  clients: { pushes: number; checks: number; longestStallMs: number; longestPullMs: number }[];
  /** Every time that all processes were killed. */
  restarts: ChaosRun['restarts'];
  /** Faults of replicas, pulls that they answered and refused, and the oldest answer; undefined: none. */
  replicas: (NonNullable<ChaosRun['replicas']> & AuditCounts) | undefined;
  /** Attacks, and the highest memory of a PS; undefined: there were none. */
  overload: ChaosRun['overload'];
  /** Shard pushes, as in every report: a push counts once per shard that it touches. */
  pushes: ChaosRun['pushes'];
  parity: ChaosRun['parity'];
  digest: string;
  quietDigest: string;
  rows: number;
  wrong: string[];
  seconds: number;
}

/** Audits of replicas, summed over all clients. */
function auditOf({ clients }: ChaosRun): AuditCounts {
  const audits = clients.flatMap(({ audit }) => audit ?? []);
  const sum = (field: keyof AuditCounts) => audits.reduce((total, audit) => total + audit[field], 0);
  const longestLagMs = Math.max(0, ...audits.map((audit) => audit.longestLagMs));
  return { reads: sum('reads'), refused: sum('refused'), longestLagMs };
}

export function chaosReport(options: ChaosOptions, chaotic: ChaosRun, quiet: ChaosRun): BenchReport {
  const {
    minutes,
    seed,
    ps,
    code,
    clients,
    replicas: following,
    sharedRows,
    pauseMs,
    recoveryRate,
    tls,
    token,
    network,
  } = options;
  const { pushes, parity, faults, changes } = chaotic;
  const report = new BenchReport('chaos', options);
  const [least, most] = options.faultPauseMs;
  Object.assign(report.parameters, { minutes, seed, ps, code, clients, sharedRows, pauseMs });
  Object.assign(report.parameters, { faultPauseMs: `${least}-${most}`, tls, token, network });
  if (following > 0) report.parameters.replicas = following;
  report.parameters.recoveryRate = recoveryRate ?? 'default';
  const wrong = [...chaotic.wrong, ...quiet.wrong];
  const replicas = chaotic.replicas && { ...chaotic.replicas, ...auditOf(chaotic) };
  const details: ChaosDetails = {
    replicas,
    overload: chaotic.overload,
    faults,
    changes,
    clients: chaotic.clients.map((client) => ({
      pushes: client.pushes,
      checks: client.checks,
      longestStallMs: Math.round(client.longestStallMs),
      longestPullMs: Math.round(client.longestPullMs),
    })),
    restarts: chaotic.restarts,
    pushes,
    parity,
    digest: chaotic.digest.sha256,
    quietDigest: quiet.digest.sha256,
    rows: chaotic.digest.rows,
    wrong,
    seconds: Math.round(chaotic.seconds),
  };
  report.details = { ...details };
  const longest = (name: 'longestStallMs' | 'longestPullMs') =>
    Math.max(...details.clients.map((client) => client[name]));
  report.add({ name: 'faults by kind', unit: '', values: { ...faults } });
  for (const [kind, ends] of Object.entries(changes))
    report.add({ name: `changes: ${kind}`, unit: '', values: { ...ends } });
  report.add({
    name: 'longest wait of a client',
    unit: 'ms',
    values: { 'for an acknowledgement': longest('longestStallMs'), 'for rows': longest('longestPullMs') },
  });
  const { checkpoint } = options;
  if (checkpoint) addRestarts(report, chaotic.restarts, checkpoint);
  if (replicas) {
    report.add({ name: 'replicas', unit: '', values: { ...replicas } });
    report.goal('pulls that replicas answered', replicas.reads, 1);
  }
  if (chaotic.overload) {
    const { attacks, failed, peakBytes } = chaotic.overload;
    report.parameters.overload = options.overload;
    report.add({ name: 'attacks', unit: '', values: { ...attacks, 'not begun': failed } });
    report.atMost('peak of a PS, of its bound', peakBytes / OVERLOADED_BOUND, 1);
  }
  const equal = chaotic.digest.sha256 === quiet.digest.sha256 && chaotic.digest.rows === quiet.digest.rows;
  report.goal(
    'faults',
    Object.values(faults).reduce((sum, count) => sum + count, 0),
    options.faultGoal,
  );
  const ends = Object.values(changes);
  const done = ends.reduce((sum, each) => sum + each.done, 0);
  // A job that is killed soon may have no time for one.
  if (!checkpoint) report.goal('planned changes that were done', done, 1);
  report.goal('acknowledged pushes', pushes.acked, 1);
  report.exactly('lost', pushes.lost, 0);
  report.exactly('duplicated', pushes.duplicated, 0);
  report.exactly('mismatched blocks', parity.mismatched, 0);
  report.exactly('unprotected blocks', parity.blocksUnprotected, 0);
  report.exactly('wrong reads and failed requests', wrong.length, 0);
  report.exactly('digests that differ from the quiet run', equal ? 0 : 1, 0);
  return report;
}

function addRestarts(
  report: BenchReport,
  restarts: ChaosRun['restarts'],
  { every, barrier }: NonNullable<ChaosOptions['checkpoint']>,
): void {
  Object.assign(report.parameters, { every, barrier });
  const sum = (of: (restart: ChaosRun['restarts'][number]) => number) =>
    restarts.reduce((total, each) => total + of(each), 0);
  report.add({
    name: 'pushes of killed clients',
    unit: 'to shards',
    values: {
      acknowledged: sum((each) => each.acknowledged),
      restored: sum((each) => each.restored),
      'lost after the checkpoint': sum((each) => each.lostAfterCheckpoint),
      'restored, and not acknowledged': sum((each) => each.untold),
    },
  });
  const seconds = restarts.map((each) => each.seconds);
  report.add({
    name: 'from kill to every shard',
    unit: 's',
    values: { median: median(seconds), longest: Math.max(0, ...seconds) },
  });
  report.goal('times that every process was killed', restarts.length, 1);
  const before = sum((each) => each.lostBefore);
  report.exactly('acknowledged before the checkpoint began, and lost', before, 0);
}
