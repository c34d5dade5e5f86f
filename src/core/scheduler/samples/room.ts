/** How many data sets a job may have, and how much their specifications may be together. */

import { rangeCount } from '../../../protocol/dataset-rules.js';
import { limitText } from '../../../protocol/limits.js';
import type { DatasetSpec } from '../../../protocol/samples.js';

const MAX_DATASETS = 256;
/** Ranges, epochs and characters of names of all data sets: what they take is loaded by every scheduler. */
const MAX_SPECIFIED = 1 << 24;

function sizeOf(spec: DatasetSpec): number {
  return spec.files.reduce((sum, { name }) => sum + name.length + 1, rangeCount(spec) + spec.epochs);
}

/** Why there is no room for another data set; undefined when there is. */
export function roomProblem(
  datasets: readonly { spec: DatasetSpec }[],
  another: DatasetSpec,
): { code: 'LIMIT'; message: string } | undefined {
  const full = (message: string) => ({ code: 'LIMIT' as const, message });
  if (datasets.length >= MAX_DATASETS)
    return full(limitText('the job has no room for a data set', 'maxDatasets', MAX_DATASETS));
  let size = sizeOf(another);
  for (const { spec } of datasets) size += sizeOf(spec);
  if (size <= MAX_SPECIFIED) return undefined;
  const text = `ranges, epochs and names of files of all data sets are ${size}`;
  return full(limitText(text, 'maxSpecified', MAX_SPECIFIED));
}
