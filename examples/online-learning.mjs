/**
 * Online learning: a stream of clicks goes into a worker's standard input, which keeps every line in a file
 * (the spool) and trains it as it comes. Killed and started again on the same spool, a worker would resume
 * there.
 *
 *     node examples/online-learning.mjs [CLICKS]
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { startLocalCluster } from 'kintsugi-ps';

const CLICKS = Number(process.argv[2] ?? 50_000);
const MANIFEST = createRequire(import.meta.url).resolve('kintsugi-ps/package.json');
const KINTSUGI = join(dirname(MANIFEST), 'dist/src/cli/main.js');
const MODEL = fileURLToPath(new URL('logistic.mjs', import.meta.url));

/** One line in the Criteo layout: label, 13 integers, 26 categories. Users of every third kind click more. */
function click() {
  const kind = Math.floor(Math.random() * 100);
  const label = Math.random() < (kind % 3 === 0 ? 0.8 : 0.1) ? 1 : 0;
  const integers = Array.from({ length: 13 }, () => '');
  const categories = Array.from({ length: 26 }, (_, column) => (column === 0 ? kind.toString(16) : ''));
  return `${[label, ...integers, ...categories].join('\t')}\n`;
}

const directory = mkdtempSync(join(tmpdir(), 'kintsugi-clicks-'));
const cluster = await startLocalCluster({ ps: 3, code: '2+1' });
const worker = spawn(
  process.execPath,
  [
    ...[KINTSUGI, 'worker', '--scheduler', cluster.address, '--log-format', 'json', '--model', MODEL],
    ...['--data', '-', '--follow', '--spool', join(directory, 'clicks.tsv'), '--batch', '64', '--lr', '0.1'],
  ],
  { stdio: ['pipe', 'inherit', 'pipe'] },
);
const losses = [];
createInterface({ input: worker.stderr }).on('line', (line) => {
  const record = line.startsWith('{') ? JSON.parse(line) : { event: line };
  if (record.event === 'worker.progress') losses.push(record.loss);
  else if (record.level !== 'info') console.error(line);
  if (record.event === 'worker.done') console.log(`trained ${record.samples} clicks`);
});
const ended = once(worker, 'close');

for (let written = 0; written < CLICKS && worker.exitCode === null; written++) {
  // The worker reads on only while the spool is not too far ahead of the training.
  if (!worker.stdin.write(click())) await Promise.race([once(worker.stdin, 'drain'), ended]);
}
worker.stdin.end();
const [code] = await ended;
console.log(`loss ${losses.at(0)?.toFixed(3)} at first, ${losses.at(-1)?.toFixed(3)} at the end`);

await cluster.close();
rmSync(directory, { recursive: true });
process.exitCode = code ?? 1;
