/** A process that writes checkpoints is killed, again and again: every checkpoint that is listed is whole. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { checkpointNumbers, listCheckpoints } from '../../../src/stores/checkpoint/checkpoints.js';
import { DirectoryPlace } from '../../../src/stores/checkpoint/directory.js';
import { keepNewest } from '../../../src/stores/checkpoint/retention.js';
import { verifyCheckpoint } from '../../../src/stores/checkpoint/verify.js';
import { POOL, TABLES, temporaryDirectory } from './support.js';

const ROOM = new URL('../../../dist/src/stores/checkpoint/', import.meta.url).href;
/** Goes on with the chain that is there. Every fifth checkpoint is a full one; three are kept. */
const WRITER = `
const at = (file) => import(${JSON.stringify(ROOM)} + file);
const { DirectoryPlace } = await at('directory.js');
const { checkpointNumbers, publishCheckpoint, readManifest, storeSegment } = await at('checkpoints.js');
const { keepNewest } = await at('retention.js');
const [directory, pool, table] = [process.argv[1], ...JSON.parse(process.argv[2])];
const place = new DirectoryPlace(directory);
let before = (await checkpointNumbers(place)).length > 0 ? await readManifest(place) : undefined;
for (;;) {
  const number = (before?.number ?? 0) + 1;
  const attempt = (process.pid * 1000 + number).toString(16).padStart(8, '0').slice(-8);
  const shards = [];
  for (let shard = 0; shard < pool.k * pool.groups; shard++) {
    const owner = { group: 0, member: shard, position: number };
    const rows = (part) => ({
      name: table.name, dim: table.dim, stateParts: [],
      keys: [BigUint64Array.from({ length: 1000 }, (_, i) => BigInt(part * 1000 + i))],
      values: [new Float32Array(1000 * table.dim).fill(number)], state: [],
    });
    const segments = number % 5 === 1 ? [] : [...before.shards[shard].segments];
    for (let part = 0; part < 3; part++) {
      const folder = String(number).padStart(6, '0');
      const name = folder + '/' + attempt + '-g0-m' + shard + '-' + part + '.safetensors';
      segments.push(await storeSegment(place, name, [rows(part)], part === 2 ? [] : undefined, owner));
    }
    shards.push({ pool: pool.name, shard, ...owner, since: 0, segments });
  }
  before = await publishCheckpoint(place, {
    number, kind: 'full job', attempt, job: 'j', createdAt: new Date().toISOString(), barrier: false,
    pools: [pool], tables: [table], shards,
  });
  process.stdout.write(number + '\\n');
  await keepNewest(place, 3);
}`;

test('every checkpoint that is listed after SIGKILL is whole, and the next writer goes on', async () => {
  const directory = temporaryDirectory();
  const place = new DirectoryPlace(directory);
  let newest = 0;
  for (let run = 0; run < 8; run++) {
    const args = ['--input-type=module', '-e', WRITER, directory, JSON.stringify([POOL, TABLES[1]])];
    const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit'] });
    onTestFinished(() => void child.kill('SIGKILL'));
    const exited = once(child, 'exit');
    let said = 0;
    for await (const chunk of child.stdout) {
      const numbers = String(chunk).trim().split('\n').map(Number);
      newest = Math.max(newest, ...numbers);
      said += numbers.length;
      // Another moment of the next checkpoint each time.
      if (said >= 2) setTimeout(() => child.kill('SIGKILL'), 3 * run);
    }
    expect((await exited)[1]).toBe('SIGKILL');
    const listed = await listCheckpoints(place);
    expect(listed.at(-1)!.number).toBeGreaterThanOrEqual(newest);
    for (const { number, problem } of listed) {
      expect(problem).toBeUndefined();
      expect(await verifyCheckpoint(place, number)).toMatchObject({ number, bad: [] });
    }
  }
  await place.put('notes', []);
  await keepNewest(place, 1);
  expect(readdirSync(join(directory, '.partial'))).toEqual([]);
  const [number] = await checkpointNumbers(place);
  const { files } = await verifyCheckpoint(place, number);
  const names: string[] = [];
  for await (const { name } of place.list('0')) names.push(name);
  // Files of failed attempts stay only if their number is higher: such an attempt might be under way.
  expect(names.filter((name) => Number(name.slice(0, 6)) <= number!)).toHaveLength(files + 1);
});
