// The one list of native sources: `node native/sources.mjs addon|engine` prints it for binding.gyp and CMake
// alike. A file is compiled for its own instruction set by attributes in the file (`#pragma GCC target`),
// never by build flags, so both builds need no per-file options.
import { readdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = dirname(fileURLToPath(import.meta.url));
const folders = { engine: ['kernels', 'engine', 'data'], addon: ['kernels', 'engine', 'data', 'binding'] };
const wanted = folders[process.argv[2] ?? 'addon'];
if (!wanted) {
  console.error('usage: node native/sources.mjs addon|engine');
  process.exit(2);
}
for (const folder of wanted) {
  for (const name of readdirSync(join(root, folder)).sort()) {
    if (name.endsWith('.cc')) console.log(`native/${folder}/${name}`);
  }
}
