/** A run that goes on with other data than it began with is refused, and so is an evaluation of nothing. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { connect } from '../../src/index.js';
import { ps, scheduler } from '../roles/support.js';
import { row } from '../training/models/rows.js';
import { record, start } from './support.js';

const SHAPE = ['--dim', '4', '--bottom', '8-4', '--top', '8-1'];

/** A job of one PS, and its workers, with files in a directory of their own. */
async function startJob() {
  const directory = mkdtempSync(join(tmpdir(), 'kintsugi-resumed-'));
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  const write = (path: string, content: string) => {
    const file = join(directory, path);
    mkdirSync(join(file, '..'), { recursive: true });
    writeFileSync(file, content);
    return file;
  };
  const schema = write('schema.json', JSON.stringify({ label: 'y', sparse: ['t'] }));
  const { address } = await scheduler();
  await ps({ scheduler: address });
  const worker = (...flags: string[]) => {
    const started = start(['worker', '--scheduler', address, ...SHAPE, ...flags, '--log-format', 'json']);
    onTestFinished(() => void started.process.kill('SIGKILL'));
    return started;
  };
  const refusal = async (...flags: string[]) => {
    const { code, stderr } = await worker(...flags).ended;
    expect(code).toBeGreaterThan(0);
    return stderr.trim().split('\n').at(-1);
  };
  return { address, schema, write, worker, refusal };
}

test('a run goes on with its own files and schema; an evaluation needs the tables', async () => {
  const { address, schema, write, worker, refusal } = await startJob();
  const [one, other] = ['a', 'b'].map((key) => write(`${key}/x.tsv`, `y\tt\n1\t${key}\n0\tc\n`));
  const followed = write('f.tsv', 'y\tt\n1\ta\n0\tb\n1\tc\n');

  const client = await connect(address);
  onTestFinished(() => client.close());
  const evaluated = await refusal('--evaluate', '--test', one!, '--schema', schema);
  expect(evaluated).toMatch(/UNKNOWN_TABLE.*the job has no table/);
  expect(client.tables()).toEqual([]);

  expect((await worker('--data', one!, '--schema', schema).ended).code).toBe(0);
  const others = await refusal('--data', other!, '--schema', schema);
  expect(others).toMatch(/has another file x\.tsv, .* give those of the run/);
  const criteo = await refusal('--data', one!);
  expect(criteo).toMatch(/has a schema with label "y", not that of the Criteo layout: give that of the run/);
  expect((await worker('--evaluate', '--test', one!, '--schema', schema).ended).code).toBe(0);

  const follow = ['--run', 'f', '--follow', '--data', followed, '--schema', schema];
  const first = worker(...follow);
  await record(first, 'worker.range');
  first.process.kill('SIGTERM');
  await first.ended;
  writeFileSync(followed, 'y\tt\n0\tlonger\n1\td\n0\te\n1\tf\n');
  expect(await refusal(...follow)).toMatch(/f\.tsv: no line ends at byte/);
});

test('a run in the Criteo layout goes on with no schema', async () => {
  const { schema, write, worker, refusal } = await startJob();
  const rows = write('criteo.tsv', `${row('1', ['7'])}\n`);
  expect((await worker('--data', rows).ended).code).toBe(0);
  const described = await refusal('--data', rows, '--schema', schema);
  expect(described).toMatch(/has a schema with label that of the Criteo layout, not "y"/);
});
