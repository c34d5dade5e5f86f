/**
 * The memory of a real PS while clients ask for far more rows than they read: their answers wait until there
 * is room for them, and a client that reads gets its rows meanwhile.
 */
import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { promisify } from 'node:util';
import { afterAll, describe, expect, it, onTestFinished } from 'vitest';
import { connect } from '../../src/library/client/client.js';
import { hasOpenssl, makeCertificates } from '../net/transport/certificates.js';
import { type Running, record, start } from './support.js';

const run = promisify(execFile);
const MIB = 1 << 20;
const MEMORY_MIB = 512;
const CLIENTS = 40;
const DIM = 65_536;
const KEYS = 900;
/** A PS without rows has so much (docs/planning.md). */
const PROCESS_MIB = 111;
/**
 * Tables are empty. So what `--memory` leaves for them has room for a quarter for answers, for what frames
 * are built in, and for what TLS keeps of them.
 */
const MOST_MIB = 1.15 * (MEMORY_MIB + PROCESS_MIB);
/**
 * The answers of clients that read nothing come to more than this, and stand still: each client has a part of
 * one answer of 7 MB, as much as its socket did not take.
 */
const MUCH_MIB = CLIENTS / 4;
/** The PS is killed above this, so that a defect does not take the machine. */
const KILL_MIB = 3072;
const WATCH_MS = 5;
const STILL_MS = 100;

/** Ways in which the bytes of answers leave a PS: environment and flags. */
interface Way {
  name: string;
  env: NodeJS.ProcessEnv;
  flags: string[];
  caFile?: string;
}

const certificates = hasOpenssl ? makeCertificates() : undefined;
afterAll(() => certificates?.remove());

function* ways(): Generator<Way> {
  yield { name: 'uWebSockets.js', env: { KINTSUGI_TRANSPORT: 'uws' }, flags: [] };
  yield { name: 'ws', env: { KINTSUGI_TRANSPORT: 'ws' }, flags: [] };
  if (!certificates) return;
  const { certFile, keyFile, caFile } = certificates.tls;
  const flags = ['--tls-cert', certFile, '--tls-key', keyFile, '--tls-ca', caFile];
  yield { name: 'TLS', env: {}, flags, caFile };
}

function started(args: string[], { env, flags }: Way): Running {
  const running = start([...args, ...flags], env);
  onTestFinished(() => void running.process.kill('SIGKILL'));
  return running;
}

/** Resident memory in MiB: `VmRSS` now, `VmHWM` the most so far; undefined when the process is gone. */
function resident({ pid }: ChildProcess, field: 'VmRSS' | 'VmHWM'): number | undefined {
  const line = new RegExp(`${field}:\\s+(\\d+) kB`).exec(readFileSync(`/proc/${pid}/status`, 'utf8'));
  return line ? (Number(line[1]) * 1024) / MIB : undefined;
}

/** Answers that clients have not taken, in MiB, as the PS tells. */
async function answerMib(port: number, { caFile }: Way): Promise<number> {
  const { stdout: text } = caFile
    ? await run('curl', ['-s', '--cacert', caFile, `https://127.0.0.1:${port}/metrics`])
    : { stdout: await (await fetch(`http://127.0.0.1:${port}/metrics`)).text() };
  return Number(/kintsugi_memory_bytes{[^}]*part="answers"[^}]*} (\d+)/.exec(text)?.[1]) / MIB;
}

/** Waits until the clients hold much, and no more than a moment ago. */
async function untilFull(port: number, way: Way): Promise<void> {
  for (let before = 0; ; ) {
    const now = await answerMib(port, way);
    if (now >= MUCH_MIB && now === before) return;
    before = now;
    await sleep(STILL_MS);
  }
}

function guarded({ process: child }: Running): void {
  const timer = setInterval(() => {
    if ((resident(child, 'VmRSS') ?? 0) > KILL_MIB) child.kill('SIGKILL');
  }, WATCH_MS);
  child.once('exit', () => clearInterval(timer));
}

describe.runIf(process.platform === 'linux').each([...ways()])('over $name', (way) => {
  it('memory stays near its limits while 40 clients read nothing, and another gets its rows', async () => {
    const scheduler = started(['scheduler', '--listen', '127.0.0.1:0', '--ps', '1', '--code', 'none'], way);
    const { address } = await record(scheduler, 'scheduler.ready');
    const args = ['ps', '--scheduler', `${address}`, '--name', 'ps-0', '--memory', `${MEMORY_MIB}MiB`];
    const ps = started(args, way);
    const { port } = await record(ps, 'ps.listening');
    await record(ps, 'ps.ready');
    guarded(ps);
    const { caFile } = way;
    const client = await connect(`${address}`, caFile ? { tls: { caFile } } : {});
    onTestFinished(() => client.close());
    const spec = { name: 'big', dim: DIM, initializer: { kind: 'constant', value: 3 } } as const;
    const table = await client.createTable(spec);
    const asked = [`${address}`, `${CLIENTS}`, JSON.stringify(spec), `${KEYS}`, caFile ?? ''];
    const fixture = new URL('../fixtures/never-reads.mjs', import.meta.url).pathname;
    const stopped = spawn(process.execPath, [fixture, ...asked], { stdio: ['ignore', 'pipe', 'inherit'] });
    onTestFinished(() => void stopped.kill('SIGKILL'));
    for await (const line of createInterface({ input: stopped.stdout })) if (line === 'asked') break;
    await untilFull(port as number, way);
    const few = BigUint64Array.from({ length: 64 }, (_, i) => BigInt(i));
    for (let round = 0; round < 4; round++) {
      const rows = await table.pull(few);
      expect(rows.every((value) => value === 3)).toBe(true);
    }
    expect(await answerMib(port as number, way)).toBeLessThanOrEqual(MEMORY_MIB / 4);
    expect(resident(ps.process, 'VmHWM')).toBeLessThan(MOST_MIB);
  }, 120_000);
});
