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
];
/**
 * Code is compiled after a seventh of the usual number of runs: a process that has just started spends
 * seconds less in interpreted code. From V8 12 on (Node 22) there is no such budget, and V8 complains of the
 * flag on standard error.
 */
const BUDGET = '--interrupt-budget=10000';
const V8_WITHOUT_BUDGET = 12;

/** The settings that a V8 knows. `version`: as in `process.versions.v8`. */
export function settingsOf(version: string): readonly string[] {
  return Number.parseInt(version, 10) < V8_WITHOUT_BUDGET ? [...SETTINGS, BUDGET] : SETTINGS;
}

/** Takes effect for the whole process, from now on. */
export function tuneV8(): void {
  for (const setting of settingsOf(process.versions.v8)) setFlagsFromString(setting);
}
