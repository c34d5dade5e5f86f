/** `npm run sim -- --scale`: runs all phases, prints each as it ends, and then the goals. */
import { cpus } from 'node:os';
import { loadNative } from '../../engine/native.js';
import { type ScaleConfig, scaleConfig } from './config.js';
import { ScaleMeter } from './meter.js';
import { Phases } from './phases.js';
import { goalsText, phaseText, reportOf } from './report.js';

type Sizes = Pick<ScaleConfig, 'ps' | 'workers' | 'groups'>;

/** Runs all phases and returns the exit code. `json`: prints the report only, for programs. */
export function runScale(sizes: Sizes, json: boolean): number {
  const config = scaleConfig(sizes);
  const machine = `${cpus()[0]?.model ?? 'unknown'} x ${cpus().length}, Node ${process.version}`;
  if (!json) {
    const { ps, workers, groups, k, r, psPerHost } = config;
    console.log(
      `${ps} PS, ${psPerHost} a host, ${workers} workers, ${groups} groups of ${k}+${r}; ${machine}\n`,
    );
  }
  const phases = new Phases(config, new ScaleMeter(), loadNative(), (phase) => {
    if (!json) console.log(phaseText(phase));
  });
  const report = reportOf(config, phases.run());
  console.log(json ? JSON.stringify({ machine, ...report }) : goalsText(report));
  return 0;
}
