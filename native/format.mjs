// Formats the native sources with clang-format: `node native/format.mjs` checks, `--write` rewrites.
// clang-format is not a package of this project; where it is not installed the script says so and succeeds,
// so that nobody needs it to contribute.
import { spawnSync } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = dirname(fileURLToPath(import.meta.url));
const tool = process.env.CLANG_FORMAT ?? 'clang-format';
const files = [];
for (const folder of ['kernels', 'engine', 'data', 'binding', 'test', 'bench']) {
  for (const name of readdirSync(join(root, folder)).sort()) {
    if (name.endsWith('.cc') || name.endsWith('.h')) files.push(join(root, folder, name));
  }
}
const mode = process.argv.includes('--write') ? ['-i'] : ['--dry-run', '--Werror'];
const run = spawnSync(tool, [...mode, ...files], { cwd: resolve(root, '..'), stdio: 'inherit' });
if (run.error) {
  console.error(
    `kintsugi-ps: ${tool} is not installed (apt-get install clang-format); ` +
      'the native sources were not checked',
  );
  process.exit(0);
}
process.exit(run.status ?? 1);
