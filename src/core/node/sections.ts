/** The payload of a request. */
import { KintsugiError } from '../../errors.js';
import type { Items } from '../../protocol/items.js';

/** The sections of all items: the part of a request. Their sizes are word `size`. @throws BAD_FRAME */
export function sectionsOf(items: Items, size: number, parts: readonly Uint8Array[]): Uint8Array {
  const [sections] = parts;
  if (!sections || parts.length > 1)
    throw new KintsugiError('BAD_FRAME', `a request has one part, not ${parts.length}`);
  items.checkSizes(size, sections.byteLength);
  return sections;
}
