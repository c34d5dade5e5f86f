/**
 * The simulator must be able to fail: each mutant (planted.ts) is edited into a copy of the compiled core and must be caught. One
 * that survives is a hole in the simulator or a rule that is not needed.
 *
 * The budget of a hunt is processor time, so that a busy machine does not let mutants get away.
 */
import { spawn } from 'node:child_process';
import { cpSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { MUTANTS, type Mutant } from './planted.js';

const HUNTERS = 2;
const dist = join(dirname(fileURLToPath(import.meta.url)), '..');
/** Below the project, so that packages resolve as usual; one folder per hunt, so that two do not meet. */
const scratch = join(dist, `../build/mutants-${process.pid}`);

function edited({ name, file, from, to, place }: Mutant): string {
  const parts = readFileSync(join(dist, 'core', `${file}.js`), 'utf8').split(from);
  const at = place ?? 0;
  if (place === undefined ? parts.length !== 2 : parts.length <= at + 1)
    throw new Error(`mutant "${name}": its text is ${parts.length - 1} times in ${file}.js`);
  return parts.slice(0, at + 1).join(from) + to + parts.slice(at + 1).join(from);
}

function plant(mutant: Mutant, folder: string): void {
  mkdirSync(folder, { recursive: true });
  const filter = (path: string) => !path.endsWith('.map') && !path.endsWith('.d.ts');
  cpSync(dist, folder, { recursive: true, filter });
  writeFileSync(join(folder, 'core', `${mutant.file}.js`), edited(mutant));
}

interface Verdict {
  by: string | undefined;
  wallSeconds: number;
  /** Unknown for one that hangs. */
  cpuSeconds: number | undefined;
}

/** The report that the simulator ends with, if it came to an end. */
function cpuSecondsOf(output: string): number | undefined {
  try {
    return (JSON.parse(output) as { cpuSeconds: number }).cpuSeconds;
  } catch {
    return undefined;
  }
}

function hunt(mutant: Mutant, seconds: number, seed: number): Promise<Verdict> {
  const folder = join(scratch, mutant.name.replace(/\W+/g, '-'));
  plant(mutant, folder);
  const args = ['--seed', `${seed}`, '--cpu-seconds', `${seconds}`, '--max-violations', '1', '--json'];
  const started = process.hrtime.bigint();
  return new Promise((resolve, reject) => {
    const env = { ...process.env, KINTSUGI_ADDON: join(dist, '../build/Release/kintsugi.node') };
    const child = spawn(process.execPath, [join(folder, 'sim/main.js'), ...args], {
      stdio: ['ignore', 'pipe', 'pipe'],
      env,
    });
    let output = '';
    let errors = '';
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      output += text;
    });
    child.stderr.setEncoding('utf8').on('data', (text: string) => {
      errors += text;
    });
    // A mutant may hang a single schedule for ever: that is caught, too, by the absence of an end.
    const timer = setTimeout(() => child.kill('SIGKILL'), (seconds * 8 + 60) * 1000);
    child.on('error', reject);
    child.on('close', (code) => {
      clearTimeout(timer);
      rmSync(folder, { recursive: true, force: true });
      const wallSeconds = Number(process.hrtime.bigint() - started) / 1e9;
      const by = code === 0 ? undefined : (errors.split('\n')[0] ?? '') || 'it hangs';
      resolve({ by, wallSeconds, cpuSeconds: cpuSecondsOf(output) });
    });
  });
}

/** Hunts every mutant, two at a time, for so much processor time each. Returns the number that survived. */
export async function huntMutants(seconds: number, seed: number, only?: string): Promise<number> {
  const chosen = MUTANTS.filter((mutant) => only === undefined || mutant.name.includes(only));
  const queue = chosen.filter((mutant) => only !== undefined || mutant.unreached === undefined);
  for (const { name, unreached } of chosen.filter((mutant) => !queue.includes(mutant)))
    console.log(`${name}: not hunted: ${unreached}`);
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
    await Promise.all(Array.from({ length: HUNTERS }, hunter));
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
  console.log(`${count - survivors.length} of ${count} mutants caught`);
  for (const name of survivors) console.log(`survived: ${name}`);
  return survivors.length;
}
