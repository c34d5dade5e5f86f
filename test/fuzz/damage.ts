/** Files that were damaged, each by a seed. */

/** Repeatable integers below `below`. */
export function randomOf(seed: number): (below: number) => number {
  let state = Math.imul(seed + 1, 0x9e3779b1) >>> 0;
  return (below) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

const PIECES = [
  '"',
  '""',
  '\t',
  ',',
  '|',
  '\n',
  '\r\n',
  '\0',
  '{',
  '}',
  '[',
  ']',
  'null',
  '-',
  '1e999',
  'é',
  '\uFEFF',
];

/** Changes, removes, repeats and inserts a few bytes. */
export function damaged(content: Buffer, random: (below: number) => number): Buffer {
  let bytes = Buffer.from(content);
  for (let times = 1 + random(4); times > 0; times--) {
    const at = random(bytes.length + 1);
    const to = Math.min(bytes.length, at + random(40));
    const [before, middle, after] = [bytes.subarray(0, at), bytes.subarray(at, to), bytes.subarray(to)];
    const piece = Buffer.from(PIECES[random(PIECES.length)]!);
    const parts = [
      [before, Buffer.from([random(256)]), bytes.subarray(at + 1)],
      [before, after],
      [before, middle, middle, after],
      [before, piece, middle, after],
      [before],
    ];
    bytes = Buffer.concat(parts[random(parts.length)]!);
  }
  return bytes;
}
