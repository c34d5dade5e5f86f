/** Processes of different versions, and machines whose clocks differ. */
import { median } from '../../../common/statistics.js';
import type { Finding, FindingRule } from './finding.js';

/** Far more than looking takes. */
const CLOCK_MS = 5000;

export const mismatch: FindingRule = ({ newest }) => {
  const processes = [
    { name: 'scheduler', telemetry: newest.scheduler },
    ...newest.nodes.map(({ name, telemetry }) => ({ name, telemetry })),
  ];
  const found: Finding[] = [];
  const byVersion = new Map<string, string[]>();
  const workers = newest.workers.map((telemetry) => ({ name: telemetry.name, telemetry }));
  for (const { name, telemetry } of [...processes, ...workers])
    if (telemetry.version !== undefined)
      byVersion.set(telemetry.version, [...(byVersion.get(telemetry.version) ?? []), name]);
  if (byVersion.size > 1) {
    const list = [...byVersion].map(([version, names]) => `${version}: ${shortList(names)}`);
    found.push({
      code: 'versions',
      severity: 'warning',
      subject: 'job',
      evidence: `processes run different versions: ${list.join('; ')}`,
      advice: 'replace them one after the other, while training goes on; kintsugi restart does it for PS',
    });
  }
  const clocks = processes.flatMap(({ name, telemetry: { clockMs } }) =>
    clockMs === undefined ? [] : [{ name, clockMs }],
  );
  const typical = median(clocks.map(({ clockMs }) => clockMs));
  for (const { name, clockMs } of clocks) {
    const off = clockMs - typical;
    if (Math.abs(off) < CLOCK_MS) continue;
    const seconds = Math.round(Math.abs(off) / 1000);
    found.push({
      code: 'clock',
      severity: 'warning',
      subject: name,
      evidence: `its clock is ${seconds} s ${off > 0 ? 'ahead of' : 'behind'} the others`,
      advice: 'nothing is decided by it, but logs, events and certificates are read by it: set it (NTP)',
    });
  }
  return found;
};

const shortList = (names: readonly string[]): string =>
  names.length <= 3 ? names.join(', ') : `${names.slice(0, 3).join(', ')} and ${names.length - 3} more`;
