/**
 * V8 flags of the roles. A role does the same few things thousands of times a second, beside a trainer that
 * needs the cores. V8's defaults were measured to be worse for it (bench/README.md). Programs that embed the
 * library keep their own settings.
 */
import { setFlagsFromString } from 'node:v8';

const SETTINGS = [
  // Keep code that has not run for a few collections: recoveries are rare.
  '--no-flush-bytecode',
  // Rows and frames are arrays outside of the heap that live for a moment. V8 adds them to the old
  // generation, which is small here, and after 8 MB of them collects all of it, once a second for ever. With
  // four times the old generation as the limit the collections of the young generation, which free them at
  // next to no cost, come first.
  '--heap-growing-percent=300',
  // A function is compiled at its first run, simply and at next to no cost, and with optimizations after as
  // many runs as usual. With a seventh of them a process that has just started is as fast, but functions are
  // optimized for less than they do, and compiling them anew took a quarter of the processor time of a PS in
  // the two seconds after a loss.
  '--always-sparkplug',
];

/** Takes effect for the whole process, from now on. */
export function tuneV8(): void {
  for (const setting of SETTINGS) setFlagsFromString(setting);
}

/** How long TurboFan optimizes nothing after a loss, and how long it may from then on in any case. */
const LATER_MS = 10_000;
const AT_LEAST_MS = 30_000;

let mayPostponeAt = 0;

/**
 * TurboFan, V8's optimizing compiler, takes no further function for a while. Code that runs for the first
 * time would have it optimize dozens of functions just when requests wait for lost rows, and its threads take
 * the cores from them.
 */
export function optimizeLater(laterMs = LATER_MS): void {
  const now = performance.now();
  if (now < mayPostponeAt) return;
  mayPostponeAt = now + laterMs + AT_LEAST_MS;
  setFlagsFromString('--no-opt');
  setTimeout(() => setFlagsFromString('--opt'), laterMs).unref();
}
