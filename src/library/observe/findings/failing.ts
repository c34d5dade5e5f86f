/** Failures that the status names: checkpoints, and PS that do not answer. */
import type { Finding, FindingRule } from './finding.js';

export const failing: FindingRule = ({ newest: { status, missing } }) => {
  const found = (status.saving ?? []).flatMap(({ name, failure, last, everyMs, kind }): Finding[] => {
    if (!failure) return [];
    const asks = kind === 'export' ? `export now --name ${name}` : 'checkpoint now';
    const next = everyMs > 0 ? 'the next attempt comes by itself' : `kintsugi ${asks} makes another attempt`;
    const age = last ? `the newest one is ${Math.round(last.agoMs / 60_000)} minutes old` : 'there is none';
    return [
      {
        code: 'checkpoint',
        severity: 'warning',
        subject: `plan ${name}`,
        evidence: `checkpoint ${failure.number} failed (${failure.code}: ${failure.message}); ${age}`,
        advice: `docs/errors.md says what ${failure.code} means; ${next}`,
      },
    ];
  });
  const [stopped, silent] = (['stopped', 'gone'] as const).map((life) =>
    status.nodes.filter((node) => node.alive && node.life === life).map(({ name }) => name),
  );
  for (const name of stopped!)
    found.push({
      code: 'stopped-ps',
      severity: 'warning',
      subject: name,
      evidence: 'its process answers the scheduler, and its event loop does not turn: "stopped"',
      advice: 'it is given up after stoppedMs; a debugger or a profile of the process shows where it stands',
    });
  for (const { name, overloaded } of status.nodes)
    if (overloaded)
      found.push({
        code: 'overloaded-ps',
        severity: 'warning',
        subject: name,
        evidence: 'its event loop has taken longer than 250 ms for a turn, again and again',
        advice: 'kintsugi rebalance, or kintsugi scale --add 1; fewer keys in a request make turns shorter',
      });
  const unheard = [...silent!, ...missing.filter((name) => !stopped!.includes(name))];
  for (const name of new Set(unheard))
    found.push({
      code: 'silent-ps',
      severity: 'warning',
      subject: name,
      evidence: silent!.includes(name)
        ? 'the scheduler hears nothing of it, and a group cannot do without it: "gone"'
        : 'the scheduler holds it for alive, and it has not answered in time',
      advice: 'look at its machine: stopped, swapping, or cut off from here',
    });
  return found;
};
