/** Labels of hosts that promise more than the machines keep. */
import type { Check, Finding } from './finding.js';

export const domains: Check = ({ newest: { status } }) => {
  const alive = status.nodes.filter((node) => node.alive);
  const hosts = new Set(alive.map(({ host }) => host));
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
    // Members of a group share hosts when there are fewer; losing one host loses so many of them.
    const together = Math.ceil((k + r) / Math.max(1, hosts.size));
    if (together <= r) continue;
    found.push({
      code: 'domains',
      severity: 'warning',
      subject: `pool ${name}`,
      evidence:
        `${k + r} members of a group lie on ${hosts.size} hosts: losing one host loses ${together} of ` +
        `them, and the code restores ${r}`,
      advice: `spread the PS over at least ${Math.ceil((k + r) / r)} hosts, or ${advice}`,
    });
  }
  return found;
};
