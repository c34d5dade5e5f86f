/** Commands that a command prints work when they are pasted into a shell: with the flags of the job. */
import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { hint } from '../../src/cli/hints.js';
import { type Client, connect } from '../../src/library/client/client.js';
import { type LocalCluster, startLocalCluster } from '../../src/roles/cluster.js';
import { CLI, kintsugi, start } from './support.js';

const TOKEN = 'the token of this job';
let directory = '';
/** A name that a shell takes apart unless it is quoted. */
let tokenFile = '';
let cluster: LocalCluster;
let client: Client;
const pasted: ChildProcess[] = [];

beforeAll(async () => {
  directory = mkdtempSync(join(tmpdir(), 'kintsugi-hints-'));
  tokenFile = join(directory, "somebody's token");
  writeFileSync(tokenFile, `${TOKEN}\n`);
  cluster = await startLocalCluster({ code: '1+1', ps: 2, token: TOKEN });
  client = await connect(cluster.address, { token: TOKEN });
  await client.createTables(
    Array.from({ length: 30 }, (_, i) => ({ name: `table-${i}`, dim: i === 17 ? 64 : 4 })),
  );
  for (const [name, rows] of [
    ['table-9', 50],
    ['table-17', 20],
    ['table-3', 30],
  ] as const) {
    const table = client.table(name);
    const keys = BigUint64Array.from({ length: rows }, (_, i) => BigInt(i));
    await table.push(keys, new Float32Array(rows * table.dim).fill(1));
  }
});
afterAll(async () => {
  for (const child of pasted) child.kill('SIGKILL');
  await client.close();
  await cluster.close();
  rmSync(directory, { recursive: true });
});

const at = () => ['--scheduler', cluster.address, '--token-file', tokenFile];

/** Runs a printed command in a shell, in place of the shell. */
function paste(command: string): ChildProcess {
  expect(command).toMatch(/^kintsugi /);
  const env = { ...process.env, KINTSUGI_TOKEN: '', KINTSUGI_NODE_TOKEN: '', NODE: process.execPath, CLI };
  const line = command.replace(/^kintsugi/, 'exec "$NODE" "$CLI"');
  const child = spawn('/bin/sh', ['-c', line], { env, stdio: ['ignore', 'pipe', 'pipe'] });
  pasted.push(child);
  return child;
}

async function said(child: ChildProcess): Promise<string> {
  let text = '';
  for await (const chunk of child.stdout!) text += String(chunk);
  return text;
}

/** Standard output of a command, when it has the text. */
function until(child: ChildProcess, has: string): Promise<string> {
  let text = '';
  return new Promise((resolve) => {
    child.stdout!.on('data', (chunk: Buffer) => {
      text += chunk.toString();
      if (text.includes(has) && text.endsWith('\n')) resolve(text);
    });
  });
}

test('words and flags are quoted as a shell needs it', () => {
  const flags = { scheduler: 'a:1,b:2', connectTimeout: 1, tokenFile: "it's", tlsCa: 'ca.pem', tlsName: 'n' };
  expect(hint(['restore', 's3://b/p@3'], flags)).toBe(
    "kintsugi restore s3://b/p@3 --scheduler a:1,b:2 --token-file 'it'\\''s' --tls-ca ca.pem --tls-name n",
  );
});

test('status shows the largest tables, says how many it does not show, and how to see them', async () => {
  const { stdout } = await kintsugi(['status', '--tables', '3', ...at()]);
  const names = [...stdout.matchAll(/^(table-\d+) .* (\d+) +[\d.]+ \w+$/gm)].map(([, ...parts]) => parts);
  expect(names).toEqual([
    ['table-17', '20'],
    ['table-9', '50'],
    ['table-3', '30'],
  ]);
  const [, command] = /^27 tables are not shown, these are the largest ones: (.*)$/m.exec(stdout) ?? [];
  const all = await said(paste(command!));
  expect(all.match(/^table-\d+ /gm)).toHaveLength(30);
  expect(all).not.toContain('not shown');
  // Twenty without the flag.
  expect((await kintsugi(['status', ...at()])).stdout).toContain('10 tables are not shown');
  const json = await kintsugi(['status', '--json', ...at()]);
  expect(JSON.parse(json.stdout).tables).toHaveLength(30);
  const wrong = await kintsugi(['status', '--tables', 'some', ...at()]);
  expect([wrong.code, wrong.stderr]).toEqual([2, expect.stringMatching(/BAD_ARGUMENT: --tables must be/)]);
});

test('scale names a command that starts what it waits for', async () => {
  const scale = start(['scale', '--add', '1', ...at()]);
  const text = await until(scale.process, 'each with: ');
  const [, command] = /start 1 more, each with: (.*)$/m.exec(text) ?? [];
  paste(command!);
  expect(await scale.ended).toMatchObject({ code: 0, stdout: expect.stringContaining('3 PS serve; ') });
});

test('checkpoint now without a place, and restore without its flag, name the right commands', async () => {
  const now = await kintsugi(['checkpoint', 'now', ...at()]);
  const [, set] = /give it one with "(.*)"/.exec(now.stderr) ?? [];
  const place = join(directory, 'place');
  expect(await said(paste(`${set!.replace('PLACE', place)} --every 0s`))).toContain(place);
  const made = await kintsugi(['checkpoint', 'now', ...at()]);
  expect(made.code).toBe(0);
  const restore = await kintsugi(['restore', place, ...at()]);
  expect(restore.code).toBe(2);
  const [, lost] = /needs --only-lost: (kintsugi .*); a whole job/.exec(restore.stderr) ?? [];
  expect(await said(paste(lost!))).toBe('nothing is lost\n');
});
