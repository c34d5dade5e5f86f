/** Requests that are refused or wait, because a limit is reached. */
import { type Finding, type FindingRule, mib } from './finding.js';

/** Refusals of requests at a node that had just lost or given away a shard: clients go to its new owner. */
const ORDINARY = 'WRONG_OWNER';

const MEANING: Readonly<Record<string, string>> = {
  MEMORY_LIMIT: 'kintsugi scale --add 1, or start the PS with a higher --memory',
  LIMIT: 'docs/limits.md has every limit: fewer pushes under way at once, or a higher one with --limit',
  UNRECOVERABLE: 'shards are beyond repair: kintsugi status names them',
};

export const limits: FindingRule = ({ history, newest }) =>
  newest.nodes.flatMap(({ id, inc, name, telemetry }) => {
    const found: Finding[] = [];
    // Counts begin at the first look that had this process, or at its start when that was later.
    const seen = history.flatMap(({ nodes }) => nodes.find((node) => node.id === id) ?? []);
    const before = seen[0]?.inc === inc ? seen[0].telemetry : undefined;
    const refused = new Map<string, number>();
    for (const op of ['pull', 'push'] as const)
      for (const [code, count] of Object.entries(telemetry.ops[op].failed)) {
        const more = count - (before?.ops[op].failed[code] ?? 0);
        if (more > 0 && code !== ORDINARY) refused.set(code, (refused.get(code) ?? 0) + more);
      }
    for (const [code, count] of refused)
      found.push({
        code: 'refused',
        severity: code === 'MEMORY_LIMIT' || code === 'UNRECOVERABLE' ? 'error' : 'warning',
        subject: name,
        evidence: `${count} requests were refused with ${code}`,
        advice: MEANING[code] ?? `docs/errors.md says what ${code} means`,
      });
    const parked = history.map(
      (look) => look.nodes.find((node) => node.id === id)?.telemetry.parkedRequests ?? 0,
    );
    const least = Math.min(...parked);
    if (least > 0 && telemetry.recoveringShards === 0)
      found.push({
        code: 'waiting-requests',
        severity: 'warning',
        subject: name,
        evidence: `at least ${least} requests waited at every look, ${mib(telemetry.parkedBytes)} now`,
        advice: 'look for a slow sink, or for a limit on bytes that are not durable (docs/limits.md)',
      });
    return found;
  });
