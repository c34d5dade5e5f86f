/** A client beside a job on the cluster, which tells how long its pulls wait. */
import { spawn } from 'node:child_process';
import { NAMESPACE } from './cluster.js';

/**
 * Pulls of 512 keys, which all PS answer, one after the other. It says when it begins, and then the longest
 * wait of each second.
 */
const PROBE = `
import { connect } from '/app/dist/src/index.js';
const { KINTSUGI_TOKEN: token, ADDRESS } = process.env;
const client = await connect(ADDRESS, { token });
const table = await client.createTable({ name: 'probe', dim: 8, optimizer: { kind: 'sgd', lr: 0.1 } });
const mixed = (_, index) => (BigInt(index) * 0x9e3779b97f4a7c15n) & 0xffffffffffffffn;
const keys = BigUint64Array.from({ length: 512 }, mixed);
await table.push(keys, new Float32Array(512 * 8));
let longest = 0, from = performance.now();
setInterval(() => {
  console.log(Math.max(longest, performance.now() - from).toFixed(1));
  longest = 0;
}, 1000);
for (;;) {
  from = performance.now();
  await table.pull(keys);
  longest = Math.max(longest, performance.now() - from);
  await new Promise((resolve) => setTimeout(resolve, 5));
}
`;

/**
 * Begins in the container of a Pod. `address`: of the scheduler, from there; by default it is that Pod.
 * `since` resolves with the longest wait, in milliseconds, from then until two seconds after the work.
 */
export async function probe(pod: string, address = '127.0.0.1:7077') {
  const args = ['-n', NAMESPACE, 'exec', pod, '-c', 'kintsugi', '--', 'env', `ADDRESS=${address}`];
  const child = spawn('kubectl', [...args, 'node', '--input-type=module', '-e', PROBE]);
  const waits: number[] = [];
  let told = () => {};
  let said = '';
  child.stderr.on('data', (part: Buffer) => {
    said += part.toString();
  });
  child.stdout.on('data', (part: Buffer) => {
    waits.push(...part.toString().trim().split('\n').map(Number));
    told();
  });
  let ended = (_: Error) => {};
  child.on('close', () => ended(new Error(`the probe ended: ${said}`)));
  const more = () =>
    new Promise<void>((resolve, reject) => {
      told = resolve;
      ended = reject;
    });
  await more();
  return {
    async since(work: () => Promise<void>): Promise<number> {
      const first = waits.length;
      await work();
      // Pulls that began during the work have ended after two more.
      await more();
      await more();
      return Math.max(...waits.slice(first));
    },
    stop: () => child.kill(),
  };
}

/** Says when the redundancy of the job changes. */
const WATCH = `
import { connect } from '/app/dist/src/index.js';
const client = await connect('127.0.0.1:7077', { token: process.env.KINTSUGI_TOKEN });
let before;
for (;;) {
  const { redundancy } = await client.status();
  if (redundancy !== before) console.log(Date.now(), redundancy);
  before = redundancy;
  await new Promise((resolve) => setTimeout(resolve, 20));
}
`;

/**
 * Watches the redundancy of a job from the Pod of its scheduler, whose clock is that of this machine or near
 * it. `fullAgain` resolves with the time at which it was full again after another value, since 1970.
 */
export async function watchRedundancy(pod: string) {
  const args = ['-n', NAMESPACE, 'exec', pod, '-c', 'kintsugi', '--', 'node', '--input-type=module', '-e'];
  const child = spawn('kubectl', [...args, WATCH]);
  const values: { at: number; redundancy: string }[] = [];
  let tell = () => {};
  child.stdout.on('data', (part: Buffer) => {
    for (const line of part.toString().trim().split('\n')) {
      const [at, redundancy = ''] = line.split(' ');
      values.push({ at: Number(at), redundancy });
    }
    tell();
  });
  const next = () =>
    new Promise<void>((resolve, reject) => {
      tell = resolve;
      child.on('close', () => reject(new Error('the watch of the redundancy ended')));
    });
  await next();
  return {
    async fullAgain(): Promise<number> {
      for (let index = 0; ; index++) {
        while (values.length <= index) await next();
        if (index > 1 && values[index]!.redundancy === 'full') return values[index]!.at;
      }
    },
    stop: () => child.kill(),
  };
}
