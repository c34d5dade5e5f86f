/** The machine that this process runs on. */
import { readFileSync } from 'node:fs';

const BOOT_ID = '/proc/sys/kernel/random/boot_id';

/**
 * An id that the processes of one machine share until it is booted again; undefined where there is none. The
 * id is the kernel's, so containers on one machine have the same one, although their host names and the
 * /etc/machine-id of their images differ.
 */
export function machineId(): string | undefined {
  try {
    return readFileSync(BOOT_ID, 'utf8').trim().slice(0, 64) || undefined;
  } catch {
    return undefined;
  }
}
