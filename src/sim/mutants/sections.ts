/** Bugs in what a push says of its keys: in a section, counts and scores lie behind the rows of a table. */

/**
 * A function of a section and of an edit of each of its tables, which is given its number, its keys, and its
 * counts and scores, or undefined. It sets those that are to be others. Bytes that are no section stay.
 */
const EDITED = `((section, edit) => {
  const padded = (size) => Math.ceil(size / 8) * 8;
  const view = new DataView(section.buffer, section.byteOffset, section.byteLength);
  const tables = section.byteLength < 8 ? 0 : view.getUint32(0, true);
  try {
    const heads = section.slice(0, 8 + 16 * tables);
    const words = new DataView(heads.buffer);
    const parts = [heads];
    let at = heads.length;
    const take = (size) => section.slice(at, (at += size));
    for (let t = 0; t < tables; t++) {
      const [number, rows, word] = [8, 12, 16].map((field) => view.getUint32(16 * t + field, true));
      const width = word & 0x3fffffff;
      const keys = take(8 * rows);
      parts.push(keys, take(padded(rows * width * 4)));
      const table = { number, width, keys: new BigUint64Array(keys.buffer) };
      if (word >>> 31) table.counts = new Uint32Array(take(padded(4 * rows)).buffer, 0, rows);
      if ((word >>> 30) & 1) table.scores = new Float32Array(take(padded(4 * rows)).buffer, 0, rows);
      edit(table);
      const extras = (table.counts ? 2 ** 31 : 0) + (table.scores ? 2 ** 30 : 0);
      words.setUint32(16 * t + 16, width + extras, true);
      for (const numbers of [table.counts, table.scores]) {
        if (!numbers) continue;
        const bytes = new Uint8Array(padded(4 * rows));
        bytes.set(new Uint8Array(numbers.buffer, numbers.byteOffset, 4 * rows));
        parts.push(bytes);
      }
    }
    return new Uint8Array(Buffer.concat(parts));
  } catch {
    return section;
  }
})`;

/** A mutant in which a shard takes what `edit` makes of a push. */
export const taken = (edit: string) => ({
  file: 'shard/owner',
  from: 'const status = push(section);',
  to: `const status = push(${EDITED}(section, ${edit}));`,
});

/** A mutant in which a client sends that when it sends a push again. The section keeps its length. */
export const sentAgain = (edit: string) => ({
  file: 'client/client',
  from: 'this.ask(messages, shard, unacknowledged[i])',
  to: `this.ask(messages, shard, (({ memory, start, size }) => {
    const bytes = new Uint8Array(memory.buffer, memory.byteOffset + start, size);
    bytes.set(${EDITED}(bytes, ${edit}));
  })(unacknowledged[i]) ?? unacknowledged[i])`,
});
