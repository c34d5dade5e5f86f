// Which file is loaded as the addon, without an install script.
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import {
  addonAdvice,
  addonFile,
  currentPlatform,
  libcIn,
  platformText,
  prebuiltFile,
} from '../../src/engine/addon-file.js';

let root: string;
const named = process.env.KINTSUGI_ADDON;

beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'kintsugi-addon-'));
  delete process.env.KINTSUGI_ADDON;
});

afterEach(() => {
  rmSync(root, { recursive: true, force: true });
  if (named === undefined) delete process.env.KINTSUGI_ADDON;
  else process.env.KINTSUGI_ADDON = named;
});

describe('the addon', () => {
  it('is the prebuilt one of this system where nothing was compiled', () => {
    expect(addonFile(root)).toEqual({ path: prebuiltFile(currentPlatform(), root), origin: 'prebuilt' });
  });

  it('is the one that was compiled here before the prebuilt one', () => {
    const compiled = join(root, 'build/Release/kintsugi.node');
    mkdirSync(join(root, 'build/Release'), { recursive: true });
    writeFileSync(compiled, '');
    mkdirSync(join(root, 'prebuilds'));
    expect(addonFile(root)).toEqual({ path: compiled, origin: 'compiled' });
  });

  it('is the one that KINTSUGI_ADDON names before all others', () => {
    process.env.KINTSUGI_ADDON = '/of/my/own.node';
    expect(addonFile(root)).toEqual({ path: '/of/my/own.node', origin: 'named' });
  });

  it('has the names that node-gyp-build reads', () => {
    expect(prebuiltFile({ platform: 'linux', arch: 'arm64', libc: 'musl' }, '/p')).toBe(
      '/p/prebuilds/linux-arm64/kintsugi-ps.napi.musl.node',
    );
    expect(prebuiltFile({ platform: 'darwin', arch: 'arm64', libc: undefined }, '/p')).toBe(
      '/p/prebuilds/darwin-arm64/kintsugi-ps.napi.node',
    );
  });

  it('says what to run when it does not load', () => {
    const path = join(root, 'no.node');
    expect(addonAdvice({ path, origin: 'named' })).toContain('KINTSUGI_ADDON');
    // Sources of a checkout are beside these tests.
    expect(addonAdvice({ path, origin: 'prebuilt' })).toContain('npm run build');
  });
});

describe('the running system', () => {
  it.each([
    ['/lib/ld-musl-x86_64.so.1', 'musl'],
    ['/usr/lib/x86_64-linux-musl/libc.so', 'musl'],
    ['/usr/lib/x86_64-linux-gnu/libc.so.6', 'glibc'],
    ['/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2', 'glibc'],
  ])('has the C library that is mapped: %s', (file, libc) => {
    expect(libcIn(`7f0000000000-7f0000001000 r-xp 00000000 08:01 7 ${file}\n`)).toBe(libc);
  });

  it('has a C library on Linux only', () => {
    const system = currentPlatform();
    expect(system.libc === undefined).toBe(process.platform !== 'linux');
    expect(platformText({ platform: 'linux', arch: 'x64', libc: 'musl' })).toBe('linux-x64 (musl)');
  });
});
