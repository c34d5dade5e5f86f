/** Losses that the job would not survive. */
import type { Finding, FindingRule } from './finding.js';

const ADVICE = {
  forming: 'start as many PS as the job was made for',
  recovering: 'wait: it is being mended. If it does not end, look for PS that do not answer',
  degraded: 'start another PS: kintsugi ps --scheduler ...',
  lost: 'kintsugi status names a checkpoint that has the shards: kintsugi restore PLACE --only-lost',
};

export const redundancy: FindingRule = ({ newest: { status } }) => {
  const found: Finding[] = [];
  const state = status.redundancy;
  if (state !== 'full') {
    const [first = '', ...more] = status.reasons;
    const others = more.length > 0 ? `, and ${more.length} reasons more` : '';
    found.push({
      code: 'redundancy',
      severity: state === 'lost' || state === 'degraded' ? 'error' : 'warning',
      subject: 'job',
      evidence: `redundancy is ${state}: ${first}${others}`,
      advice: ADVICE[state],
    });
  }
  // A group lies on k+r nodes. With no other one, what a lost node held has nowhere to go.
  const needed = Math.max(
    0,
    ...status.pools.map(({ code }) => code.split('+').reduce((n, part) => n + +part, 0)),
  );
  const alive = status.nodes.filter((node) => node.alive).length;
  if (state !== 'forming' && alive <= needed && alive > 0)
    found.push({
      code: 'no-spare',
      severity: 'warning',
      subject: 'job',
      evidence: `${alive} PS are alive, and a group lies on ${needed}: the next loss leaves it short`,
      advice: 'start one more PS, which takes over when another is lost: kintsugi ps --standby',
    });
  return found;
};
