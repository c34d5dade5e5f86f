/**
 * Delay on a cable, where the kernel has no sch_netem: a program takes every frame out of the kernel and puts
 * it back later, in order. It stands between two TAP devices. Needs Linux, root and Python 3 (which compiling
 * the addon needs, too); Node.js cannot open TAP devices.
 */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { KintsugiError } from '../../src/common/errors.js';

/** Python program: frames from the first device come late out of the second; the other way has no delay. */
const PROGRAM = `
import collections, fcntl, os, select, struct, sys, time
TUNSETIFF, TAP_WITHOUT_HEADER = 0x400454ca, 0x1002
def tap(name):
    fd = os.open('/dev/net/tun', os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(fd, TUNSETIFF, struct.pack('16sH22x', name.encode(), TAP_WITHOUT_HEADER))
    return fd
near, far = tap(sys.argv[1]), tap(sys.argv[2])
late = float(sys.argv[3]) / 1000
held = collections.deque()
def put(fd, frame):
    try:
        os.write(fd, frame)
    except OSError:
        pass  # The device is down, or full: a cable loses it.
print('ready', flush=True)
while True:
    wait = max(0, held[0][0] - time.monotonic()) if held else None
    for fd in select.select([near, far, 0], [], [], wait)[0]:
        if fd == 0:
            sys.exit(0)
        try:
            frame = os.read(fd, 65536)
        except OSError:
            continue
        if fd == near:
            held.append((time.monotonic() + late, frame))
        else:
            put(near, frame)
    while held and held[0][0] <= time.monotonic():
        put(far, held.popleft()[1])
`;

/** Why there can be no such delay here; undefined: there can. */
export function whyNoDelay(): string | undefined {
  if (!existsSync('/dev/net/tun')) return 'the kernel has neither sch_netem nor TAP devices';
  if (spawnSync('python3', ['-V']).error) return 'the kernel has no sch_netem, and "python3" is missing';
  return undefined;
}

/**
 * Both devices exist when this resolves, and are gone when the process ends. It ends with this process.
 * `prefix`: what a command line begins with that is to run in the right network namespace.
 * @throws INTERNAL where it cannot run
 */
export async function delayBetween(
  prefix: readonly string[],
  near: string,
  far: string,
  delayMs: number,
): Promise<ChildProcess> {
  const [program, ...args] = [...prefix, 'python3', '-c', PROGRAM, near, far, `${delayMs}`];
  const delay = spawn(program!, args, { stdio: ['pipe', 'pipe', 'pipe'] });
  let said = '';
  delay.stderr.on('data', (text: Buffer) => {
    said += text.toString();
  });
  const failed = once(delay, 'close').then(() => {
    throw new KintsugiError('INTERNAL', `no delay can be made here: ${said.trim()}`);
  });
  await Promise.race([once(delay.stdout, 'data'), failed]);
  failed.catch(() => {});
  return delay;
}
