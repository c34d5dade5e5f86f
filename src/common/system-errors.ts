/** Refusals of the operating system: which limit they are about, and what to raise or to mend. */

/** Errors of limits, which say nothing about the file or the address that was asked for. */
const LIMITS: Readonly<Record<string, string>> = {
  EMFILE:
    'this process has as many open files and sockets as its limit allows; raise "ulimit -n" ' +
    '(LimitNOFILE of systemd, nofile of containers)',
  ENFILE: 'this machine has as many open files as its limit allows; raise the sysctl fs.file-max',
  ENOSPC: 'the disk has no space or no inodes left (see "df" and "df -i"); make room or take another one',
  EDQUOT: 'this user\'s quota of the disk is used up (see "quota"); make room or raise it',
  EFBIG: 'the file is larger than the process may write; raise "ulimit -f"',
  ENOMEM: 'the system gives no more memory; free some or raise "ulimit -v" or the limit of the container',
  ENOBUFS: 'the system has no memory for sockets left; close connections, or raise net.ipv4.tcp_mem',
};

/** Errors of rights, for which what was asked for has to be mended. */
const RIGHTS: Readonly<Record<string, string>> = {
  EACCES: 'the user of this process has no right to it; give it the right, or run as another user',
  EPERM: 'the system does not permit it to the user of this process',
  EROFS: 'the file system is mounted read-only; mount it writable or take another one',
};

/** A bind to a low port needs a right of its own. */
const LOW_PORT =
  'ports below 1024 need the right CAP_NET_BIND_SERVICE; take a higher port, or lower the sysctl ' +
  'net.ipv4.ip_unprivileged_port_start';
/** The limit on processes and threads has no code of its own. */
const PROCESSES =
  'this user has as many processes and threads as its limit allows; raise "ulimit -u" (TasksMax of ' +
  'systemd, pids of containers)';

/** Errors wrap their causes, and a cycle must not hang. */
const MOST_CAUSES = 8;

interface SystemError {
  code?: unknown;
  syscall?: unknown;
  message?: unknown;
  cause?: unknown;
  errors?: unknown;
}

/** The advice about one limit, if this error or one of its causes is that limit; undefined: none is. */
export function systemLimit(error: unknown): string | undefined {
  let each = error as SystemError | undefined | null;
  for (let depth = 0; depth < MOST_CAUSES && typeof each === 'object' && each !== null; depth++) {
    const { code, syscall, message } = each;
    if (typeof code === 'string' && Object.hasOwn(LIMITS, code)) return LIMITS[code];
    if (code === 'EAGAIN' && typeof syscall === 'string' && /^spawn|fork|uv_thread/.test(syscall))
      return PROCESSES;
    if (code === 'ERR_WORKER_INIT_FAILED' && /EAGAIN/.test(String(message))) return PROCESSES;
    each = (each.cause ?? (Array.isArray(each.errors) ? each.errors[0] : undefined)) as typeof each;
  }
  return undefined;
}

/** Advice for an error as the system gave it, what to raise or to mend; undefined: there is none. */
export function systemAdvice(error: unknown): string | undefined {
  const limit = systemLimit(error);
  if (limit !== undefined) return limit;
  const { code, syscall } = (error ?? {}) as SystemError;
  if (code === 'EACCES' && (syscall === 'listen' || syscall === 'bind')) return LOW_PORT;
  return typeof code === 'string' && Object.hasOwn(RIGHTS, code) ? RIGHTS[code] : undefined;
}
