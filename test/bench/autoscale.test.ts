/** The benchmark at the size of a smoke: a short day of each kind of job, the same every time. */
import { expect, it, vi } from 'vitest';
import { kintsugi } from '../cli/support.js';

vi.setConfig({ testTimeout: 120_000 });

it('runs a job of real processes with and without the autoscaler', async () => {
  const { code, stdout } = await kintsugi(['bench', 'autoscale', '--smoke', '--real']);
  expect(code).toBe(0);
  expect(stdout).toMatch(/real: one worker that waits +fixed \d+.* autoscaled \d/);
  expect(stdout).toContain('met    real: runs that trained each sample exactly once: 2');
});

it('prints every kind of job with every rule, and the same numbers again', async () => {
  const args = ['bench', 'autoscale', '--smoke', '--hours', '1'];
  const runs = [await kintsugi(args), await kintsugi(args)];
  const lines = runs.map(({ stdout }) => stdout.split('\n').filter((line) => line.startsWith('  ')));
  expect(runs.map(({ code }) => code)).toEqual([0, 0]);
  expect(lines[0]).toEqual(lines[1]);
  expect(lines[0]!.filter((line) => /: score .*kintsugi .*DES .*DLRover /.test(line))).toHaveLength(6);
});
