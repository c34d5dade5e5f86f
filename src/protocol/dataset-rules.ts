/** The rules of a specification of a data set, and the difference between two specifications. */
import { type DatasetSpec, SCHEMA_PARTS } from './samples.js';

/** Most ranges of one epoch, and most epochs. */
const MAX_RANGES = 1 << 20;
const MAX_EPOCHS = 1 << 20;

/** Number of ranges of one epoch; an empty file has none. */
export function rangeCount({ files }: Pick<DatasetSpec, 'files'>): number {
  return files.reduce((sum, { size, rangeBytes }) => sum + Math.ceil(size / rangeBytes), 0);
}

/** The problem with a specification, for people; undefined when it can be used. */
export function datasetProblem(spec: DatasetSpec): string | undefined {
  if (spec.files.length === 0) return 'a data set needs files';
  if (spec.epochs < 1 || spec.epochs > MAX_EPOCHS) return `a data set has 1 to ${MAX_EPOCHS} epochs`;
  if (spec.batch < 1) return 'a batch needs samples';
  if (spec.files.some(({ rangeBytes }) => rangeBytes < 1)) return 'a range needs bytes';
  if (spec.follow && spec.epochs !== 1) return 'files that grow are trained for one epoch';
  if (spec.follow && spec.files.some(({ size }) => size > 0)) return 'files that grow begin with no bytes';
  const count = rangeCount(spec);
  return count > MAX_RANGES
    ? `${count} ranges are more than ${MAX_RANGES}: cut the files into larger ones`
    : undefined;
}

/**
 * The difference between a specification and the registered one, for people; undefined if there is none.
 * `rangeBytes` and `seed` may differ: those that were registered first hold. A schema may be there in one
 * alone: not all that train samples can tell what their columns mean.
 */
export function datasetDifference(known: DatasetSpec, spec: DatasetSpec): string | undefined {
  const follows = (of: DatasetSpec) => (of.follow ? 'files that grow' : 'files that do not grow');
  if (follows(known) !== follows(spec)) return `${follows(known)}, not ${follows(spec)}`;
  const files = (of: DatasetSpec) => of.files.map(({ name, size }) => `${name} (${size} bytes)`).join(', ');
  if (files(known) !== files(spec)) return `the files ${files(known)}, not ${files(spec)}`;
  const other = known.files.find(({ mark }, index) => {
    const given = spec.files[index]!.mark;
    return mark !== undefined && given !== undefined && mark !== given;
  });
  if (other)
    return `another file ${other.name}, or another order of them: give those of the run, or another --run`;
  const shown = (value: number | boolean) => (value === Number.MAX_SAFE_INTEGER ? 'none' : value);
  for (const field of ['batch', 'epochs', 'shuffle', 'staleness'] as const)
    if (known[field] !== spec[field]) return `${field} ${shown(known[field])}, not ${shown(spec[field])}`;
  for (const part of SCHEMA_PARTS) {
    const [was, given] = [known.schema?.[part], spec.schema?.[part]];
    if (was !== undefined && given !== undefined && was !== given)
      return `a schema with ${part} ${was}, not ${given}: give that of the run, or another --run`;
  }
  return undefined;
}

/** The specification with known fields only: a message may have others, which a store may refuse. */
export function onlyKnownDataset(spec: DatasetSpec): DatasetSpec {
  const { follow, files, batch, epochs, seed, shuffle, staleness, schema } = spec;
  const known = files.map(({ name, size, rangeBytes, mark }) => {
    return { name, size, rangeBytes, ...(mark !== undefined && { mark }) };
  });
  const parts = SCHEMA_PARTS.filter((part) => schema?.[part] !== undefined);
  return {
    ...(follow && { follow }),
    ...{ files: known, batch, epochs, seed, shuffle, staleness },
    ...(parts.length > 0 && { schema: Object.fromEntries(parts.map((part) => [part, schema![part]])) }),
  };
}
