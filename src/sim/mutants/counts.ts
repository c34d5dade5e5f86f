/** Bugs in how often a push says that its keys were seen: in a section, counts lie behind the rows. */
import type { Mutant } from './mutant.js';

/** Statements that set each count in `bytes`, a section, to `count`: made of `view`, `t` and `at`. */
function setCounts(count: string): string {
  return `const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    const tables = bytes.byteLength < 8 ? 0 : view.getUint32(0, true);
    for (let t = 0, at = 8 + 16 * tables; t < tables; t++) {
      const [rows, word] = [12, 16].map((field) => view.getUint32(16 * t + field, true));
      const padded = (size) => Math.ceil(size / 8) * 8;
      at += 8 * rows + padded(rows * (word & 0x7fffffff) * 4);
      if (word >>> 31 === 0) continue;
      for (let i = 0; i < rows; i++, at += 4) view.setUint32(at, ${count}, true);
      at += padded(rows * 4) - rows * 4;
    }`;
}

const taken = (count: string): string =>
  `const status = (() => { const bytes = section.slice(); ${setCounts(count)} return push(bytes); })();`;

export const COUNT_MUTANTS: readonly Mutant[] = [
  {
    name: 'counts: a key with a count is seen once',
    file: 'shard/owner',
    from: 'const status = push(section);',
    to: taken('1'),
  },
  {
    name: 'counts: a key is seen once more than its count says',
    file: 'shard/owner',
    from: 'const status = push(section);',
    to: taken('view.getUint32(at, true) + 1'),
  },
  {
    name: 'counts: a push that is sent again counts again',
    file: 'client/client',
    from: 'this.ask(messages, shard, unacknowledged[i])',
    to: `this.ask(messages, shard, (({ memory, start, size }) => {
      const bytes = new Uint8Array(memory.buffer, memory.byteOffset + start, size);
      ${setCounts('view.getUint32(at, true) * 2')}
    })(unacknowledged[i]) ?? unacknowledged[i])`,
  },
];
