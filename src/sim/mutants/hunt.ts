/**
 * The simulator must be able to fail. Each mutant is edited into a copy of the compiled core and must be
 * caught, by random schedules or, where the mutant says so, by a scenario test that runs against that copy. A
 * mutant that survives is a hole in the simulator or a rule that is not needed.
 *
 * The budget of a hunt is processor time, so that a busy machine does not let mutants get away.
 */
import { spawn } from 'node:child_process';
import { cpSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { KintsugiError } from '../../common/errors.js';
import { PACKAGE_ROOT } from '../../common/package-root.js';
import { addonFile } from '../../engine/addon-file.js';
import { MUTANTS } from './index.js';
import { compiledPath, type Mutant, planted } from './mutant.js';

const HUNTERS = 2;
/** Beginning of the simulator's report of a violation. */
const VIOLATION = 'seed ';
/** Folder of the compiled src/. */
const dist = join(dirname(fileURLToPath(import.meta.url)), '../..');
const root = PACKAGE_ROOT;
/** Folder of the copies: below the project, so that packages resolve as usual, and one for each hunt. */
const scratch = join(root, `build/mutants-${process.pid}`);

function edited(mutant: Mutant): string {
  return planted(mutant, readFileSync(join(dist, compiledPath(mutant)), 'utf8'));
}

/** Makes a copy of everything compiled. */
function copied(name: string): string {
  const folder = join(scratch, name.replace(/\W+/g, '-'));
  mkdirSync(folder, { recursive: true });
  const filter = (path: string) => !path.endsWith('.map') && !path.endsWith('.d.ts');
  cpSync(dist, folder, { recursive: true, filter });
  return folder;
}

interface MutantVerdict {
  by: string | undefined;
  wallSeconds: number;
  /** Undefined for a mutant that hangs. */
  cpuSeconds: number | undefined;
}

interface Ended {
  code: number | null;
  /** The process used up its processor time. */
  hung: boolean;
  output: string;
  errors: string;
}

function run(args: readonly string[], env: Record<string, string>, cpuSeconds: number): Promise<Ended> {
  return new Promise((resolve, reject) => {
    // The system sets the limit: a process that hangs cannot look at a clock.
    const limited = ['-c', 'ulimit -t "$0"; exec "$@"', `${cpuSeconds}`, process.execPath, ...args];
    const child = spawn('/bin/sh', limited, {
      cwd: root,
      stdio: ['ignore', 'pipe', 'pipe'],
      env: { ...process.env, KINTSUGI_ADDON: addonFile(root).path, ...env },
    });
    let output = '';
    let errors = '';
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      output += text;
    });
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      errors += text;
    });
    child.on('error', reject);
    child.on('close', (code, signal) => {
      resolve({ code, hung: signal === 'SIGXCPU' || signal === 'SIGKILL', output, errors });
    });
  });
}

/** The report that the simulator ends with, if it came to an end. */
function cpuSecondsOf(output: string): number | undefined {
  try {
    return (JSON.parse(output) as { cpuSeconds: number }).cpuSeconds;
  } catch {
    return undefined;
  }
}

async function bySchedules(
  folder: string,
  seconds: number,
  seed: number,
): Promise<Omit<MutantVerdict, 'wallSeconds'>> {
  const args = ['--seed', `${seed}`, '--cpu-seconds', `${seconds}`, '--max-violations', '1', '--json'];
  // A mutant may hang a single schedule for ever: that is caught, too, by the absence of an end.
  const { code, hung, output, errors } = await run([join(folder, 'sim/main.js'), ...args], {}, 2 * seconds);
  const [said] = errors.split('\n');
  // Any other failure to run the simulator would catch every mutant.
  if (code !== 0 && !hung && !said?.startsWith(VIOLATION))
    throw new Error(`the simulator ended with ${code}: ${errors.slice(0, 500)}`);
  const by = code === 0 ? undefined : hung ? 'a schedule hangs' : said;
  return { by, cpuSeconds: cpuSecondsOf(output) };
}

/**
 * Runs test files against a compiled copy (vitest.config.ts). The name of the first test that fails, or
 * undefined.
 */
async function byScenario(folder: string, tests: readonly string[]): Promise<string | undefined> {
  const vitest = join(root, 'node_modules/vitest/vitest.mjs');
  const { code, output } = await run(
    [vitest, 'run', ...tests, '--reporter=json'],
    { KINTSUGI_COMPILED: folder },
    300,
  );
  if (code === 0) return undefined;
  const { testResults } = JSON.parse(output) as {
    testResults: { name: string; assertionResults: { status: string; fullName: string }[] }[];
  };
  const results = testResults.flatMap(({ name, assertionResults }) =>
    assertionResults.map((each) => ({ ...each, test: relative(root, name) })),
  );
  const failed = results.find(({ status }) => status === 'failed');
  if (!failed) throw new Error(`${tests.join(' ')} did not run: ${output.slice(0, 500)}`);
  return `${failed.test}: ${failed.fullName.trim()}`;
}

async function hunt(mutant: Mutant, seconds: number, seed: number): Promise<MutantVerdict> {
  const folder = copied(mutant.name);
  const started = process.hrtime.bigint();
  try {
    writeFileSync(join(folder, compiledPath(mutant)), edited(mutant));
    const verdict = mutant.scenario
      ? { by: await byScenario(folder, [mutant.scenario.test]), cpuSeconds: undefined }
      : await bySchedules(folder, seconds, seed);
    return { ...verdict, wallSeconds: Number(process.hrtime.bigint() - started) / 1e9 };
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Checks that no scenario fails without a bug: it would catch every mutant. */
async function checkScenarios(mutants: readonly Mutant[]): Promise<void> {
  const tests = new Set(mutants.flatMap(({ scenario }) => scenario?.test ?? []));
  if (tests.size === 0) return;
  const failed = await byScenario(copied('no bug'), [...tests]);
  if (failed) throw new Error(`fails without a planted bug: ${failed}`);
}

/** Part `part` of `parts`, from 1. Every mutant is in exactly one part. */
export interface HuntPart {
  part: number;
  parts: number;
}

/**
 * Hunts mutants, two at a time, with `seconds` of processor time each: the mutants of one part, or those with
 * `only` in their names. Returns the number that survived. @throws BAD_ARGUMENT if there is no such mutant
 */
export async function huntMutants(
  seconds: number,
  seed: number,
  only: string | undefined,
  { part, parts }: HuntPart,
): Promise<number> {
  const queue = MUTANTS.filter(
    ({ name }, index) => (only === undefined || name.includes(only)) && index % parts === part - 1,
  );
  if (queue.length === 0) throw new KintsugiError('BAD_ARGUMENT', `there is no such mutant: ${only ?? ''}`);
  // All texts must be there before the first hunt begins.
  for (const mutant of queue) edited(mutant);
  const count = queue.length;
  const survivors: string[] = [];
  const hunter = async () => {
    for (let mutant = queue.shift(); mutant; mutant = queue.shift()) {
      const { by, wallSeconds, cpuSeconds } = await hunt(mutant, seconds, seed);
      if (by === undefined) survivors.push(mutant.name);
      const verdict = by === undefined ? 'SURVIVED' : `caught: ${by.slice(0, 140)}`;
      const cpu = cpuSeconds === undefined ? '' : `, ${cpuSeconds.toFixed(1)} s processor`;
      console.log(`${mutant.name} (${wallSeconds.toFixed(1)} s${cpu}): ${verdict}`);
    }
  };
  try {
    await checkScenarios(queue);
    await Promise.all(Array.from({ length: HUNTERS }, hunter));
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
  console.log(`${count - survivors.length} of ${count} mutants caught`);
  for (const name of survivors) console.log(`survived: ${name}`);
  return survivors.length;
}
