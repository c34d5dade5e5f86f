import { expect, test } from 'vitest';
import { eachAtMost, pipelined, ranges } from '../../../src/library/client/concurrent.js';

/** Work that ends when the test says so, and how many ran at once. */
function gate() {
  const waiting: (() => void)[] = [];
  const counts = { now: 0, most: 0, started: 0 };
  const pass = async () => {
    counts.started++;
    counts.most = Math.max(counts.most, ++counts.now);
    await new Promise<void>((resolve) => waiting.push(resolve));
    counts.now--;
  };
  return { counts, pass, open: () => waiting.shift()?.() };
}

const turn = () => new Promise((resolve) => setImmediate(resolve));

test('eachAtMost does every item, never more than the limit at once', async () => {
  const { counts, pass, open } = gate();
  const seen: number[] = [];
  let done = false;
  const all = eachAtMost(3, [1, 2, 3, 4, 5, 6, 7], async (item) => {
    await pass();
    seen.push(item);
  }).then(() => {
    done = true;
  });
  while (!done) {
    await turn();
    open();
  }
  await all;
  expect(seen.sort()).toEqual([1, 2, 3, 4, 5, 6, 7]);
  expect(counts.most).toBe(3);
});

test('eachAtMost starts nothing after an error, and throws it when the rest has ended', async () => {
  const { counts, pass, open } = gate();
  const all = eachAtMost(2, [1, 2, 3, 4], async (item) => {
    if (item === 2) throw new Error('two');
    await pass();
  });
  const failed = expect(all).rejects.toThrow('two');
  await turn();
  open();
  await failed;
  expect(counts).toMatchObject({ started: 1, now: 0 });
});

test('pipelined keeps the order and has at most `depth` under way', async () => {
  const { counts, pass, open } = gate();
  const seen: number[] = [];
  let done = false;
  const all = (async () => {
    for await (const result of pipelined(2, [1, 2, 3, 4], async (item) => {
      await pass();
      return item * 10;
    })) {
      seen.push(result);
    }
    done = true;
  })();
  while (!done) {
    await turn();
    open();
  }
  await all;
  expect(seen).toEqual([10, 20, 30, 40]);
  expect(counts.most).toBe(2);
});

test('pipelined may be left early although a later item fails', async () => {
  const results = pipelined(2, [1, 2], async (item) => {
    if (item === 2) throw new Error('two');
    return item;
  });
  for await (const result of results) {
    expect(result).toBe(1);
    break;
  }
  await turn();
});

test('ranges cover everything once', () => {
  expect([...ranges(7, 3)]).toEqual([
    [0, 3],
    [3, 6],
    [6, 7],
  ]);
  expect([...ranges(0, 3)]).toEqual([]);
});
