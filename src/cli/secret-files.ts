/** Files with secrets that more than their reader can read: a warning at the start of a role. */
import { type Stats, statSync } from 'node:fs';
import type { Logger } from '../net/log.js';

const FLAGS = {
  tokenFile: '--token-file',
  nodeTokenFile: '--node-token-file',
  metricsTokenFile: '--metrics-token-file',
  pullTokenFile: '--pull-token-file',
  tlsKey: '--tls-key',
} as const;

/** Values of the flags that name files with secrets. */
export type SecretFlags = { [flag in keyof typeof FLAGS]?: string };

const GROUP = 0o040;
const OTHERS = 0o004;

/**
 * Warns of each file that group or others can read. The group counts only where the file belongs to `user`:
 * of a file of somebody else, as Kubernetes mounts them, this process can be a reader by its group.
 */
export function warnOfReadable(flags: SecretFlags, log: Logger, user = process.getuid?.()): void {
  // Windows has no such modes.
  if (user === undefined) return;
  for (const [name, flag] of Object.entries(FLAGS)) {
    const file = flags[name as keyof SecretFlags];
    const stats = file === undefined ? undefined : statsOf(file);
    if (!stats || (stats.mode & (stats.uid === user ? GROUP | OTHERS : OTHERS)) === 0) continue;
    const mode = `0${(stats.mode & 0o777).toString(8)}`;
    log.warn('secret.readable', {
      flag,
      file,
      mode,
      message: 'others on this machine can read it: chmod 600',
    });
  }
}

/** undefined: a file that cannot be reached is an error when it is read. */
function statsOf(file: string): Stats | undefined {
  try {
    return statSync(file);
  } catch {
    return undefined;
  }
}
