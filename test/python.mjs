// `npm run test:python`: lint, types and tests of python/, in an environment of its own. Arguments go to
// pytest. KINTSUGI_PYTHON names another interpreter than python3: tests alone, in an environment of its own.
// KINTSUGI_TEST_TORCH names the PyTorch, such as torch==2.13.0: without, the tests of layers are left out.
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = resolve(dirname(fileURLToPath(import.meta.url)), '..');
const project = join(root, 'python');
// The environment is not below build/, which every build of the addon clears.
const { KINTSUGI_PYTHON: interpreter, KINTSUGI_TEST_TORCH: torch } = process.env;
const environment = join(project, interpreter ? `.venv-${basename(interpreter)}` : '.venv');
const python = join(environment, 'bin/python');

function run(title, command, args, cwd = project) {
  console.log(`\n== ${title}`);
  const { status } = spawnSync(command, args, { cwd, stdio: 'inherit' });
  if (status === 0) return;
  console.error(`\nnpm run test:python: ${title} failed`);
  process.exit(status ?? 1);
}

const stamp = join(environment, 'installed');
const wanted = createHash('sha256')
  .update(readFileSync(join(project, 'pyproject.toml')))
  .digest('hex');
if (!existsSync(stamp) || readFileSync(stamp, 'utf8') !== wanted) {
  run('make an environment', interpreter ?? 'python3', ['-m', 'venv', environment]);
  run('install what tests need', python, ['-m', 'pip', 'install', '-q', '-e', '.[test]']);
  writeFileSync(stamp, wanted);
}
if (torch) run(`install ${torch}`, python, ['-m', 'pip', 'install', '-q', torch]);
else if (spawnSync(python, ['-c', 'import importlib.util as i; assert i.find_spec("torch")']).status !== 0)
  console.log('\nLEFT OUT: the tests with PyTorch. Set KINTSUGI_TEST_TORCH to what pip is to install.');
// Tests run the compiled program.
run('compile', process.execPath, [join(root, 'node_modules/typescript/bin/tsc'), '-b', 'bench'], root);
// Formats and types are checked once, with python3.
if (!interpreter) {
  run('ruff', python, ['-m', 'ruff', 'check', '.']);
  run('ruff format', python, ['-m', 'ruff', 'format', '--check', '.']);
  run('mypy', python, ['-m', 'mypy']);
}
run('pytest', python, ['-m', 'pytest', ...process.argv.slice(2)]);
