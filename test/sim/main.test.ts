/** The simulator's command line refuses arguments with which it would check nothing. */
import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';

const MAIN = fileURLToPath(new URL('../../dist/src/sim/main.js', import.meta.url));

it.each([
  ['a parameter that no schedule has', ['--pin', 'wokers=1'], 2, '--pin wokers=1'],
  ['a parameter without a value', ['--pin', 'workers'], 2, '--pin workers'],
  [
    'a name that no mutant has',
    ['--mutants', '--only', 'nobody planted it'],
    2,
    /^kintsugi: BAD_ARGUMENT: there is no such mutant: nobody planted it\n$/,
  ],
])('refuses %s', (_, args, code, message) => {
  const { status, stderr } = spawnSync(process.execPath, [MAIN, '--schedules', '1', ...args], {
    encoding: 'utf8',
  });
  expect([status, stderr]).toEqual([code, expect.stringMatching(message)]);
});
