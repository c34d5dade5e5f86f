/** A frame of zstd whose blocks are stored, for Nodes that cannot compress with it. */
export function zstdStored(data: Buffer, blockBytes = 1000): Buffer {
  // Magic, then a descriptor that says: a window of 128 KiB, no size, no checksum.
  const parts: Buffer[] = [Buffer.from([0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x38])];
  for (let at = 0; at === 0 || at < data.length; at += blockBytes) {
    const block = data.subarray(at, at + blockBytes);
    const last = at + blockBytes >= data.length ? 1 : 0;
    const header = Buffer.alloc(3);
    header.writeUIntLE((block.length << 3) | last, 0, 3);
    parts.push(header, block);
  }
  return Buffer.concat(parts);
}
