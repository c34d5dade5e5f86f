/**
 * A recovery, measured: rows are pulled without a pause while a PS is lost. Printed are the slowest pull
 * before and after the loss, how long redundancy took to be back, and how many values were wrong.
 *
 *     node examples/recovery.mjs [ROWS]
 *
 * All nodes share one process here, so that absolute figures say little; `kintsugi bench recovery` has real
 * ones.
 */
import { connect, startLocalCluster } from 'kintsugi-ps';

const ROWS = Number(process.argv[2] ?? 200_000);
const DIM = 32;
const BATCH = 256;
const CALM_PULLS = 200;

const cluster = await startLocalCluster({ ps: 6, code: '4+1' });
const client = await connect(cluster.address);
const table = await client.createTable({
  name: 'rows',
  dim: DIM,
  optimizer: { kind: 'sgd', lr: 1 },
  initializer: { kind: 'zeros' },
});
const keys = BigUint64Array.from({ length: ROWS }, (_, index) => BigInt(index));
// One SGD step with the gradient -(key + 1): each value of a row is its key + 1.
const gradients = Float32Array.from({ length: ROWS * DIM }, (_, index) => -(Math.floor(index / DIM) + 1));
await table.push(keys, gradients);

let wrong = 0;
/** Pulls random rows, checks them, and returns how long that took in milliseconds. */
async function pull() {
  const some = BigUint64Array.from({ length: BATCH }, () => BigInt(Math.floor(Math.random() * ROWS)));
  const start = performance.now();
  const rows = await table.pull(some);
  const tookMs = performance.now() - start;
  for (let index = 0; index < rows.length; index++) {
    if (rows[index] !== Number(some[Math.floor(index / DIM)]) + 1) wrong++;
  }
  return tookMs;
}

let [calmMs, slowestMs, pulls] = [0, 0, 0];
for (let count = 0; count < CALM_PULLS; count++) calmMs = Math.max(calmMs, await pull());

const killed = performance.now();
await cluster.kill(0);
let redundantMs = 0;
let status = await client.status();
// The status is of the time before the scheduler noticed, until a node is not alive in it.
for (let noticed = false; redundantMs === 0; status = await client.status()) {
  for (let count = 0; count < 10; count++, pulls++) slowestMs = Math.max(slowestMs, await pull());
  noticed ||= status.nodes.some((node) => !node.alive);
  if (noticed && status.redundancy === 'full') redundantMs = performance.now() - killed;
}

const rounded = (ms) => Math.round(ms * 10) / 10;
const report = { rows: ROWS, pulls, calmMs, slowestMs, redundantMs, wrong };
for (const name of ['calmMs', 'slowestMs', 'redundantMs']) report[name] = rounded(report[name]);
console.log(JSON.stringify(report, null, 2));

await client.close();
await cluster.close();
if (wrong > 0) process.exitCode = 1;
