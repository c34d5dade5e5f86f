/** Limits of the operating system: each is named, with what to raise, and no file is blamed for it. */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { codeOf, describe as described, KintsugiError } from '../../src/common/errors.js';
import { bad } from '../../src/data/bytes.js';
import { CLI, kintsugi, start } from './support.js';

const SOURCES = join(dirname(CLI), '..');
const OPEN_FILES = /raise "ulimit -n"/;
let directory = '';

beforeAll(() => {
  directory = mkdtempSync(join(tmpdir(), 'kintsugi-limits-'));
  writeFileSync(join(directory, 'data.tsv'), '1\n');
});
afterAll(() => rmSync(directory, { recursive: true, force: true }));

/** Everything is loaded and used once, and then all open files that the process may have are taken. */
const PROGRAM = `
import { openSync } from 'node:fs';
const load = (name) => import(new URL(name, process.argv[2]));
const { chunks } = await load('data/bytes.js');
const { openPlace } = await load('stores/checkpoint/open.js');
const { connect } = await load('index.js');
const { listenError } = await load('net/transport/accept.js');
const { createServer } = await import('node:net');
const [directory] = process.argv.slice(3);
const file = directory + '/data.tsv';
const place = await openPlace(directory + '/place');
const bind = () => new Promise((resolve, reject) => {
  const server = createServer().on('error', (error) => reject(listenError(error, '127.0.0.1', 0)));
  server.listen(0, '127.0.0.1', () => server.close(resolve));
});
const dial = () => connect('127.0.0.1:1', { connectTimeoutMs: 50 });
const tries = {
  read: async () => { for await (const _ of chunks(file)); },
  put: () => place.put('000001/one', [Buffer.from('x')]),
  listen: bind,
  dial,
};
const outcome = (work) => work().then(() => 'ok', ({ code, message }) => ({ code, message }));
const before = {};
for (const [name, work] of Object.entries(tries)) before[name] = await outcome(work);
try { for (;;) openSync('/dev/null'); } catch {}
const after = {};
tries.put = () => place.put('000001/two', [Buffer.from('x')]);
for (const [name, work] of Object.entries(tries)) after[name] = await outcome(work);
process.stdout.write(JSON.stringify({ before, after }), () => process.exit());
`;

interface Refusal {
  code: string;
  message: string;
}

test('a process without free descriptors says so wherever it opens something', () => {
  const program = join(directory, 'program.mjs');
  writeFileSync(program, PROGRAM);
  const url = `${pathToFileURL(SOURCES)}/`;
  const limited = ['-c', 'ulimit -n 512; exec "$@"', 'sh', process.execPath, program, url, directory];
  const { stdout, stderr } = spawnSync('/bin/sh', limited, { encoding: 'utf8' });
  expect(stderr).toBe('');
  const { before, after } = JSON.parse(stdout) as Record<'before' | 'after', Record<string, Refusal>>;
  expect(before).toMatchObject({ read: 'ok', put: 'ok', listen: 'ok', dial: { code: 'UNREACHABLE' } });
  expect(before.dial!.message).not.toMatch(OPEN_FILES);
  expect(after.read).toEqual({ code: 'SYSTEM_LIMIT', message: expect.stringMatching(OPEN_FILES) });
  expect(after.put).toEqual({ code: 'PLACE_FAILED', message: expect.stringMatching(OPEN_FILES) });
  expect(after.listen).toEqual({ code: 'SYSTEM_LIMIT', message: expect.stringMatching(OPEN_FILES) });
  expect(after.dial).toEqual({ code: 'UNREACHABLE', message: expect.stringMatching(OPEN_FILES) });
});

test('a scheduler whose journal grows beyond the limit of a file names it', async () => {
  const flags = ['scheduler', '--listen', '127.0.0.1:0', '--dir', join(directory, 'state')];
  const ended = await start(flags, {}, 'ignore', 0).ended;
  expect(ended.code).not.toBe(0);
  expect(ended.stderr).toMatch(/EFBIG.*raise \\?"ulimit -f\\?"/);
});

test('a device without space names it', async () => {
  const full = { encoding: 'utf8', env: { ...process.env, KINTSUGI_TOKEN: '' } } as const;
  const command = ['-c', 'exec "$@" > /dev/full', 'sh', process.execPath, CLI, '--help'];
  const { stderr, status } = spawnSync('/bin/sh', command, full);
  expect([status, stderr]).toEqual([1, expect.stringMatching(/^kintsugi: SYSTEM_LIMIT: .*no space/)]);
});

test.each([
  ['EMFILE', 'ulimit -n'],
  ['ENFILE', 'fs.file-max'],
  ['ENOSPC', 'make room'],
  ['EDQUOT', 'quota'],
  ['EFBIG', 'ulimit -f'],
  ['ENOMEM', 'free some'],
  ['ENOBUFS', 'sockets'],
])('%s of the system is SYSTEM_LIMIT, and its sentence comes once', (code, advice) => {
  const error = Object.assign(new Error(`${code}: said the system, open 'x'`), { code, syscall: 'open' });
  expect(codeOf(error, 'BAD_DATA')).toBe('SYSTEM_LIMIT');
  const wrapped = bad(`x: ${described(error)}`, error);
  expect([wrapped.code, wrapped.message]).toEqual(['SYSTEM_LIMIT', expect.stringContaining(advice)]);
  const again = bad(`y: ${described(wrapped)}`, wrapped);
  expect(again.code).toBe('SYSTEM_LIMIT');
  expect(again.message.split(advice)).toHaveLength(wrapped.message.split(advice).length);
});

test('missing rights keep the code of what was asked for, and say what to mend', async () => {
  const denied = Object.assign(new Error('EACCES: permission denied'), { code: 'EACCES', syscall: 'open' });
  expect(codeOf(denied, 'BAD_DATA')).toBe('BAD_DATA');
  expect(described(denied)).toMatch(/give it the right/);
  expect(described(Object.assign(denied, { syscall: 'listen' }))).toMatch(/ports below 1024/);
  const spawn = Object.assign(new Error('spawn node EAGAIN'), { code: 'EAGAIN', syscall: 'spawn node' });
  expect(described(spawn)).toMatch(/raise "ulimit -u"/);
  expect(described(new KintsugiError('PLACE_FAILED', 'said', { cause: denied }))).toBe('said');
  const missing = await kintsugi(['plan', '--rates', join(directory, 'none'), '--rows', '1', '--dim', '1']);
  expect([missing.code, missing.stderr]).toEqual([2, expect.stringMatching(/BAD_ARGUMENT: .*ENOENT/)]);
});
