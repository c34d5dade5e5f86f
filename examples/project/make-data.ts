/** Writes clicks that can be learned: data/train.csv and data/test.csv. Put your own in their place. */
import { mkdirSync, writeFileSync } from 'node:fs';

const USERS = 300;
const ITEMS = 200;
const TASTES = 4;
const ROWS = { train: 16_000, test: 4_000 };

/** The same numbers each time: mulberry32. */
let state = 7;
function random(): number {
  state = (state + 0x6d2b79f5) | 0;
  let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
  mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
  return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
}

const vectors = (count: number): number[][] =>
  Array.from({ length: count }, () => Array.from({ length: TASTES }, () => 2 * random() - 1));

const users = vectors(USERS);
const items = vectors(ITEMS);
const prices = items.map(() => Math.round(10 ** (3 * random())));
const histories: number[][] = users.map(() => []);

function row(): string {
  const user = Math.floor(random() * USERS);
  const item = Math.floor(random() * ITEMS);
  const liking = users[user]!.reduce((sum, taste, i) => sum + taste * items[item]![i]!, 0);
  const clicked = random() < 1 / (1 + Math.exp(-4 * liking + 0.3 * (Math.log1p(prices[item]!) - 3)));
  const line = [Number(clicked), prices[item], user, item, histories[user]!.slice(-20).join('|')].join(',');
  if (clicked) histories[user]!.push(item);
  return line;
}

mkdirSync('data', { recursive: true });
for (const [name, count] of Object.entries(ROWS)) {
  const lines = ['clicked,price,user,item,history', ...Array.from({ length: count }, row)];
  writeFileSync(`data/${name}.csv`, `${lines.join('\n')}\n`);
}
