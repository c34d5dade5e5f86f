// The part of rows.py that the TypeScript library does: node rows.mjs SCHEDULER KEYS DIM CALLS
// Every line of standard input asks for a round, which prints milliseconds per pull, per push, and per pull
// with another one under way.
import { createInterface } from 'node:readline';
import { connect } from '../../dist/src/index.js';

const [address, ...numbers] = process.argv.slice(2);
const [count, dim, calls] = numbers.map(Number);
const client = await connect(address, { connectTimeoutMs: 60_000 });
const table = await client.createTable({ name: 'rows', dim, optimizer: { kind: 'sgd', lr: 0.01 } });
const intos = [0, 1].map(() => new Float32Array(count * dim));
const [into] = intos;
let turn = 0;
const gradients = new Float32Array(count * dim).fill(0.01);
const key = () => BigInt(Math.floor(Math.random() * 200_000));
const keys = Array.from({ length: 32 }, () => BigUint64Array.from({ length: count }, key));

async function time(call) {
  const begin = performance.now();
  for (let i = 0; i < calls; i++) await call(keys[i % keys.length]);
  return (performance.now() - begin) / calls;
}

for await (const _ of createInterface({ input: process.stdin })) {
  const pull = await time((each) => client.pull([{ table, keys: each, into }]));
  const push = await time((each) => table.push(each, gradients));
  let before;
  const ahead = await time(async (each) => {
    const last = before;
    before = client.pull([{ table, keys: each, into: intos[(turn += 1) % 2] }]);
    await last;
  });
  await before;
  console.log(`${pull} ${push} ${ahead}`);
}
await client.close();
