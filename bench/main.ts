/**
 * `npm run bench -- NAME [FLAGS]`: runs one benchmark, a file of that name in this folder, as `kintsugi bench
 * NAME` does.
 */
import { describe, KintsugiError } from '../src/errors.js';
import { runBench } from './flags.js';

const [name, ...args] = process.argv.slice(2);
if (name === undefined) {
  console.error('usage: npm run bench -- code|rows|pull|push|overhead|recovery|chaos|scaling [FLAGS]');
  process.exit(2);
}
try {
  await runBench(name, args);
} catch (error) {
  console.error(`bench ${name}: ${describe(error)}`);
  process.exitCode = error instanceof KintsugiError && error.code === 'BAD_ARGUMENT' ? 2 : 1;
}
