/** Runs the real command line, as compiled: `npm install` (or `npm run build`) makes it. */
import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';

export const CLI = fileURLToPath(new URL('../../dist/src/cli/main.js', import.meta.url));
if (!existsSync(CLI)) throw new Error(`${CLI} is not there: run "npm run build"`);

export interface Output {
  /** Null: a signal has ended it. */
  code: number | null;
  signal: NodeJS.Signals | null;
  stdout: string;
  stderr: string;
  /** Lines of standard error that are not log records. */
  said: string[];
}

/** Runs a command to its end. */
export async function kintsugi(args: string[], env: NodeJS.ProcessEnv = {}): Promise<Output> {
  const running = start(args, env);
  return running.ended;
}

export interface Running {
  process: ChildProcess;
  ended: Promise<Output>;
  /**
   * The first line of standard error, now or later, that `matches`, or a later one (`nth`, from 0); rejects
   * when the process ends without it.
   */
  line(matches: (line: string) => boolean, nth?: number): Promise<string>;
}

/**
 * Starts a command. With `stdin` "pipe", `process.stdin` writes to it. `fileBytes` limits the size of every
 * file that the process writes. `node` is the program that runs it.
 */
export function start(
  args: string[],
  env: NodeJS.ProcessEnv = {},
  stdin: 'ignore' | 'pipe' = 'ignore',
  fileBytes?: number,
  cwd?: string,
  node = process.execPath,
): Running {
  // The shell ignores SIGXFSZ, so a write beyond the limit is an error, as on a full disk.
  const limited = ['-c', `trap '' XFSZ; ulimit -f ${(fileBytes ?? 0) / 512}; exec "$@"`, 'sh', node];
  const [command, before] = fileBytes === undefined ? [node, []] : ['/bin/sh', limited];
  const child = spawn(command, [...before, CLI, ...args], {
    cwd,
    env: { ...process.env, KINTSUGI_TOKEN: '', KINTSUGI_NODE_TOKEN: '', ...env },
    stdio: [stdin, 'pipe', 'pipe'],
  });
  let stdout = '';
  const lines: string[] = [];
  const waiters = new Set<() => void>();
  child.stdout!.on('data', (chunk: Buffer) => {
    stdout += chunk.toString();
  });
  createInterface({ input: child.stderr! }).on('line', (line) => {
    lines.push(line);
    for (const waiter of waiters) waiter();
  });
  let over = false;
  const ended = new Promise<Output>((resolve) => {
    child.on('close', (code, signal) => {
      over = true;
      for (const waiter of waiters) waiter();
      resolve({
        code,
        signal,
        stdout,
        stderr: lines.join('\n'),
        said: lines.filter((line) => !line.startsWith('{')),
      });
    });
  });
  const line = (matches: (line: string) => boolean, nth = 0) =>
    new Promise<string>((resolve, reject) => {
      const look = () => {
        const found = lines.filter(matches)[nth];
        if (found === undefined && !over) return;
        waiters.delete(look);
        if (found !== undefined) resolve(found);
        else reject(new Error(`the process ended: ${lines.join(' | ')}`));
      };
      waiters.add(look);
      look();
    });
  return { process: child, ended, line };
}

/** The fields of the first log record of that name, or of a later one (`nth`, from 0). */
export async function record(running: Running, event: string, nth = 0): Promise<Record<string, unknown>> {
  const line = await running.line((text) => text.includes(`"event":"${event}"`), nth);
  return JSON.parse(line) as Record<string, unknown>;
}
