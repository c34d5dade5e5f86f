/**
 * A processor without AVX runs the scalar kernels and meets no instruction that it does not know. qemu's user
 * mode is such a processor.
 */
import { execFile, spawnSync } from 'node:child_process';
import { promisify } from 'node:util';
import { expect, it } from 'vitest';
import { addonFile } from '../../src/engine/addon-file.js';
import { loadNative } from '../../src/engine/native.js';

const EMULATOR = 'qemu-x86_64';
/** The last Intel processors without AVX, and the first with AVX but without AVX2. */
const PROCESSORS = ['Nehalem', 'SandyBridge'];

const emulated = process.arch === 'x64' && spawnSync(EMULATOR, ['--version']).status === 0;
if (!emulated) console.error(`LEFT OUT: processors without AVX2: no ${EMULATOR} (Debian: qemu-user)`);

/** Multiplies and adds over bytes that do not fit any vector width. */
const SCRIPT = `
  const native = require(process.argv[1]);
  const sum = new Uint8Array(1001).fill(7);
  native.mulAdd(sum, Uint8Array.from(sum, (_, i) => i), 29);
  console.log(native.isa, Buffer.from(sum).toString('hex'));`;

it.skipIf(!emulated).each(PROCESSORS)(
  '%s runs the scalar kernels',
  { timeout: 300_000 },
  async (processor) => {
    const run = [process.execPath, '--jitless', '-e', SCRIPT, addonFile().path];
    const { stdout } = await promisify(execFile)(EMULATOR, ['-cpu', processor, ...run]);
    const sum = new Uint8Array(1001).fill(7);
    loadNative().mulAdd(
      sum,
      Uint8Array.from(sum, (_, i) => i),
      29,
    );
    expect(stdout.trim()).toBe(`scalar ${Buffer.from(sum).toString('hex')}`);
  },
);
