/** How much the specifications of all data sets of a job may be together. */

import { rangeCount } from '../../../protocol/dataset-rules.js';
import { limitText } from '../../../protocol/limits.js';
import type { DatasetSpec } from '../../../protocol/samples.js';

/** Ranges, epochs and characters of names of all data sets: what they take is loaded by every scheduler. */
const MAX_SPECIFIED = 1 << 24;

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
  const text = `ranges, epochs and names of files of all data sets are ${size}`;
  return limitText(text, 'maxSpecified', MAX_SPECIFIED);
}
