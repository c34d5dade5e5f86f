/**
 * Bugs to plant: each breaks one rule of the protocol by a small textual edit on the compiled core.
 * Production code holds no trace of them.
 */

export interface Mutant {
  name: string;
  /** File without ending: below src/core, or below src where it begins with the name of
   * another wing. */
  file: string;
  /** Must occur exactly once (or at the n-th place, from 0, of several). */
  from: string;
  to: string;
  place?: number;
  /** No random schedule has shown it so far: this test must fail, and `because` says what it takes. */
  scenario?: { test: string; because: string };
}

/** The file that the mutant edits, below the folder of the compiled src. */
export function compiledPath({ file }: Pick<Mutant, 'file'>): string {
  return /^(protocol|stores|roles)\//.test(file) ? `${file}.js` : `core/${file}.js`;
}

/** The compiled text with the bug in it. @throws when the text to edit is not there as often as expected */
export function planted({ name, file, from, to, place }: Mutant, compiled: string): string {
  const parts = compiled.split(from);
  const at = place ?? 0;
  if (place === undefined ? parts.length !== 2 : parts.length <= at + 1)
    throw new Error(`mutant "${name}": its text is ${parts.length - 1} times in ${file}.js`);
  return parts.slice(0, at + 1).join(from) + to + parts.slice(at + 1).join(from);
}
