/** The benchmark of vanishing machines at the size of a smoke. It needs Linux and root. */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { whyNoMachines } from '../../bench/common/machines.js';
import { kintsugi } from '../cli/support.js';

const why = whyNoMachines();
if (why !== undefined) process.stderr.write(`\nLEFT OUT: bench vanish: ${why}\n\n`);

it.runIf(why === undefined)(
  'a smoke loses machines and no push',
  async () => {
    const directory = mkdtempSync(join(tmpdir(), 'kintsugi-vanish-test-'));
    try {
      const json = join(directory, 'vanish.json');
      const output = await kintsugi(['bench', 'vanish', '--smoke', '--quiet', '--json', json]);
      expect([output.code, output.stderr]).toEqual([0, '']);
      const { goals, one, two } = JSON.parse(readFileSync(json, 'utf8')) as {
        goals: { name: string; value: number }[];
        one: number[];
        two: number[];
      };
      expect(goals.at(-1)).toMatchObject({ name: 'lost or repeated pushes', value: 0 });
      expect([one.length, two.length]).toEqual([1, 1]);
    } finally {
      rmSync(directory, { recursive: true, force: true });
    }
  },
  120_000,
);
