/**
 * The library in one page: a job in this process, a table, pushes and pulls, and a PS that is lost on the
 * way.
 *
 *     node examples/quickstart.mjs
 */
import { connect, startLocalCluster } from 'kintsugi-ps';

const DIM = 16;

// In production: const client = await connect('scheduler-host:7077', { token });
const cluster = await startLocalCluster({ ps: 5, code: '4+1' });
const client = await connect(cluster.address);
const items = await client.createTable({
  name: 'items',
  dim: DIM,
  optimizer: { kind: 'sgd', lr: 0.1 },
  initializer: { kind: 'zeros' },
});

// 1,000 items, each pushed ten times with a gradient of 1: every value becomes -0.1 x 10.
const keys = BigUint64Array.from({ length: 1000 }, (_, index) => BigInt(index));
const gradients = new Float32Array(keys.length * DIM).fill(1);
for (let step = 0; step < 10; step++) {
  await items.push(keys, gradients); // resolves when durable
  if (step === 4) {
    await cluster.kill(0);
    console.log('a PS is gone; its rows are decoded from the others');
  }
}

const rows = await items.pull(keys); // Float32Array, keys.length x dim
const wrong = rows.filter((value) => Math.abs(value + 1) > 1e-5).length;
console.log(`${rows.length} values pulled, ${wrong} of them wrong`);

await client.close();
await cluster.close();
if (wrong > 0) process.exitCode = 1;
