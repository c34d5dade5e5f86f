// Formats the native sources with clang-format: `node native/format.mjs` checks, `--write` rewrites.
// `npm run lint` checks. clang-format is not a package of this project, and its versions differ. Where
// another one is installed, or none, the check says that it was left out and succeeds, so that nobody needs
// it to contribute.
import { spawnSync } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

/** Debian 12 has it. */
const VERSION = '14';

const root = dirname(fileURLToPath(import.meta.url));
const tool = process.env.CLANG_FORMAT ?? 'clang-format';
const files = [];
for (const folder of ['kernels', 'engine', 'data', 'binding', 'test', 'bench']) {
  for (const name of readdirSync(join(root, folder)).sort()) {
    if (name.endsWith('.cc') || name.endsWith('.h')) files.push(join(root, folder, name));
  }
}
const write = process.argv.includes('--write');
const { stdout } = spawnSync(tool, ['--version'], { encoding: 'utf8' });
const version = /version (\d+)/.exec(stdout ?? '')?.[1];
if (version === undefined || (!write && version !== VERSION)) {
  const found = version === undefined ? 'it is not installed' : `this is version ${version}`;
  console.error(`LEFT OUT: the format of native/, which is that of clang-format ${VERSION}: ${found}`);
  process.exit(0);
}
const mode = write ? ['-i'] : ['--dry-run', '--Werror'];
const run = spawnSync(tool, [...mode, ...files], { cwd: resolve(root, '..'), stdio: 'inherit' });
process.exit(run.status ?? 1);
