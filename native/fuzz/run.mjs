// `npm run fuzz -- --seconds 60 [--target NAME] [--runs N]`: builds the fuzz targets with clang and runs them
// two at a time. The seconds are divided evenly, and are those of one core. Starts from the corpus in this
// directory; what is found on the way is kept in build/fuzz, so that a longer run goes on where the last one
// stopped. `--minimize` writes the smallest set of inputs with the same coverage back to this directory. A
// finding is saved, shown, and makes the run fail.
import { spawn, spawnSync } from 'node:child_process';
import { mkdirSync, readdirSync, rmSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';

const here = dirname(fileURLToPath(import.meta.url));
const root = resolve(here, '../..');
const build = join(root, 'build/fuzz');
const targets = readdirSync(here)
  .filter((name) => name.endsWith('_fuzz.cc'))
  .map((name) => name.slice(0, -'_fuzz.cc'.length))
  .sort();
// Stories are only interesting when they are long, so libFuzzer may not begin with short ones there.
const STORIES = new Set(['group', 'recovery', 'snapshot', 'stream']);
const RSS_LIMIT_MB = 3000;
const AT_ONCE = 2;

function usage(message) {
  console.error(`fuzz: ${message}`);
  console.error(
    `usage: npm run fuzz -- [--seconds 60] [--target ${targets.join('|')}] [--runs N] [--minimize]`,
  );
  process.exit(2);
}

function options() {
  const flags = { type: 'string' };
  let values;
  try {
    ({ values } = parseArgs({
      options: { seconds: flags, target: flags, runs: flags, minimize: { type: 'boolean' } },
    }));
  } catch (error) {
    return usage(error.message);
  }
  const seconds = Number(values.seconds ?? 60);
  const runs = values.runs === undefined ? undefined : Number(values.runs);
  if (!(seconds > 0)) usage('--seconds must be a positive number');
  if (runs !== undefined && !(Number.isInteger(runs) && runs > 0)) usage('--runs must be a positive integer');
  if (values.target !== undefined && !targets.includes(values.target)) usage(`no target "${values.target}"`);
  return {
    runs,
    minimize: values.minimize === true,
    chosen: values.target === undefined ? targets : [values.target],
    seconds,
  };
}

function has(tool) {
  return spawnSync(tool, ['--version'], { stdio: 'ignore' }).status === 0;
}

/** Names the tools that are missing and ends the program: as a failure in CI, which demands everything. */
function requireTools(compiler) {
  const missing = [compiler, 'cmake', 'make'].filter((tool) => !has(tool));
  if (missing.length === 0) return;
  console.error(`fuzz: LEFT OUT: ${missing.join(', ')} not found; libFuzzer comes with clang`);
  console.error('fuzz: on Debian or Ubuntu: apt-get install clang cmake make');
  process.exit(process.env.CI ? 1 : 0);
}

function compile(compiler) {
  const run = (command, args) => {
    const done = spawnSync(command, args, {
      cwd: root,
      stdio: ['ignore', 'ignore', 'inherit'],
      env: { ...process.env, CXX: compiler },
    });
    if (done.status !== 0) {
      console.error('fuzz: the targets did not build');
      process.exit(done.status ?? 1);
    }
  };
  run('cmake', ['-S', 'native/fuzz', '-B', build, '-DKINTSUGI_FUZZ=ON']);
  run('cmake', ['--build', build, '-j', '2']);
}

function limits(target) {
  const args = ['-max_len=4096', `-rss_limit_mb=${RSS_LIMIT_MB}`, '-timeout=60'];
  return STORIES.has(target) ? [...args, '-len_control=0'] : args;
}

/** Runs one target; its last lines are kept for a finding. */
function fuzz(target, seconds, runs) {
  const found = join(build, 'corpus', target);
  mkdirSync(found, { recursive: true });
  mkdirSync(join(build, 'findings'), { recursive: true });
  const args = [
    ...limits(target),
    runs === undefined ? `-max_total_time=${Math.max(1, Math.round(seconds))}` : `-runs=${runs}`,
    '-print_final_stats=1',
    `-artifact_prefix=${join(build, 'findings', target)}-`,
    found,
    join(here, 'corpus', target),
  ];
  return new Promise((done) => {
    const child = spawn(join(build, `fuzz_${target}`), args, {
      cwd: build,
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    const tail = [];
    let left = '';
    child.stderr.setEncoding('utf8');
    child.stderr.on('data', (chunk) => {
      const lines = (left + chunk).split('\n');
      left = lines.pop();
      tail.push(...lines);
      tail.splice(0, Math.max(0, tail.length - 200));
    });
    child.on('error', (error) => done({ target, status: 1, tail: [String(error)] }));
    child.on('close', (status) => done({ target, status, tail: [...tail, left] }));
  });
}

function number(lines, pattern) {
  for (const line of lines.toReversed()) {
    const match = pattern.exec(line);
    if (match) return Number(match[1]);
  }
  return 0;
}

function report({ target, status, tail }) {
  const executions = number(tail, /number_of_executed_units:\s*(\d+)/);
  const rate = number(tail, /average_exec_per_sec:\s*(\d+)/);
  const coverage = number(tail, /cov: (\d+)/);
  const verdict = status === 0 ? 'no finding' : 'FINDING';
  console.log(
    `${target.padEnd(10)} ${String(executions).padStart(11)} executions ${String(rate).padStart(8)}/s  ` +
      `${String(coverage).padStart(5)} edges  ${verdict}`,
  );
  if (status === 0) return true;
  console.error(tail.join('\n'));
  const saved = tail.map((line) => /Test unit written to (\S+)/.exec(line)?.[1]).find(Boolean);
  if (saved) console.error(`fuzz: again: build/fuzz/fuzz_${target} ${relative(root, saved)}`);
  return false;
}

function minimize(target) {
  const smallest = join(build, 'smallest', target);
  const kept = join(here, 'corpus', target);
  rmSync(smallest, { recursive: true, force: true });
  mkdirSync(smallest, { recursive: true });
  const merge = (to, from) =>
    spawnSync(join(build, `fuzz_${target}`), [...limits(target), '-set_cover_merge=1', to, ...from], {
      cwd: build,
      stdio: 'ignore',
    }).status === 0;
  if (!merge(smallest, [kept, join(build, 'corpus', target)])) {
    console.error(`fuzz: the corpus of ${target} could not be minimized`);
    process.exit(1);
  }
  rmSync(kept, { recursive: true, force: true });
  mkdirSync(kept, { recursive: true });
  if (!merge(kept, [smallest])) process.exit(1);
  console.log(`${target}: ${readdirSync(kept).length} inputs`);
}

const { chosen, seconds, runs, minimize: minimizing } = options();
const compiler = process.env.CXX ?? 'clang++';
requireTools(compiler);
compile(compiler);
let clean = true;
const queue = [...chosen];
async function runTargets() {
  for (let target = queue.shift(); target; target = queue.shift()) {
    mkdirSync(join(here, 'corpus', target), { recursive: true });
    clean = report(await fuzz(target, seconds / chosen.length, runs)) && clean;
    if (minimizing && clean) minimize(target);
  }
}
await Promise.all(Array.from({ length: AT_ONCE }, runTargets));
process.exit(clean ? 0 : 1);
