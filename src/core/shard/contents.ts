/**
 * Content of blocks for a sink or a replica. Much of it is read to where its frame has it, right after the
 * list of its blocks, so that it is not copied again (`NodeHooks.contentMemory`).
 */
import type { BlockList, NativeShard } from '../../engine/native.js';
import { BLOCK_BYTES } from '../../protocol/blocks.js';
import { bytes } from '../shared/bytes.js';
import { takingForeign } from '../shared/engine.js';

/** Less is cheaper to copy, and nobody of this system asks for more. */
const [LEAST_BLOCKS, MOST_BLOCKS] = [16, 1024];

/** As `AnswerMemory` of an owner's host. */
export interface ContentMemory {
  readonly memory: Uint8Array;
  readonly at: number;
  took(content: Uint8Array): void;
  drop(): void;
}

export interface ReadBlocks {
  present: BlockList;
  lacking: BlockList;
  /** The list of present blocks and their bytes, as parts of a message. */
  parts: [list: Uint8Array, content: Uint8Array];
}

/** @throws BAD_FRAME when the list is none */
export function readBlocks(
  native: NativeShard,
  list: BlockList,
  host: { contentMemory(bytes: number): ContentMemory | undefined },
): ReadBlocks {
  const count = list.length / 2;
  const isOwn = count >= LEAST_BLOCKS && count <= MOST_BLOCKS;
  // Blocks of rows that are larger than a block do not fit, and get memory of the garbage collector.
  const own = isOwn ? host.contentMemory(list.byteLength + count * BLOCK_BYTES) : undefined;
  if (!own) {
    const { present, bytes: content, lacking } = takingForeign(() => native.read(list));
    return { present, lacking, parts: [bytes(present), content] };
  }
  try {
    const at = own.at + list.byteLength;
    const { present, bytes: content, lacking } = takingForeign(() => native.read(list, own.memory, at));
    if (content.buffer !== own.memory.buffer) {
      own.drop();
      return { present, lacking, parts: [bytes(present), content] };
    }
    const blocks = own.memory.subarray(own.at, own.at + present.byteLength);
    blocks.set(bytes(present));
    own.took(content);
    return { present, lacking, parts: [blocks, content] };
  } catch (error) {
    own.drop();
    throw error;
  }
}
