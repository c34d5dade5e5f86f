/**
 * The token is nowhere to be seen: not in the list of processes, not in a log, not in a report. TLS by flags.
 */
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, expect, test } from 'vitest';
import { certificateOf, clientTlsOf, roleTlsOf } from '../../src/cli/flags.js';
import { writeDemoData } from '../../src/training/loop/demo-data.js';
import { type Certificates, hasOpenssl, makeCertificates } from '../net/transport/certificates.js';
import { kintsugi, type Running, record, start } from './support.js';

const TOKEN = 'xyzzy-a-secret-that-is-nowhere-else';
const NODE_TOKEN = 'frobozz-a-secret-that-workers-are-not-told';
const METRICS_TOKEN = 'plugh-a-secret-that-may-be-shown-to-metrics-only';
let directory = '';
let tokenFile = '';
let nodeTokenFile = '';
const cleanups: (() => unknown)[] = [];

beforeAll(() => {
  directory = mkdtempSync(join(tmpdir(), 'kintsugi-secret-'));
  tokenFile = join(directory, 'token');
  writeFileSync(tokenFile, `${TOKEN}\n`);
  nodeTokenFile = join(directory, 'node-token');
  writeFileSync(nodeTokenFile, `${NODE_TOKEN}\n`);
});
afterEach(async () => {
  // All cleanups run, even after one fails: a process must not outlive its test.
  const failures: unknown[] = [];
  for (const cleanup of cleanups.splice(0).reverse()) {
    try {
      await cleanup();
    } catch (error) {
      failures.push(error);
    }
  }
  if (failures.length > 0) throw failures[0];
});
afterAll(() => rmSync(directory, { recursive: true, force: true }));

/** Arguments and environment of every process of this machine; processes come and go while we look. */
function processes(): { line: string; environment: string }[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .flatMap((pid) => {
      try {
        const read = (file: string) => readFileSync(`/proc/${pid}/${file}`, 'utf8').replaceAll('\0', ' ');
        return [{ line: read('cmdline'), environment: read('environ') }];
      } catch {
        return [];
      }
    });
}

test.skipIf(process.platform !== 'linux')('a local job shows its token to nobody', async () => {
  const train = join(directory, 'train.tsv');
  await writeDemoData({
    train,
    test: join(directory, 'test.tsv'),
    rows: 3000,
    testRows: 10,
    keys: 500,
    seed: 1,
  });
  const secrets = ['--token-file', tokenFile, '--node-token-file', nodeTokenFile];
  const [log, json] = [join(directory, 'log'), join(directory, 'report.json')];
  const shape = [
    '--ps',
    '2',
    '--code',
    '1+1',
    '--workers',
    '1',
    '--dim',
    '4',
    '--bottom',
    '8-4',
    '--top',
    '8-1',
  ];
  const files = ['--data', train, '--log', log, '--json', json, ...secrets];
  const job = start(['local', ...shape, ...files]);
  cleanups.push(() => job.process.kill());
  await job.line((line) => /2 PS.* are up/.test(line));
  // A worker is there, too.
  await job.line((line) => /of 3,000 samples/.test(line));
  const all = processes();
  const lines = all.map(({ line }) => line);
  // The roles of this very job are among the processes.
  const roles = lines.filter((line) => / ps --scheduler /.test(line) && /--name ps-[01]/.test(line));
  expect(roles.length).toBeGreaterThanOrEqual(2);
  expect(lines.filter((line) => line.includes(TOKEN) || line.includes(NODE_TOKEN))).toEqual([]);
  const told = all.filter(({ environment }) => environment.includes(NODE_TOKEN)).map(({ line }) => line);
  expect(told.length).toBeGreaterThanOrEqual(3);
  for (const line of told) expect(line).toMatch(/ (ps|scheduler) --/);
  const { code, stdout, stderr } = await job.ended;
  expect(code).toBe(0);
  const written = [stdout, stderr, ...[log, json].map((file) => readFileSync(file, 'utf8'))];
  expect(written[2]).toContain('ps.ready');
  for (const text of written) {
    expect(text).not.toContain(TOKEN);
    expect(text).not.toContain(NODE_TOKEN);
  }
});

test('a role that refuses a peer says nothing of either token', async () => {
  const scheduler = start(['scheduler', '--listen', '127.0.0.1:0', '--ps', '1', '--code', 'none'], {
    KINTSUGI_TOKEN: TOKEN,
    KINTSUGI_METRICS_TOKEN: METRICS_TOKEN,
  });
  cleanups.push(() => scheduler.process.kill());
  const address = String((await record(scheduler, 'scheduler.ready')).address);
  const wrong = `${TOKEN}-wrong`;
  const refused = await kintsugi(['status', '--scheduler', address], { KINTSUGI_TOKEN: wrong });
  expect(refused.code).not.toBe(0);
  expect(refused.stderr).toContain('UNAUTHORIZED');
  const answer = await fetch(`http://${address}/metrics`, { headers: { authorization: `Bearer ${wrong}` } });
  expect(answer.status).toBe(401);
  const body = await answer.text();
  scheduler.process.kill();
  const { stdout, stderr } = await scheduler.ended;
  expect(stderr).toContain('scheduler.ready');
  for (const text of [stdout, stderr, body, refused.stdout, refused.stderr]) {
    expect(text).not.toContain(TOKEN);
    expect(text).not.toContain(METRICS_TOKEN);
  }
});

test('metrics are opened by the token of their file, and not by the token of the job', async () => {
  const metricsFile = join(directory, 'metrics-token');
  writeFileSync(metricsFile, `${METRICS_TOKEN}\n`);
  const shape = ['--listen', '127.0.0.1:0', '--ps', '1', '--code', 'none', '--token-file', tokenFile];
  const scheduler = start(['scheduler', ...shape, '--metrics-token-file', metricsFile]);
  cleanups.push(() => scheduler.process.kill());
  const address = String((await record(scheduler, 'scheduler.ready')).address);
  const status = async (token: string): Promise<number> => {
    const headers = { authorization: `Bearer ${token}` };
    return (await fetch(`http://${address}/metrics`, { headers })).status;
  };
  expect([await status(METRICS_TOKEN), await status(TOKEN)]).toEqual([200, 401]);
  const same = await kintsugi(['scheduler', ...shape, '--metrics-token-file', tokenFile]);
  expect(same.code).toBe(2);
  expect(same.stderr).toContain('BAD_ARGUMENT');
});

test('TLS flags: what belongs together', () => {
  const pair = { tlsCert: 'c', tlsKey: 'k' };
  expect(clientTlsOf({})).toBeUndefined();
  expect(clientTlsOf({ tlsCa: 'ca', tlsName: 'n' })).toEqual({ caFile: 'ca', serverName: 'n' });
  expect(clientTlsOf({ tlsCa: 'system' })).toEqual({});
  expect(clientTlsOf(pair)).toEqual({});
  expect(roleTlsOf({})).toBeUndefined();
  expect(roleTlsOf({ ...pair, tlsCa: 'ca' })).toEqual({ certFile: 'c', keyFile: 'k', caFile: 'ca' });
  expect(certificateOf(pair)).toEqual({ certFile: 'c', keyFile: 'k' });
  for (const flags of [{ tlsCert: 'c' }, { tlsKey: 'k' }, { tlsCa: 'ca' }, { tlsName: 'n' }]) {
    expect(() => roleTlsOf(flags), JSON.stringify(flags)).toThrow(
      expect.objectContaining({ code: 'BAD_ARGUMENT' }),
    );
  }
});

test.skipIf(!hasOpenssl)('roles and commands speak TLS by flags and by KINTSUGI_TLS_CA', async () => {
  const certificates: Certificates = makeCertificates();
  cleanups.push(() => certificates.remove());
  const { certFile, keyFile, caFile } = certificates.tls;
  const shown = ['--tls-cert', certFile, '--tls-key', keyFile, '--tls-ca', caFile];
  const role = (args: string[]): Running => {
    const running = start([...args, ...shown, '--log-format', 'json'], { KINTSUGI_TOKEN: TOKEN });
    cleanups.push(async () => {
      // The whole job ends, so a PS that drained would find nobody to hand over to.
      running.process.kill('SIGINT');
      expect((await running.ended).code).toBe(0);
    });
    return running;
  };
  const scheduler = role(['scheduler', '--listen', '127.0.0.1:0', '--code', '1+1']);
  const address = String((await record(scheduler, 'scheduler.ready')).address);
  const nodes = ['a', 'b'].map((name) => role(['ps', '--scheduler', address, '--name', name]));
  await Promise.all(nodes.map((node) => record(node, 'ps.ready')));
  const status = (args: string[], env: NodeJS.ProcessEnv = {}) =>
    kintsugi(['status', '--json', '--scheduler', address, '--connect-timeout', '1s', ...args], {
      KINTSUGI_TOKEN: TOKEN,
      ...env,
    });
  for (const good of [await status(['--tls-ca', caFile]), await status([], { KINTSUGI_TLS_CA: caFile })]) {
    expect(good).toMatchObject({ code: 0, stderr: '' });
    expect(JSON.parse(good.stdout)).toMatchObject({ nodes: [{ alive: true }, { alive: true }] });
  }
  expect((await status(['--tls-ca', certificates.otherCa])).stderr).toMatch(
    /UNAUTHORIZED.*not to be trusted/,
  );
  expect((await status(['--tls-ca', caFile, '--tls-name', 'elsewhere.test'])).stderr).toMatch(/UNAUTHORIZED/);
  expect((await status([])).stderr).toMatch(/UNREACHABLE.*TLS/);
});
