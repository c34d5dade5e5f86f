/** Commands that a command prints for people: they reach the same job when they are pasted. */
import { commandLine } from '../fleet/dashboard/actions.js';
import type { ConnectFlags } from './connected.js';
import type { SharedFlags } from './flags.js';

/** Flags by which another command reaches the same job. Secrets are in files or in the environment. */
export function reachFlags(scheduler: string, flags: SharedFlags): string[] {
  const reach = ['--scheduler', scheduler];
  if (flags.tokenFile !== undefined) reach.push('--token-file', flags.tokenFile);
  if (flags.tlsCa !== undefined) reach.push('--tls-ca', flags.tlsCa);
  if (flags.tlsName !== undefined) reach.push('--tls-name', flags.tlsName);
  return reach;
}

/** `kintsugi` with these words and the flags that were given to this command. */
export const hint = (words: readonly string[], flags: ConnectFlags): string =>
  commandLine([...words, ...reachFlags(flags.scheduler, flags)]);
