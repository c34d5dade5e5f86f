/** The measurement of checkpoints with tiny sizes: every part runs, and what is restored is right. */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { WAYS } from '../../bench/checkpoint/ways.js';
import type { Goal, Result } from '../../bench/common/report.js';
import { kintsugi } from '../cli/support.js';

let directory = '';
beforeAll(() => {
  directory = mkdtempSync(join(tmpdir(), 'kintsugi-bench-checkpoint-test-'));
});
afterAll(() => rmSync(directory, { recursive: true, force: true }));

test('every part has results, and the picture has every way', async () => {
  const [json, svg] = [join(directory, 'r.json'), join(directory, 'r.svg')];
  const args = ['bench', 'checkpoint', '--smoke', '--quiet', '--json', json, '--svg', svg];
  expect(await kintsugi(args)).toMatchObject({ code: 0, stderr: '' });
  const report = JSON.parse(readFileSync(json, 'utf8')) as { goals: Goal[]; results: Result[] };
  const valuesOf = (name: string) => report.results.find((result) => result.name === name)!.values;
  expect(valuesOf('training: samples/s')['with checkpoints']).toBeGreaterThan(0);
  const size = valuesOf('a checkpoint of changed rows');
  expect(size.rows).toBeGreaterThan(0);
  expect(size['rows that changed']).toBeGreaterThan(0);
  for (const way of WAYS) {
    const { checkpoints } = valuesOf(`every 0.5 s: ${way}`);
    expect(checkpoints! > 0).toBe(way !== 'none');
  }
  expect(valuesOf('full checkpoint, idle job').dd).toBeGreaterThan(0);
  const restore = valuesOf('restore, since all PS are up');
  expect(restore['first keys']).toBeLessThanOrEqual(restore['keys of every shard']!);
  const goal = (name: RegExp) => report.goals.find((each) => name.test(each.name));
  expect(goal(/rows that are not what they were/)).toMatchObject({ value: 0, met: true });
  expect(goal(/bytes of a checkpoint/)).toMatchObject({ met: true });
  const picture = readFileSync(svg, 'utf8');
  for (const way of WAYS) expect(picture).toContain(`>${way}</text>`);
}, 180_000);

test('flags that make no sense are refused before anything is started', async () => {
  for (const flags of [['--parts', 'beside,all'], ['--rows', '0'], ['--code', 'checkpoint'], ['rest']]) {
    const output = await kintsugi(['bench', 'checkpoint', ...flags]);
    expect(output.code).toBe(2);
    expect(output.said.at(-1)).toMatch(/^kintsugi: BAD_ARGUMENT: /);
  }
});
