import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, onTestFinished, test } from 'vitest';
import { processesOf } from '../../../src/cli/processes.js';
import { Crashes, endingOf, FAILING_CRASHES, STEADY_MS } from '../../../src/fleet/local/restarts.js';
import { Supervisor } from '../../../src/fleet/local/supervisor.js';

test('what the end of a PS means', () => {
  const ended = (code: number | null, signal: NodeJS.Signals | null = null) => ({ code, signal });
  for (const served of [true, false]) {
    expect(endingOf(ended(0), served)).toBe('left');
    expect(endingOf(ended(75), served)).toBe('restart');
    for (const exit of [ended(1), ended(130), ended(null, 'SIGKILL'), ended(null, 'SIGTERM')])
      expect(endingOf(exit, served)).toBe('crashed');
  }
  expect(endingOf(ended(2), false)).toBe('refused');
  expect(endingOf(ended(2), true)).toBe('crashed');
  // The scheduler may only be away for a while.
  expect(endingOf(ended(2), true, 'UNREACHABLE')).toBe('away');
  expect(endingOf(ended(2), false, 'UNREACHABLE')).toBe('refused');
});

test('one that was drained for a restart is started again at once', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'kintsugi-restarts-'));
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  const records: unknown[] = [];
  const lines: string[] = [];
  const note = (event: string, fields: object = {}) => records.push({ event, ...fields });
  const supervisor = new Supervisor({
    processes: [{ name: 'a', args: [join(directory, 'marker')] }],
    cliPath: fileURLToPath(new URL('../../fixtures/restart-once.mjs', import.meta.url)),
    onEvent: () => {},
    onLine: (line, name) => lines.push(`${name}: ${line}`),
    log: { info: note, warn: note, error: note },
  });
  await supervisor.ended;
  expect(records).toMatchObject([
    { event: 'process.started', process: 'a' },
    { event: 'process.ended', process: 'a', code: 75, ending: 'restart' },
    { event: 'process.started', process: 'a' },
    { event: 'process.ended', process: 'a', code: 0, ending: 'left' },
  ]);
  expect(lines).toEqual(['a: not a record']);
  await supervisor.stop('SIGTERM');
});

test('one that served is started again as long as its scheduler is away', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'kintsugi-restarts-'));
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  const endings: unknown[] = [];
  const note = (_: string, { ending }: { ending?: unknown } = {}) => ending && endings.push(ending);
  const supervisor = new Supervisor({
    processes: [{ name: 'a', args: [join(directory, 'lives')] }],
    cliPath: fileURLToPath(new URL('../../fixtures/scheduler-away.mjs', import.meta.url)),
    onEvent: () => {},
    onLine: () => {},
    log: { info: note, warn: note, error: note },
  });
  onTestFinished(() => supervisor.stop('SIGINT'));
  await supervisor.ended;
  expect(endings).toEqual(['crashed', ...new Array(8).fill('away'), 'left']);
});

test('pauses double with each crash, up to the longest; one that has lived for a while begins anew', () => {
  const crashes = new Crashes();
  const pauses = Array.from({ length: 12 }, () => crashes.add(STEADY_MS - 1));
  expect(pauses).toEqual([...[0, 1, 2, 3, 4, 5, 6, 7, 8, 9].map((i) => 100 * 2 ** i), 60_000, 60_000]);
  expect(crashes.inARow).toBe(12);
  expect(crashes.add(STEADY_MS)).toBe(100);
  expect(crashes.inARow).toBe(1);
});

test('one that crashes again and again is said to fail, and the others live on', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'kintsugi-restarts-'));
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  const records: Record<string, unknown>[] = [];
  let seen = (): void => {};
  const failing = new Promise<void>((resolve) => {
    seen = resolve;
  });
  const note = (event: string, fields: object = {}) => {
    records.push({ event, ...fields });
    if (event === 'process.failing') seen();
  };
  const supervisor = new Supervisor({
    processes: [
      { name: 'a', args: ['crash'] },
      { name: 'b', args: ['live'] },
    ],
    cliPath: fileURLToPath(new URL('../../fixtures/crash-or-live.mjs', import.meta.url)),
    onEvent: () => {},
    onLine: () => {},
    log: { info: note, warn: note, error: note },
  });
  onTestFinished(() => supervisor.stop('SIGINT'));
  await Promise.race([failing, supervisor.ended]);
  const crashes = records.filter(({ ending }) => ending === 'crashed');
  expect(crashes.map(({ process, pauseMs }) => [process, pauseMs])).toEqual(
    Array.from({ length: FAILING_CRASHES }, (_, i) => ['a', 100 * 2 ** i]),
  );
  expect(records.filter(({ event }) => event === 'process.failing')).toMatchObject([
    {
      process: 'a',
      crashes: FAILING_CRASHES,
      pauseMs: 1600,
      message: expect.stringContaining('exit code 3'),
    },
  ]);
  expect(records.filter(({ process, event }) => process === 'b' && event !== 'process.started')).toEqual([]);
});

test('what each process is told', () => {
  const flags = { processes: 3, listen: '10.0.0.1:7078', memory: 3001, name: 'a', hostLabel: 'rack' };
  const argv = [
    'node',
    'main.js',
    'ps',
    '--processes',
    '3',
    '--standby',
    '--processes=3',
    '--memory',
    '3001',
  ];
  expect(processesOf(flags, argv)).toEqual(
    [0, 1, 2].map((i) => ({
      name: `a-${i}`,
      args: [
        ...['ps', '--standby', '--host-label', 'rack', '--memory', '1000'],
        ...['--name', `a-${i}`, '--listen', `10.0.0.1:${7078 + i}`],
      ],
    })),
  );
  const free = processesOf({ ...flags, listen: '127.0.0.1:0', memory: 0, advertise: '10.0.0.9:80' }, argv);
  expect(free[2]!.args.slice(-6)).toEqual([
    ...['--name', 'a-2', '--listen', '127.0.0.1:0', '--advertise', '10.0.0.9:82'],
  ]);
  // Each flag is given once, whatever the form in which it was given.
  const forms = [
    'node',
    'main.js',
    'ps',
    '--name=a',
    '--listen',
    '127.0.0.1:0',
    '--advertise',
    'far',
    '--standby',
  ];
  const [one] = processesOf({ ...flags, listen: '127.0.0.1:0', memory: 0, advertise: 'far' }, forms);
  expect(one!.args).toEqual([
    ...['ps', '--standby', '--host-label', 'rack', '--memory', '0', '--name', 'a-0'],
    ...['--listen', '127.0.0.1:0', '--advertise', 'far'],
  ]);
  expect(processesOf({ ...flags, processes: 0 }, argv).length).toBeGreaterThan(0);
  expect(() => processesOf({ ...flags, listen: '127.0.0.1:65534' }, argv)).toThrow(
    expect.objectContaining({ code: 'BAD_ARGUMENT' }),
  );
});
