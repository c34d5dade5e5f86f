// `npm run test:python:all`: `npm run test:python` with every Python that the package is for, one after the
// other. Interpreters are found on the PATH, and where pyenv keeps them. Arguments go to pytest.
import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync } from 'node:fs';
import { homedir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const VERSIONS = ['3.10', '3.11', '3.12', '3.13'];
const tests = join(dirname(fileURLToPath(import.meta.url)), 'python.mjs');
const kept = join(process.env.PYENV_ROOT ?? join(homedir(), '.pyenv'), 'versions');

function interpreterOf(version) {
  const folders = existsSync(kept) ? readdirSync(kept).filter((name) => name.startsWith(`${version}.`)) : [];
  const places = [`python${version}`, ...folders.map((name) => join(kept, name, `bin/python${version}`))];
  return places.find((place) => spawnSync(place, ['-c', '']).status === 0);
}

const found = [];
for (const version of VERSIONS) {
  const interpreter = interpreterOf(version);
  let said = 'LEFT OUT: it is not installed';
  if (interpreter) {
    const env = { ...process.env, KINTSUGI_PYTHON: interpreter };
    const { status } = spawnSync(process.execPath, [tests, ...process.argv.slice(2)], {
      stdio: 'inherit',
      env,
    });
    said = status === 0 ? 'passed' : 'FAILED';
  }
  found.push(`Python ${version}: ${said}`);
}
console.log(`\n${found.join('\n')}`);
process.exit(found.some((line) => line.endsWith('FAILED')) ? 1 : 0);
