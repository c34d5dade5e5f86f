/**
 * How a role's process ends: by SIGTERM or SIGINT, in order; or, when a launcher started it, with its
 * launcher. The launcher holds the other end of standard input, so that even a SIGKILL of the launcher is
 * noticed and leaves no role behind.
 */
import { constants } from 'node:os';

export const LIFELINE_ENV = 'KINTSUGI_LIFELINE';

/** Exits when standard input ends, if a launcher asked for it. Call it first, before anything can block. */
export function followLauncher(): void {
  if (process.env[LIFELINE_ENV] !== 'stdin') return;
  const leave = () => process.exit(1);
  process.stdin.on('end', leave).on('close', leave).on('error', leave);
  process.stdin.resume();
}

/** Resolves when the launcher is gone, if one started this process. A gateway says goodbye first. */
export function launcherGone(): Promise<void> {
  return new Promise((resolve) => {
    if (process.env[LIFELINE_ENV] !== 'stdin') return;
    const gone = () => resolve();
    process.stdin.on('end', gone).on('close', gone).on('error', gone);
    process.stdin.resume();
  });
}

/** Resolves at the first SIGTERM or SIGINT, with its name; a second one ends the process at once. */
export function stopSignal(): Promise<NodeJS.Signals> {
  return new Promise((resolve) => {
    let stopping = false;
    const stop = (signal: NodeJS.Signals) => {
      if (stopping) process.exit(130);
      stopping = true;
      resolve(signal);
    };
    process.on('SIGTERM', stop).on('SIGINT', stop);
  });
}

/**
 * Ends the process by the signal that told it to, as a program without a handler ends: whoever waits for it
 * sees that its work is not done.
 */
export async function endBy(signal: NodeJS.Signals): Promise<never> {
  await new Promise<void>((resolve) => process.stderr.write('', () => resolve()));
  process.removeAllListeners(signal);
  process.kill(process.pid, signal);
  // The first process of a container is not ended by it.
  process.exit(128 + constants.signals[signal]);
}

/** `ended` rejects when `end` is called: a role that cannot go on. It may be called before anybody waits. */
export function failure(): { ended: Promise<never>; end: (error: Error) => void } {
  let end: (error: Error) => void = () => {};
  const ended = new Promise<never>((_, reject) => {
    end = reject;
  });
  ended.catch(() => {});
  return { ended, end };
}
