/** Word of parts of the data that have no samples: often a program that should have written them failed. */
import type { SourcePart } from '../../data/source.js';
import type { Logger } from '../../net/log.js';

/** Names in the warning; the number of parts is told besides. */
const MOST_NAMES = 10;

/** Warns of parts without samples. @param use flag that names the parts */
export function warnOfEmpty(log: Logger, use: '--data' | '--test', parts: readonly SourcePart[]): void {
  const empty = parts.filter(({ size, empty = size === 0 }) => empty).map(({ name }) => name);
  if (empty.length === 0) return;
  const message = `${empty.length} of ${parts.length} files or parts of ${use} have no samples`;
  log.warn('worker.empty', { use, count: empty.length, files: empty.slice(0, MOST_NAMES), message });
}
