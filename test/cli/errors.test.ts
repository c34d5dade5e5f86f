/** Bad input ends in one line with a code, and exit 2. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { startLocalCluster } from '../../src/roles/cluster.js';
import { kintsugi, record, start } from './support.js';

const NOWHERE = ['--scheduler', '127.0.0.1:1', '--connect-timeout', '100ms'];
let directory = '';
let good = '';

beforeAll(() => {
  directory = mkdtempSync(join(tmpdir(), 'kintsugi-cli-'));
  good = join(directory, 'good.tsv');
  const fields = Array.from({ length: 13 }, (_, i) => `${i}`);
  const categories = Array.from({ length: 26 }, (_, i) => i.toString(16));
  writeFileSync(good, `${['1', ...fields, ...categories].join('\t')}\n`.repeat(10));
});
afterAll(() => rmSync(directory, { recursive: true, force: true }));

async function refused(args: string[], code: string, message: RegExp, env: NodeJS.ProcessEnv = {}) {
  const output = await kintsugi(args, env);
  expect(output.said.at(-1)).toMatch(new RegExp(`^kintsugi: ${code}: .*${message.source}`));
  expect(output.said.filter((line) => line.startsWith('kintsugi: '))).toHaveLength(1);
  expect(output.code).toBe(2);
  return output;
}

const file = (name: string) => join(directory, name);
/** A single line and nothing else: the input is refused before anything is started. */
async function refusedAtOnce(args: string[], code: string, message: RegExp, env: NodeJS.ProcessEnv = {}) {
  const output = await refused(args, code, message, env);
  expect(output.stderr.split('\n')).toHaveLength(1);
  expect(output.stdout).toBe('');
}

describe('commands and flags', () => {
  const cases: [name: string, args: () => string[], message: RegExp][] = [
    ['no command', () => [], /a command is needed/],
    ['an unknown command', () => ['bogus'], /unknown command 'bogus'/],
    ['an unknown flag', () => ['ps', '--bogus'], /unknown option '--bogus'/],
    ['an unknown limit', () => ['ps', '--limit', 'bogus=1'], /unknown limit "bogus"/],
    ['a limit without a number', () => ['scheduler', '--limit', 'silentMs=x'], /silentMs=N/],
    ['a flag without its value', () => ['ps', '--name'], /--name/],
    ['an unexpected argument', () => ['status', 'x'], /too many arguments/],
    ['local without data', () => ['local'], /--data/],
    ['local without anything to do', () => ['local', '--data', good, '--epochs', '0'], /--epochs 0 .*--test/],
    [
      'a worker without anything to do',
      () => ['worker', ...NOWHERE, '--data', good, '--epochs', '0'],
      /--epochs 0 .*--test/,
    ],
    ['a malformed code', () => ['local', '--data', good, '--code', '4x1'], /"4x1" is not a code/],
    ['a malformed code for the scheduler', () => ['scheduler', '--code', '0+1'], /"0\+1" is not a code/],
    ['a malformed kill', () => ['local', '--data', good, '--kill', 'ps50'], /--kill .*"ps50"/],
    ['a kill beyond the end', () => ['local', '--data', good, '--kill', 'ps@101%'], /--kill .*"ps@101%"/],
    [
      'a kill of an unknown role',
      () => ['local', '--data', good, '--kill', 'disk@5%'],
      /"disk" is not a role/,
    ],
    ['a kill of a worker that is not', () => ['local', '--data', good, '--kill', 'worker:2@5%'], /0 to 1/],
    ['a kill of a node that is not', () => ['local', '--data', good, '--kill', 'ps:5@5%'], /indices 0 to 4/],
    ['a malformed time', () => ['local', '--data', good, '--respawn', 'soon'], /--respawn .*"soon"/],
    ['a demo without data', () => ['demo', '--rows', '0'], /--rows must be an integer of at least 1000/],
    ['two deterministic workers', () => ['local', '--data', good, '--deterministic'], /--workers 1/],
    [
      'a report in no directory',
      () => ['local', '--data', good, '--json', file('no/r.json')],
      /cannot be written/,
    ],
    ['a malformed size', () => ['ps', '--memory', 'lots'], /--memory .*"lots"/],
    ['a malformed address', () => ['ps', '--scheduler', 'a:b:c'], /"a:b:c" is not an address/],
    ['a malformed node name', () => ['ps', ...NOWHERE, '--name', 'a b'], /"a b" is not a node name/],
    ['a dim of 0', () => ['worker', ...NOWHERE, '--data', good, '--dim', '0'], /--dim must be/],
    [
      'an unknown optimizer',
      () => ['worker', ...NOWHERE, '--data', good, '--optimizer', 'x'],
      /--optimizer must be/,
    ],
    ['a learning rate of 0', () => ['worker', ...NOWHERE, '--data', good, '--lr', '0'], /--lr must be/],
    ['a worker without data', () => ['worker', ...NOWHERE], /--data is needed/],
    ['an evaluation without data', () => ['worker', ...NOWHERE, '--evaluate'], /--evaluate needs --test/],
    [
      'two answers about staleness',
      () => ['worker', ...NOWHERE, '--data', good, '--sync', '--staleness', '4'],
      /--sync/,
    ],
    [
      'widths that are none',
      () => ['worker', ...NOWHERE, '--data', good, '--top', 'x'],
      /--top must be widths/,
    ],
    [
      'a token file that is not there',
      () => ['ps', ...NOWHERE, '--token-file', file('token')],
      /--token-file/,
    ],
  ];
  test.each(cases)('%s', async (_, args, message) => {
    await refusedAtOnce(args(), 'BAD_ARGUMENT', message);
  });

  test('help and version are no errors', async () => {
    for (const args of [['--help'], ['ps', '--help'], ['help', 'local'], ['--version']]) {
      const output = await kintsugi(args);
      expect(output).toMatchObject({ code: 0, stderr: '' });
      expect(output.stdout).not.toBe('');
    }
  });
});

describe('data and models', () => {
  test('a missing file is named', async () => {
    await refusedAtOnce(['worker', ...NOWHERE, '--data', file('no.tsv')], 'BAD_DATA', /no\.tsv/);
    await refusedAtOnce(['local', '--data', good, '--test', file('no.tsv')], 'BAD_DATA', /no\.tsv/);
  });

  test('data without samples are named, and nothing is run', async () => {
    const empty = file('empty.tsv');
    writeFileSync(empty, '');
    await refusedAtOnce(['local', '--data', empty], 'BAD_DATA', /--data .*empty\.tsv: there are no samples/);
    const args = ['local', '--data', good, '--test', empty];
    await refusedAtOnce(args, 'BAD_DATA', /--test .*empty\.tsv: there are no samples/);
    await refusedAtOnce(['local', '--data', '/dev/null'], 'BAD_DATA', /\/dev\/null: .* it is a device/);
  });

  test('a pipe is refused: it can be read once', async () => {
    const flags = ['--ps', '2', '--code', '1+1', '--workers', '1'];
    const running = start(['local', '--data', '/dev/stdin', ...flags], {}, 'pipe');
    onTestFinished(() => void running.process.kill('SIGKILL'));
    const { code, stderr } = await running.ended;
    expect(stderr).toMatch(
      /^kintsugi: BAD_DATA: \/dev\/stdin: must be a regular file, .*; it is a (pipe|socket)$/,
    );
    expect(code).toBe(2);
  });

  test('a missing model file is named', async () => {
    const args = ['worker', ...NOWHERE, '--data', good, '--model', file('no.js')];
    await refusedAtOnce(args, 'MODEL', /no\.js/);
  });

  test('a malformed row is named by file, line and column, also by a launcher', async () => {
    const bad = file('bad.tsv');
    writeFileSync(bad, '1\t2\t3\n');
    const flags = ['--ps', '2', '--code', '1+1', '--workers', '1', '--quiet'];
    await refused(['local', '--data', bad, ...flags], 'BAD_DATA', /worker-0: .*bad\.tsv:1:\d+: /);
  });
});

describe('the other side', () => {
  test('a scheduler that is not there', async () => {
    for (const command of ['ps', 'status'])
      await refused([command, ...NOWHERE], 'UNREACHABLE', /127\.0\.0\.1:1/);
    await refused(['worker', ...NOWHERE, '--data', good], 'UNREACHABLE', /127\.0\.0\.1:1/);
    await refused(['save', file('saved'), ...NOWHERE], 'UNREACHABLE', /127\.0\.0\.1:1/);
  });

  test('more nodes are needed than there will be, or than have joined', async () => {
    await refusedAtOnce(['local', '--data', good, '--ps', '3'], 'NOT_ENOUGH_NODES', /needs 5 PS nodes/);
    await refusedAtOnce(['scheduler', '--ps', '3'], 'NOT_ENOUGH_NODES', /needs 5 PS nodes/);
    const scheduler = start(['scheduler', '--listen', '127.0.0.1:0', '--log-format', 'json']);
    const { address } = await record(scheduler, 'scheduler.ready');
    const args = ['worker', '--scheduler', String(address), '--connect-timeout', '300ms', '--data', good];
    await refused(args, 'NOT_ENOUGH_NODES', /0 of 5 nodes have joined/);
    scheduler.process.kill('SIGTERM');
    expect((await scheduler.ended).code).toBe(0);
  });

  test('a port in use', async () => {
    const cluster = await startLocalCluster({ code: '1+1' });
    try {
      await refused(
        ['scheduler', '--listen', cluster.address],
        'PORT_IN_USE',
        /port \d+ on 127\.0\.0\.1 is in use/,
      );
    } finally {
      await cluster.close();
    }
  });

  test('listening beyond loopback without a token', async () => {
    await refused(['scheduler', '--listen', '0.0.0.0:0'], 'TOKEN_REQUIRED', /token/);
  });

  test('listening beyond loopback with a token that can be guessed', async () => {
    const short = { KINTSUGI_TOKEN: 'of 15 bytes....' };
    const text = /beyond loopback without TLS the token must have at least 16 bytes, not 15/;
    await refused(['scheduler', '--listen', '0.0.0.0:0'], 'BAD_ARGUMENT', text, short);
  });

  test('a wrong token', async () => {
    const cluster = await startLocalCluster({ code: '1+1', token: 'right' });
    try {
      const wrong = { KINTSUGI_TOKEN: 'wrong' };
      await refused(['status', '--scheduler', cluster.address], 'UNAUTHORIZED', /127/, wrong);
      await refused(['ps', '--scheduler', cluster.address], 'UNAUTHORIZED', /127/, wrong);
      const output = await kintsugi(['status', '--scheduler', cluster.address], { KINTSUGI_TOKEN: 'right' });
      expect(output.code).toBe(0);
    } finally {
      await cluster.close();
    }
  });

  test('an addon that cannot be loaded says what to run', async () => {
    await refused(['ps', ...NOWHERE], 'ADDON_NOT_LOADED', /npm run build/, {
      KINTSUGI_ADDON: file('no.node'),
    });
  });

  test('a name that a newer process has taken', async () => {
    const cluster = await startLocalCluster({ code: '1+1' });
    try {
      const args = [
        'ps',
        '--scheduler',
        cluster.address,
        '--name',
        'twin',
        '--standby',
        '--log-format',
        'json',
      ];
      const older = start(args);
      await record(older, 'ps.ready');
      const newer = start(args);
      await record(newer, 'ps.ready');
      const output = await older.ended;
      expect(output.said.at(-1)).toMatch(/^kintsugi: STALE_NODE: .*"twin"/);
      expect(output.code).toBe(2);
      newer.process.kill('SIGINT');
      expect((await newer.ended).code).toBe(0);
    } finally {
      await cluster.close();
    }
  });

  test('a checkpoint that is none', async () => {
    const flags = ['--ps', '2', '--code', '1+1', '--workers', '1', '--quiet'];
    await refused(
      ['local', '--data', good, '--resume', file('none'), ...flags],
      'CHECKPOINT_MISSING',
      /none/,
    );
  });
});
