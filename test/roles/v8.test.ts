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

it('would say so if it did not', () => {
  expect(run(`import v8 from 'node:v8'; v8.setFlagsFromString('--no-such-setting');`)).toContain(
    'no-such-setting',
  );
});
