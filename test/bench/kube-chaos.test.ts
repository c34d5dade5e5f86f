/** The table of the chaos on Kubernetes, from the counts of a run (test/kube/chaos.test.ts). */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { kintsugi } from '../cli/support.js';

let directory = '';
beforeAll(() => {
  directory = mkdtempSync(join(tmpdir(), 'kintsugi-kube-chaos-test-'));
});
afterAll(() => rmSync(directory, { recursive: true, force: true }));

const job = (name: string, trained = 50_000) => ({
  ...{ job: name, expected: 50_000, trained, setAside: 0, restarts: 2, redone: 512 },
});
const counts = {
  ...{ seed: 1, minutes: 10, load: 0.5, faults: { 'a machine vanishes': 3, 'a PS is killed': 2 } },
  deletions: { seen: 5, compared: 3, wrong: [] as string[] },
  jobs: [job('chaos-a'), job('chaos-b'), job('chaos-c')],
};

async function goalsOf(given: object) {
  const [file, json] = [join(directory, 'counts.json'), join(directory, 'report.json')];
  writeFileSync(file, JSON.stringify(given));
  const output = await kintsugi(['bench', 'kube-chaos', '--smoke', '--counts', file, '--json', json]);
  expect({ code: output.code, said: output.said }).toEqual({ code: 0, said: [] });
  const { goals } = JSON.parse(readFileSync(json, 'utf8')) as { goals: { met: boolean }[] };
  return goals.map(({ met }) => met);
}

it('has the jobs, the faults, and what the watcher of deletions saw', async () => {
  expect(await goalsOf(counts)).toEqual([true, true, true]);
});

it('misses its goals when a sample is missing, or a PS was deleted with shards', async () => {
  const jobs = [job('chaos-a'), job('chaos-b', 49_999), job('chaos-c')];
  const deletions = { ...counts.deletions, wrong: ['chaos-a-ps-1'] };
  expect(await goalsOf({ ...counts, jobs, deletions })).toEqual([false, false, true]);
});

it('says that it needs a cluster', async () => {
  const output = await kintsugi(['bench', 'kube-chaos', '--smoke'], { KUBECONFIG: '' });
  expect(output.code).not.toBe(0);
  expect(JSON.stringify(output)).toContain('it needs a cluster');
});
