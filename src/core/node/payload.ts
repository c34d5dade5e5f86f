/** The payload of a request. */
import { KintsugiError } from '../../common/errors.js';
import type { Items } from '../../protocol/items.js';

/**
 * The sections of all items: the one part of a request. Word `size` of an item is the size of its section.
 * @throws BAD_FRAME
 */
export function sectionsOf(items: Items, size: number, parts: readonly Uint8Array[]): Uint8Array {
  const [sections] = parts;
  if (!sections || parts.length > 1)
    throw new KintsugiError('BAD_FRAME', `a request has one part, not ${parts.length}`);
  items.checkSizes(size, sections.byteLength);
  return sections;
}
