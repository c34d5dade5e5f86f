// Builds the addon with node-gyp. Uses the headers that came with the running Node where they are installed,
// so that nothing is downloaded; otherwise leaves node-gyp to its own ways.
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

const require = createRequire(import.meta.url);
const project = resolve(dirname(fileURLToPath(import.meta.url)), '..');
const prefix = resolve(dirname(process.execPath), '..');
const args = [require.resolve('node-gyp/bin/node-gyp.js'), 'rebuild'];
if (existsSync(join(prefix, 'include/node/node_api.h'))) args.push(`--nodedir=${prefix}`);
const built = spawnSync(process.execPath, args, {
  cwd: project,
  stdio: ['ignore', 'inherit', 'inherit'],
  env: { ...process.env, MAKEFLAGS: process.env.MAKEFLAGS ?? '-j2' },
});
if (built.status !== 0) {
  console.error('kintsugi-ps: the native addon did not build. It needs a C++20 compiler, make and Python 3;');
  console.error(
    'kintsugi-ps: on Debian or Ubuntu: apt-get install g++ make python3, then run npm install again.',
  );
}
process.exit(built.status ?? 1);
