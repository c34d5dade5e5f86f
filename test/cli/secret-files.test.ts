/** A file with a secret that group or others can read is a warning at the start of a role, and only one. */
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type SecretFlags, warnOfReadable } from '../../src/cli/secret-files.js';
import type { LogFields } from '../../src/net/log.js';
import { record, start } from './support.js';

let directory = '';
beforeAll(() => {
  directory = mkdtempSync(join(tmpdir(), 'kintsugi-secret-files-'));
});
afterAll(() => rmSync(directory, { recursive: true, force: true }));

function secret(name: string, mode: number): string {
  const file = join(directory, name);
  writeFileSync(file, 'a secret of the usual length\n');
  chmodSync(file, mode);
  return file;
}

function warningsOf(flags: SecretFlags, user?: number): LogFields[] {
  const seen: LogFields[] = [];
  const log = {
    info() {},
    error() {},
    warn: (event: string, fields = {}) => seen.push({ event, ...fields }),
  };
  warnOfReadable(flags, log, user);
  return seen;
}

test.each([
  [0o600, false],
  [0o400, false],
  [0o640, true],
  [0o604, true],
  [0o644, true],
  [0o620, false],
])('mode %o', (mode, warned) => {
  const file = secret('token', mode);
  const warning = {
    event: 'secret.readable',
    flag: '--token-file',
    file,
    mode: `0${mode.toString(8)}`,
    message: 'others on this machine can read it: chmod 600',
  };
  expect(warningsOf({ tokenFile: file })).toEqual(warned ? [warning] : []);
});

test('every flag that names a secret is looked at; what cannot be read is for its reader to say', () => {
  const file = secret('any', 0o644);
  const flags = {
    ...{ tokenFile: file, nodeTokenFile: file, metricsTokenFile: file, pullTokenFile: file, tlsKey: file },
    tlsCert: file,
  };
  expect(warningsOf(flags).map(({ flag }) => flag)).toEqual([
    ...['--token-file', '--node-token-file', '--metrics-token-file', '--pull-token-file', '--tls-key'],
  ]);
  expect(warningsOf({ tokenFile: join(directory, 'none') })).toEqual([]);
  expect(warningsOf({})).toEqual([]);
});

test('a file of somebody else is for a group, or nobody could read it', () => {
  const other = (process.getuid?.() ?? 0) + 1;
  expect(warningsOf({ tokenFile: secret('shared', 0o440) }, other)).toEqual([]);
  expect(warningsOf({ tokenFile: secret('open', 0o444) }, other)).toHaveLength(1);
});

test('a scheduler says so once, and goes on', async () => {
  const shape = ['scheduler', '--listen', '127.0.0.1:0', '--ps', '1', '--code', 'none', '--token-file'];
  for (const [mode, warned] of [
    [0o644, true],
    [0o600, false],
  ] as const) {
    const file = secret('start', mode);
    const scheduler = start([...shape, file]);
    try {
      await record(scheduler, 'scheduler.ready');
    } finally {
      scheduler.process.kill();
    }
    const { stderr } = await scheduler.ended;
    const warnings = stderr.split('\n').filter((line) => line.includes('secret.readable'));
    expect(warnings).toHaveLength(warned ? 1 : 0);
    if (warned) expect(JSON.parse(warnings[0]!)).toMatchObject({ level: 'warn', role: 'scheduler', file });
  }
});
