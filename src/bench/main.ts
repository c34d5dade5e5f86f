/** `npm run bench -- NAME [--smoke] [--json FILE]`: runs one benchmark, a file of that name in this folder. */
import { parseArgs } from 'node:util';
import { describe } from '../errors.js';
import type { BenchOptions } from './report.js';

const NAMES = ['code', 'rows', 'pull', 'push', 'overhead', 'recovery', 'chaos', 'scaling'];

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { smoke: { type: 'boolean', default: false }, json: { type: 'string' } },
});
const name = positionals[0];
if (name === undefined || positionals.length > 1 || !NAMES.includes(name)) {
  console.error(`usage: npm run bench -- ${NAMES.join('|')} [--smoke] [--json FILE]`);
  process.exit(2);
}
const options: BenchOptions = { smoke: values.smoke };
if (values.json !== undefined) options.json = values.json;
try {
  const bench = (await import(`./${name}.js`)) as { run(options: BenchOptions): Promise<void> };
  await bench.run(options);
} catch (error) {
  console.error(`bench ${name}: ${describe(error)}`);
  process.exitCode = 1;
}
