import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, onTestFinished, test } from 'vitest';
import { processesOf } from '../../src/cli/processes.js';
import { CRASH_WINDOW_MS, Crashes, endingOf, MAX_CRASHES } from '../../src/local/restarts.js';
import { Supervisor } from '../../src/local/supervisor.js';

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
    cliPath: fileURLToPath(new URL('../fixtures/restart-once.mjs', import.meta.url)),
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
    cliPath: fileURLToPath(new URL('../fixtures/scheduler-away.mjs', import.meta.url)),
    onEvent: () => {},
    onLine: () => {},
    log: { info: note, warn: note, error: note },
  });
  onTestFinished(() => supervisor.stop('SIGINT'));
  await supervisor.ended;
  expect(endings).toEqual(['crashed', ...new Array(8).fill('away'), 'left']);
});

test('pauses grow with the crashes of the last minute, of which there are so many at most', () => {
  const crashes = new Crashes();
  const pauses = Array.from({ length: MAX_CRASHES + 1 }, (_, i) => crashes.add(1000 + i));
  expect(pauses).toEqual([100, 200, 400, 800, 1600, undefined]);
  const rare = new Crashes();
  for (let i = 0; i < 20; i++) expect(rare.add((i * CRASH_WINDOW_MS) / 2)).toBeLessThanOrEqual(200);
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
        ...['ps', '--standby', '--memory', '3001', '--host-label', 'rack', '--memory', '1000'],
        ...['--name', `a-${i}`, '--listen', `10.0.0.1:${7078 + i}`],
      ],
    })),
  );
  const free = processesOf({ ...flags, listen: '127.0.0.1:0', memory: 0, advertise: '10.0.0.9:80' }, argv);
  expect(free[2]!.args.slice(-6)).toEqual([
    ...['--name', 'a-2', '--listen', '127.0.0.1:0', '--advertise', '10.0.0.9:82'],
  ]);
  expect(processesOf({ ...flags, processes: 0 }, argv).length).toBeGreaterThan(0);
  expect(() => processesOf({ ...flags, listen: '127.0.0.1:65534' }, argv)).toThrow(
    expect.objectContaining({ code: 'BAD_ARGUMENT' }),
  );
});
