/** Columns of several values: a job that loses a worker and a PS learns more than without them. */
import { expect, test } from 'vitest';
import { job, MULTI, present, SINGLE, TEST, TRAIN, whole, writeSchema } from './support.js';

const EPOCHS = 2;
if (present && !whole) console.error('LEFT OUT: AUCs, because KINTSUGI_TEST_ROWS says to take few rows');

test.skipIf(!present || !whole)(
  'genres and histories through kills: exactly once, and a better AUC than without them',
  async () => {
    const kills = ['--kill', 'worker@30%', '--kill', 'ps@60%'];
    const aucOf = async (name: string, schema: object) => {
      const data = ['--data', TRAIN, '--test', TEST, '--schema', writeSchema(name, schema)];
      const flags = ['--workers', '2', '--epochs', String(EPOCHS), ...kills];
      const { testAuc, failures } = await job([...data, ...flags], 90_000, EPOCHS);
      expect(failures.length).toBeGreaterThan(1);
      return testAuc!;
    };
    const [single, multi] = [await aucOf('single.json', SINGLE), await aucOf('multi.json', MULTI)];
    console.log(
      `test AUC: ${single.toFixed(4)} with one value in each column, ${multi.toFixed(4)} with several`,
    );
    expect(multi).toBeGreaterThan(single);
  },
  600_000,
);
