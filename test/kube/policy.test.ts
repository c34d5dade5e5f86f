/** A job whose tables have a policy: rows that go by themselves, and a PS that is killed meanwhile. */
import { expect, it } from 'vitest';
import {
  apply,
  booksOf,
  hurry,
  kubectl,
  listen,
  MINUTES,
  movieJob,
  newPs,
  onKubernetes,
  pods,
  waitFor,
} from './cluster.js';

interface Aged {
  policy?: object;
  life?: Record<string, number>;
}

const TABLES = `
import { connect, listTables } from '/app/dist/src/index.js';
const client = await connect('127.0.0.1:7077', { token: process.env.KINTSUGI_TOKEN });
console.log(JSON.stringify((await listTables(client, { limit: 1000 })).tables));
process.exit(0);
`;

onKubernetes(() => {
  it('rows of a job go by the policy of its workers, through the loss of a PS', {
    timeout: 8 * MINUTES,
  }, async () => {
    const policy = 'admit=bloom(2),evict=ttl(60)';
    const flags = ['--table-policy', policy];
    await apply(movieJob('aging', { few: true, seconds: 400, flags }));
    await waitFor('aging', '.status.phase', 'Running');
    await waitFor('aging', '.status.redundancy', 'full');
    await waitFor('aging', '.status.ps', '4/4');
    const before = await pods('aging', 'ps');
    await kubectl('delete', 'pod', before[1]!.metadata.name, '--grace-period=0', '--force');
    await newPs('aging', before);
    await waitFor('aging', '.status.redundancy', 'full');
    await hurry('aging');
    await waitFor('aging', '.status.phase', 'Succeeded');
    const books = await booksOf('aging', await listen('aging'), { few: true });
    expect(books).toMatchObject({ exactlyOnce: true, problems: [] });
    const [scheduler] = await pods('aging', 'scheduler');
    const node = [
      'exec',
      scheduler!.metadata.name,
      '-c',
      'kintsugi',
      '--',
      'node',
      '--input-type=module',
      '-e',
    ];
    const tables = JSON.parse(await kubectl(...node, TABLES)) as Aged[];
    const aged = tables.filter((table) => table.policy !== undefined);
    expect(aged.length).toBeGreaterThan(0);
    for (const table of aged) expect(table.policy).toMatchObject({ ttl: 60, bloom: { sightings: 2 } });
    for (const reason of ['expired', 'refused'])
      expect(aged.reduce((sum, { life }) => sum + (life?.[reason] ?? 0), 0)).toBeGreaterThan(0);
    await kubectl('delete', 'trainingjob', 'aging');
  });
});
