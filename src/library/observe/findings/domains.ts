/** Labels of hosts that promise more than the machines keep. */
import { domainOf } from '../../../core/placement/nearness.js';
import type { Finding, FindingRule } from './finding.js';

export const domains: FindingRule = ({ newest: { status } }) => {
  const alive = status.nodes.filter((node) => node.alive);
  const labels = alive.map(({ host }) => host);
  const hosts = new Set(labels);
  const zones = new Set(labels.map((host) => domainOf(host).zone));
  const advice =
    'give each PS the label of what fails with it, the machine or the rack: kintsugi ps --host-label LABEL';
  // The scheduler sees the machines: it says so when labels differ and machines do not.
  const found = status.warnings
    .filter((warning) => /host|machine/.test(warning))
    .map(
      (evidence): Finding => ({ code: 'domains', severity: 'warning', subject: 'hosts', evidence, advice }),
    );
  for (const { name, code } of status.pools) {
    const [k = 0, r = 0] = code.split('+').map(Number);
    if (alive.length < k + r || r === 0) continue;
    for (const [what, count] of Object.entries({ host: hosts.size, zone: zones.size })) {
      // Labels of one level say the same of both, and one zone is a choice.
      if (what === 'zone' && (count <= 1 || count === hosts.size)) continue;
      // Members of a group share hosts when there are fewer; losing one host loses so many of them.
      const together = Math.ceil((k + r) / Math.max(1, count));
      if (together <= r) continue;
      found.push({
        code: 'domains',
        severity: 'warning',
        subject: `pool ${name}`,
        evidence:
          `${k + r} members of a group lie ${what === 'host' ? 'on' : 'in'} ${count} ${what}s: losing one ` +
          `${what} loses ${together} of them, and the code restores ${r}`,
        advice: `spread the PS over at least ${Math.ceil((k + r) / r)} ${what}s, or ${advice}`,
      });
    }
  }
  return found;
};
