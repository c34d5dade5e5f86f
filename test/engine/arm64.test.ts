/**
 * The kernels for AArch64 (NEON): compiled by Debian's cross compiler with warnings as errors, and their
 * tests run by qemu's user mode, so that a machine without such a processor checks them as well.
 */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';

const COMPILER = 'aarch64-linux-gnu-g++';
const EMULATOR = 'qemu-aarch64';
const has = (tool: string) => spawnSync(tool, ['--version'], { stdio: 'ignore' }).status === 0;
const compiles = has(COMPILER);
const runs = compiles && has(EMULATOR);
if (!runs) {
  const what = compiles ? `${EMULATOR} (Debian: qemu-user)` : `${COMPILER} (Debian: g++-aarch64-linux-gnu)`;
  console.error(`\nLEFT OUT: tests of the kernels for AArch64: ${what} is not installed`);
}

const directory = mkdtempSync(join(tmpdir(), 'kintsugi-arm64-'));
const program = join(directory, 'kernels');
afterAll(() => rmSync(directory, { recursive: true, force: true }));

describe.skipIf(!compiles)('the kernels for AArch64', () => {
  test('compile without a warning', { timeout: 300_000 }, () => {
    const kernels = readdirSync('native/kernels').filter((name) => name.endsWith('.cc'));
    const sources = [
      ...kernels.map((name) => `native/kernels/${name}`),
      'native/test/kernels_test.cc',
      'native/test/main.cc',
    ];
    const flags = ['-O2', '-ffp-contract=off', '-std=c++20', '-fno-exceptions', '-static', '-Inative'];
    const warnings = ['-Wall', '-Wextra', '-Werror'];
    const built = spawnSync(COMPILER, [...flags, ...warnings, ...sources, '-o', program], {
      encoding: 'utf8',
    });
    expect(built.stderr).toBe('');
    expect(built.status).toBe(0);
  });

  test.skipIf(!runs)('give the bits of the scalar reference', { timeout: 300_000 }, () => {
    const run = spawnSync(EMULATOR, [program], { encoding: 'utf8' });
    expect(run.stderr).toBe('');
    expect(run.status).toBe(0);
    expect(run.stdout).toContain('neon stepRowsAgainstOneByOne');
  });
});
