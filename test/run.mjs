// `npm test`: the native tests and the addon under AddressSanitizer and UBSan, then the TypeScript tests but
// for whole jobs, which are `npm run test:jobs`.
// Tests that are left out for a missing tool are reported loudly, and fail where CI demands everything.
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = resolve(dirname(fileURLToPath(import.meta.url)), '..');
/** Exit code of a test that could not run. */
const LEFT_OUT = 77;
/** A machine that tests every change has every tool. */
const missingTools = [];
const leftOut = [];

function has(tool) {
  return spawnSync(tool, ['--version'], { stdio: 'ignore' }).status === 0;
}

/** Steps that run beside what follows, because each has work for one core. */
const together = [];
let failed = false;

function ended(title, status) {
  if (status !== 0 && status !== LEFT_OUT) {
    failed = true;
    console.error(`\nnpm test: ${title} failed`);
  }
  return status === 0;
}

/** Ends `npm test` if the step fails, once the steps beside it have said what they say. */
async function run(title, command, args) {
  console.log(`\n== ${title}`);
  const [status] = await once(spawn(command, args, { cwd: root, stdio: 'inherit' }), 'close');
  if (ended(title, status)) return;
  await Promise.all(together);
  process.exit(1);
}

/** The output of the step is shown as a whole when it has ended. Its failure is that of `npm test`. */
function beside(title, command, args) {
  const child = spawn(command, args, { cwd: root, stdio: ['ignore', 'pipe', 'pipe'] });
  const said = [];
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (piece) => said.push(piece));
  const done = once(child, 'close').then(([status]) => {
    console.log(`\n== ${title}\n${Buffer.concat(said)}`);
    return ended(title, status);
  });
  together.push(done);
  return done;
}

const addon = beside('the addon under AddressSanitizer', process.execPath, ['native/test/addon-asan.mjs']);

if (has('cmake')) {
  const build = join(root, 'build/native-test');
  await run('configure native tests', 'cmake', [
    '-S',
    'native/test',
    '-B',
    build,
    '-DCMAKE_BUILD_TYPE=RelWithDebInfo',
  ]);
  await run('build native tests', 'cmake', ['--build', build, '-j', '2']);
  beside('native tests (AddressSanitizer, UBSan)', 'ctest', ['--test-dir', build, '--output-on-failure']);
} else {
  missingTools.push(
    'the native tests under sanitizers: cmake is not installed (Debian: apt-get install cmake)',
  );
}

// The native tests end beside the others, which mostly wait.
// Tests run the compiled CLI, so the present sources are compiled.
await run('compile', process.execPath, [join(root, 'node_modules/typescript/bin/tsc'), '-b', 'bench']);
const vitest = join(root, 'node_modules/vitest/vitest.mjs');
await run('TypeScript tests', process.execPath, [
  vitest,
  'run',
  '--project',
  'parts',
  ...process.argv.slice(2),
]);
await Promise.all(together);
if (failed) process.exit(1);
if (!(await addon)) missingTools.push('the addon under AddressSanitizer: see above');

if (!existsSync(join(root, '../shared/data')))
  leftOut.push('tests on real data: ../shared/data is not there');
if (!process.env.KINTSUGI_TEST_S3)
  leftOut.push('tests of object stores: KINTSUGI_TEST_S3 names no S3 server');
if (!process.env.KUBECONFIG || !process.env.KINTSUGI_TEST_IMAGE)
  leftOut.push('tests on Kubernetes (npm run test:kube): KUBECONFIG and KINTSUGI_TEST_IMAGE name no cluster');
if (!process.env.KINTSUGI_CHROMIUM && !has('chromium'))
  missingTools.push('tests of the dashboard in a browser (Debian: apt-get install chromium)');
if (!has('prometheus')) missingTools.push('tests of deploy/ (Debian: apt-get install prometheus)');
if (!existsSync(join(root, 'build/python')) && !process.env.KINTSUGI_TEST_PYTHON)
  leftOut.push(
    'TensorBoard reading what we write, unless python3 has tensorboard: build/python is not there',
  );
leftOut.push('the tests of python/: npm run test:python');
leftOut.push('whole jobs of real processes and short runs of the benchmarks: npm run test:jobs');
for (const what of [...missingTools, ...leftOut]) console.error(`\nnpm test: LEFT OUT: ${what}`);
if (missingTools.length > 0 && process.env.CI) process.exit(1);
