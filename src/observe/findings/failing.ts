/** What the status says has failed: checkpoints, and PS that do not answer. */
import type { Check, Finding } from './finding.js';

export const failing: Check = ({ newest: { status, missing } }) => {
  const found = (status.saving ?? []).flatMap(({ name, failure, last }): Finding[] => {
    if (!failure) return [];
    const age = last ? `the newest one is ${Math.round(last.agoMs / 60_000)} minutes old` : 'there is none';
    return [
      {
        code: 'checkpoint',
        severity: 'warning',
        subject: `plan ${name}`,
        evidence: `checkpoint ${failure.number} failed (${failure.code}: ${failure.message}); ${age}`,
        advice: `docs/errors.md says what ${failure.code} means; the next attempt comes by itself`,
      },
    ];
  });
  for (const name of missing)
    found.push({
      code: 'silent-ps',
      severity: 'warning',
      subject: name,
      evidence: 'the scheduler holds it for alive, and it has not answered in time',
      advice: 'look at its machine: stopped, swapping, or cut off from here',
    });
  return found;
};
