// Builds the addon for this machine with node-gyp: in a checkout, and where the package has none prebuilt.
// Uses the headers that came with the running Node where they are installed, so that nothing is downloaded;
// otherwise leaves node-gyp to its own ways.
import { spawnSync } from 'node:child_process';
import { existsSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

const require = createRequire(import.meta.url);
const project = resolve(dirname(fileURLToPath(import.meta.url)), '..');

// A package takes what prebuild.mjs makes, and nothing of this machine.
if (process.env.npm_command === 'pack' || process.env.npm_command === 'publish') process.exit(0);

const prefix = resolve(dirname(process.execPath), '..');
/** The package does not need them, so that it does not bring them. */
function nodeGyp() {
  try {
    require.resolve('node-addon-api');
    return require.resolve('node-gyp/bin/node-gyp.js');
  } catch {
    console.error('kintsugi-ps: to build the addon, first: npm install node-gyp node-addon-api');
    process.exit(1);
  }
}

// Not `rebuild`, which removes all of build/: what other builds and tests keep lies there, too.
rmSync(join(project, 'build/Release'), { recursive: true, force: true });
const args = [nodeGyp(), 'configure', 'build'];
if (existsSync(join(prefix, 'include/node/node_api.h'))) args.push(`--nodedir=${prefix}`);
const built = spawnSync(process.execPath, args, {
  cwd: project,
  stdio: ['ignore', 'inherit', 'inherit'],
  env: { ...process.env, MAKEFLAGS: process.env.MAKEFLAGS ?? '-j2' },
});
if (built.status !== 0) {
  console.error('kintsugi-ps: the native addon did not build. It needs a C++20 compiler, make and Python 3;');
  console.error('kintsugi-ps: on Debian or Ubuntu: apt-get install g++ make python3, then run it again.');
}
process.exit(built.status ?? 1);
