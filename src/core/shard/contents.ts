/**
 * Content of blocks for a sink or a replica. Much of it is read to where its frame has it, right after the
 * list of its blocks, so that it is not copied again (`NodeHooks.contentMemory`).
 */
import type { BlockList, NativeShard } from '../../engine/native.js';
import { BLOCK_BYTES } from '../../protocol/blocks.js';
import { bytes } from '../shared/bytes.js';
import { takingForeign } from '../shared/engine.js';
import type { OwnerHost } from './host.js';

/** Less is cheaper to copy, and nobody of this system asks for more. */
const [LEAST_BLOCKS, MOST_BLOCKS] = [16, 1024];

interface ReadBlocks {
  present: BlockList;
  lacking: BlockList;
  /** The list of present blocks and their bytes, as parts of a message. */
  parts: [list: Uint8Array, content: Uint8Array];
}

/** @throws BAD_FRAME when the list is none */
export function readBlocks(
  native: NativeShard,
  list: BlockList,
  host: Pick<OwnerHost, 'contentMemory'>,
): ReadBlocks {
  const count = list.length / 2;
  const isOwn = count >= LEAST_BLOCKS && count <= MOST_BLOCKS;
  // Blocks of rows that are larger than a block do not fit, and get memory of the garbage collector.
  const own = isOwn ? host.contentMemory(list.byteLength + count * BLOCK_BYTES) : undefined;
  const at = (own?.at ?? 0) + list.byteLength;
  try {
    const read = () => (own ? native.read(list, own.memory, at) : native.read(list));
    const { present, bytes: content, lacking } = takingForeign(read);
    if (!own || content.buffer !== own.memory.buffer) {
      own?.drop();
      return { present, lacking, parts: [bytes(present), content] };
    }
    const blocks = own.memory.subarray(own.at, own.at + present.byteLength);
    blocks.set(bytes(present));
    own.took(content);
    return { present, lacking, parts: [blocks, content] };
  } catch (error) {
    own?.drop();
    throw error;
  }
}
