/**
 * `kintsugi bench kube-chaos`: three jobs on a real cluster while machines, operators and the control plane
 * come and go. The faults and the proof are those of test/kube/chaos.test.ts, which it runs: so it needs a
 * checkout, and the cluster that KUBECONFIG and KINTSUGI_TEST_IMAGE name. It keeps the table.
 */
import { spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { KintsugiError } from '../../src/common/errors.js';
import { BenchReport } from '../common/report.js';
import type { KubeChaosOptions } from './options.js';

const ROOT = resolve(dirname(fileURLToPath(import.meta.url)), '../../..');
const TEST = 'test/kube/chaos.test.ts';

/** Counts of a run, as the test writes them. */
interface ChaosCounts {
  seed: number;
  minutes: number;
  load: number;
  /** Faults that happened, by name. */
  faults: Record<string, number>;
  /** PS Pods that were told to end; those that were held against the map; those that still had shards. */
  deletions: { seen: number; compared: number; wrong: string[] };
  jobs: {
    job: string;
    /** Samples: those there are, those that were trained, those that were given up. */
    expected: number;
    trained: number;
    setAside: number;
    restarts: number;
    redone: number;
  }[];
}

function whyNot(): string | undefined {
  if (!existsSync(join(ROOT, TEST))) return `it needs a checkout: ${TEST} is not part of the package`;
  const { KUBECONFIG, KINTSUGI_TEST_IMAGE } = process.env;
  return KUBECONFIG && KINTSUGI_TEST_IMAGE
    ? undefined
    : 'it needs a cluster: KUBECONFIG and KINTSUGI_TEST_IMAGE name none (test/kube/cluster.ts)';
}

/** Runs the test. Resolves with the file of its counts, and whether it passed. */
async function measured({ minutes, seed }: KubeChaosOptions, file: string): Promise<boolean> {
  const env = {
    ...process.env,
    ...{ KINTSUGI_CHAOS_MINUTES: String(minutes), KINTSUGI_CHAOS_REPORT: file },
    ...(seed === undefined ? {} : { KINTSUGI_CHAOS_SEED: seed }),
  };
  const vitest = join(ROOT, 'node_modules/vitest/vitest.mjs');
  const child = spawn(process.execPath, [vitest, 'run', TEST], { cwd: ROOT, env, stdio: 'inherit' });
  return new Promise((done, failed) => {
    child.on('error', failed);
    child.on('close', (code) => done(code === 0));
  });
}

/** @throws BAD_ARGUMENT without a checkout or a cluster, and when there are no counts */
export async function run(options: KubeChaosOptions): Promise<void> {
  const report = new BenchReport('kube-chaos', options);
  const folder = mkdtempSync(join(tmpdir(), 'kintsugi-kube-chaos-'));
  const file = options.counts ?? join(folder, 'counts.json');
  const problem = options.counts === undefined ? whyNot() : undefined;
  try {
    if (problem !== undefined) throw new KintsugiError('BAD_ARGUMENT', problem);
    const passed = options.counts !== undefined || (await measured(options, file));
    if (!existsSync(file))
      throw new KintsugiError('BAD_ARGUMENT', `there are no counts in ${file}: the run ended before`);
    const counts = JSON.parse(readFileSync(file, 'utf8')) as ChaosCounts;
    const { seed, minutes, load, faults, deletions, jobs } = counts;
    Object.assign(report.parameters, { seed, minutes, load });
    report.add({ name: 'faults', unit: '', values: faults, digits: 0 });
    for (const { job, ...values } of jobs) report.add({ name: job, unit: '', values, digits: 0 });
    const { seen, compared, wrong } = deletions;
    report.add({ name: 'PS Pods deleted', unit: '', values: { seen, compared }, digits: 0 });
    report.details = { wrong };
    report.exactly('jobs with exact counts', jobs.filter(isExact).length, 3);
    report.exactly('PS deleted with shards', wrong.length, 0);
    report.exactly('tests that failed', passed ? 0 : 1, 0);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
  report.finish();
}

const isExact = ({ expected, trained, setAside }: ChaosCounts['jobs'][number]): boolean =>
  trained === expected && setAside === 0;
