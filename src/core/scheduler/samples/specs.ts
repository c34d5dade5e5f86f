/** What a job keeps of the specifications of its data sets, and how much they may be together. */
import type { DatasetSpec } from '../../../protocol/samples.js';
import { rangeCount } from './ranges.js';

/** Ranges, epochs and characters of names of all data sets: what they take is loaded by every scheduler. */
const MAX_SPECIFIED = 1 << 24;

/** The specification with known fields only: a message may have others, and a store may not take them. */
export function onlyKnown(spec: DatasetSpec): DatasetSpec {
  const { follow, files, batch, epochs, seed, shuffle, staleness } = spec;
  const known = files.map(({ name, size, rangeBytes }) => ({ name, size, rangeBytes }));
  return { ...(follow && { follow }), files: known, batch, epochs, seed, shuffle, staleness };
}

function sizeOf(spec: DatasetSpec): number {
  return spec.files.reduce((sum, { name }) => sum + name.length + 1, rangeCount(spec) + spec.epochs);
}

/** Why there is no room for another data set, for people; undefined when there is. */
export function roomProblem(
  datasets: Iterable<{ spec: DatasetSpec }>,
  another: DatasetSpec,
): string | undefined {
  let size = sizeOf(another);
  for (const { spec } of datasets) size += sizeOf(spec);
  if (size <= MAX_SPECIFIED) return undefined;
  return `ranges, epochs and names of files of all data sets are ${size}, more than ${MAX_SPECIFIED}`;
}
