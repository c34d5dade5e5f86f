/**
 * V8 knows every setting that roles make: one that it does not know would change nothing, and be told on
 * standard error.
 */
import { spawnSync } from 'node:child_process';
import { expect, it } from 'vitest';

const MODULE = new URL('../../dist/src/roles/v8.js', import.meta.url);

function run(script: string): string {
  const { status, stdout, stderr } = spawnSync(process.execPath, ['--input-type=module', '-e', script], {
    encoding: 'utf8',
  });
  expect(status).toBe(0);
  return stdout + stderr;
}

it('takes all settings', () => {
  expect(run(`import { tuneV8 } from ${JSON.stringify(MODULE.href)}; tuneV8();`)).toBe('');
});

it('optimizes nothing for a while after a loss, and then it does', () => {
  const script = `
    import { setFlagsFromString } from 'node:v8';
    import { setTimeout as sleep } from 'node:timers/promises';
    import { optimizeLater, tuneV8 } from ${JSON.stringify(MODULE.href)};
    tuneV8();
    setFlagsFromString('--allow-natives-syntax');
    const isOptimized = new Function('f', 'return (%GetOptimizationStatus(f) & 64) !== 0;');
    const hot = () => {
      const add = new Function('a', 'b', 'let c = a; for (let i = 0; i < 100; i++) c += b * i; return c;');
      let sum = 0;
      for (let i = 0; i < 300_000; i++) sum += add(i, sum & 7);
      return add;
    };
    const run = async () => {
      const add = hot();
      await sleep(200);
      add(1, 2);
      return isOptimized(add);
    };
    const states = [await run()];
    optimizeLater(1500);
    states.push(await run());
    await sleep(1500);
    states.push(await run());
    // Soon after, V8 goes on.
    optimizeLater(1500);
    states.push(await run());
    console.log(JSON.stringify(states));`;
  expect(JSON.parse(run(script))).toEqual([true, false, true, true]);
});

it('would say so if it did not', () => {
  expect(run(`import v8 from 'node:v8'; v8.setFlagsFromString('--no-such-setting');`)).toContain(
    'no-such-setting',
  );
});
