// Builds the addon for every platform of the package into prebuilds/, in the layout of node-gyp-build. One
// compiler does them all: zig's, from PyPI, in a virtual environment under build/. `npm pack` runs this.
// A checkout does not: there build.mjs compiles for the machine at hand.
//
//   node native/prebuild.mjs [linux-x64-glibc ...]     all targets, or those that are named
//
// The bytes depend on the sources and on the versions below only, not on the machine or its folders. A target
// whose sources have not changed is left alone.
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join, relative, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

const ZIG = '0.17.1';
/** Debian 10, RHEL 8 and everything after them. */
const GLIBC = [2, 28];

/**
 * The addon exports no symbol of its C++ library, or the loader would take those of Node's own in their
 * place.
 */
const EXPORTS = `{ global: napi_register_module_v1; node_api_module_get_api_version_v1; local: *; };\n`;
const EXPORTS_FILE = 'build/prebuild/exports.map';
const LINUX = ['-Wl,--gc-sections', '-Wl,--build-id=none', `-Wl,--version-script=${EXPORTS_FILE}`];
const TARGETS = {
  'linux-x64-glibc': { triple: `x86_64-linux-gnu.${GLIBC.join('.')}`, link: LINUX },
  'linux-x64-musl': { triple: 'x86_64-linux-musl', link: LINUX },
  'linux-arm64-glibc': { triple: `aarch64-linux-gnu.${GLIBC.join('.')}`, link: LINUX },
  'linux-arm64-musl': { triple: 'aarch64-linux-musl', link: LINUX },
  // Built, and loaded by nobody yet.
  'darwin-arm64': { triple: 'aarch64-macos.11.0', link: ['-Wl,-undefined,dynamic_lookup'] },
};

const root = resolve(dirname(fileURLToPath(import.meta.url)), '..');
const require = createRequire(import.meta.url);

/** node-gyp-build reads tags between the dots: `napi`, and on Linux the C library. */
function fileOf(target) {
  const [platform, arch, libc] = target.split('-');
  return join('prebuilds', `${platform}-${arch}`, `kintsugi-ps.napi${libc ? `.${libc}` : ''}.node`);
}

function python() {
  const venv = join(root, 'build/zig', ZIG);
  const run = join(venv, 'bin/python');
  if (!existsSync(join(venv, 'complete'))) {
    rmSync(venv, { recursive: true, force: true });
    execFileSync('python3', ['-m', 'venv', venv], { stdio: 'inherit' });
    execFileSync(run, ['-m', 'pip', 'install', '-q', `ziglang==${ZIG}`], { stdio: 'inherit' });
    writeFileSync(join(venv, 'complete'), '');
  }
  return run;
}

const gyp = JSON.parse(readFileSync(join(root, 'binding.gyp'), 'utf8')).targets[0];
const sources = execFileSync(process.execPath, ['native/sources.mjs', 'addon'], {
  cwd: root,
  encoding: 'utf8',
})
  .trim()
  .split('\n');
const headers = {
  'node-addon-api': require('node-addon-api').include_dir,
  'node-api-headers': require('node-api-headers').include_dir,
};

function flagsOf({ triple, link }) {
  return [
    ...['-target', triple, '-shared', '-fPIC', '-g0', '-s', '-fno-rtti', '-fvisibility=hidden'],
    ...gyp.cflags_cc.filter((flag) => !flag.startsWith('-W')),
    // Asserts of libc++ in the engine's inner loops would cost time; zig checks for undefined behaviour by
    // default.
    ...['-DNDEBUG', '-fno-sanitize=all', '-ffunction-sections', '-fdata-sections', '-Inative'],
    ...gyp.defines.map((name) => `-D${name}`),
    ...link,
  ];
}

function filesBelow(folder) {
  return readdirSync(join(root, folder), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => relative(root, join(entry.parentPath ?? entry.path, entry.name)))
    .sort();
}

/** Hash of everything that the bytes of the addon depend on. */
function stampOf(target) {
  const hash = createHash('sha256').update(JSON.stringify([ZIG, EXPORTS, flagsOf(TARGETS[target])]));
  for (const name of Object.keys(headers)) hash.update(require(`${name}/package.json`).version);
  for (const folder of ['native/kernels', 'native/engine', 'native/data', 'native/binding']) {
    for (const file of filesBelow(folder)) hash.update(`${file}\0`).update(readFileSync(join(root, file)));
  }
  return hash.digest('hex');
}

/**
 * Checks what a binary needs of the machine that loads it. Names of versions and libraries are plain text in
 * it.
 */
function check(target, path) {
  const text = readFileSync(path, 'latin1');
  const problems = [];
  const newest = [...text.matchAll(/GLIBC_(\d+)\.(\d+)/g)]
    .map(([, major, minor]) => [Number(major), Number(minor)])
    .sort((a, b) => a[0] - b[0] || a[1] - b[1])
    .at(-1);
  if (newest && (newest[0] > GLIBC[0] || (newest[0] === GLIBC[0] && newest[1] > GLIBC[1]))) {
    problems.push(`needs glibc ${newest.join('.')}`);
  }
  if (target.endsWith('glibc') && !newest) problems.push('names no version of glibc');
  if (target.endsWith('musl') && newest) problems.push('is linked with glibc');
  if (target.endsWith('musl') && !/\0libc\.so\0/.test(text)) problems.push('brings a C library of its own');
  for (const library of ['libstdc++.so', 'libgcc_s.so', 'libc++.so']) {
    if (text.includes(library)) problems.push(`needs ${library}`);
  }
  for (const entry of ['napi_register_module_v1', 'node_api_module_get_api_version_v1']) {
    if (!text.includes(entry)) problems.push(`lacks ${entry}`);
  }
  if (/\0_Z(n[wa]|d[la])/.test(text) && target !== 'darwin-arm64') problems.push('exports operator new');
  if (text.includes(root)) problems.push('holds the path of this checkout');
  if (problems.length > 0) throw new Error(`${fileOf(target)} ${problems.join(', ')}`);
  return newest ? `glibc ${newest.join('.')} or newer` : target.endsWith('musl') ? 'musl' : 'untested';
}

function build(target) {
  const file = join(root, fileOf(target));
  const stamp = stampOf(target);
  const stampFile = join(root, 'build/prebuild', `${target}.stamp`);
  const known = existsSync(file) && existsSync(stampFile) ? readFileSync(stampFile, 'utf8') : '';
  const bytesOf = (path) => createHash('sha256').update(readFileSync(path)).digest('hex');
  if (known !== `${stamp} ${existsSync(file) && bytesOf(file)}`) {
    mkdirSync(dirname(file), { recursive: true });
    mkdirSync(dirname(stampFile), { recursive: true });
    writeFileSync(join(root, EXPORTS_FILE), EXPORTS);
    // Relative paths: nothing of this machine gets into the bytes.
    const include = Object.values(headers).flatMap((folder) => ['-I', relative(root, resolve(root, folder))]);
    const made = join('build/prebuild', `${target}.node`);
    const flags = [...flagsOf(TARGETS[target]), ...include];
    const args = ['-m', 'ziglang', 'c++', ...flags, ...sources, '-o', made];
    const caches = {
      ZIG_GLOBAL_CACHE_DIR: join(root, 'build/zig/cache'),
      ZIG_LOCAL_CACHE_DIR: join(root, 'build/zig/cache'),
    };
    execFileSync(python(), args, { cwd: root, stdio: 'inherit', env: { ...process.env, ...caches } });
    check(target, join(root, made));
    renameSync(join(root, made), file);
    writeFileSync(stampFile, `${stamp} ${bytesOf(file)}`);
  }
  const size = (readFileSync(file).length / 1e6).toFixed(2);
  console.log(`${fileOf(target)}  ${size} MB  ${check(target, file)}  sha256 ${bytesOf(file)}`);
}

const asked = process.argv.slice(2);
for (const target of asked) {
  if (TARGETS[target]) continue;
  console.error(`usage: node native/prebuild.mjs [${Object.keys(TARGETS).join('|')} ...]`);
  process.exit(2);
}
for (const target of asked.length > 0 ? asked : Object.keys(TARGETS)) build(target);
