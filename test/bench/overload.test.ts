/** The benchmark of attacks: its options, its goals, and a smoke of real processes. */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { boundOf } from '../../bench/common/attacks/bound.js';
import { MemoryWatch } from '../../bench/common/attacks/memory-watch.js';
import { BenchReport, type Goal } from '../../bench/common/report.js';
import { OVERLOAD_OPTIONS } from '../../bench/overload/options.js';
import { judge, peakOf } from '../../bench/overload/report.js';
import type { RoundResult } from '../../bench/overload/round.js';
import { SlowStore } from '../../bench/overload/slow-store.js';
import { wrongRows } from '../../bench/overload/steady-client.js';
import { kintsugi } from '../cli/support.js';

const MEBIBYTE = 2 ** 20;

describe('options', () => {
  const names = (given: object): string[] => OVERLOAD_OPTIONS.parse(given).plans.map(({ name }) => name);

  it('every attack is made on every job, then the mixes', () => {
    expect(names({ attacks: 'recovery,never-read', mixes: '1' })).toEqual([
      'recovery on 3+2@6',
      'never-read on 3+2@6',
      'recovery+never-read on 3+2@6',
      'recovery on 2+1@3',
      'never-read on 2+1@3',
      'recovery+never-read on 2+1@3',
    ]);
    expect(names({})).toHaveLength(20);
  });

  it('in a short run the jobs take turns', () => {
    expect(
      names({ seconds: '60', attacks: 'recovery,never-read,slow-place', mixes: '0', jobs: '2+1@3' }),
    ).toEqual(['recovery on 2+1@3', 'never-read on 2+1@3', 'slow-place on 2+1@3']);
    const jobs = OVERLOAD_OPTIONS.parse({ seconds: '60' }).plans.map(({ job }) => job.name);
    expect(jobs.slice(0, 3)).toEqual(['3+2@6', '2+1@3', '3+2@6']);
    expect(jobs).toHaveLength(10);
  });

  it('a seed gives the same mixes again, and another seed gives others', () => {
    expect(names({ seed: '7', mixes: '5' })).toEqual(names({ seed: '7', mixes: '5' }));
    const all = Array.from({ length: 5 }, (_, seed) => names({ seed: `${seed}`, mixes: '1' }).at(-1));
    expect(new Set(all).size).toBeGreaterThan(1);
    for (const name of all) expect(name!.split(' on ')[0]!.split('+').length).toBeGreaterThan(1);
  });

  it.each([
    [{ jobs: '3+2' }, /--jobs must be a list of code@PS/],
    [{ jobs: '3+2@4' }, /3\+2/],
    [{ attacks: 'shouting' }, /--attacks: there is no "shouting", but wide-pulls, /],
    [{ scale: '0' }, /--scale/],
    [{ memory: '1' }, /--memory must be a whole number of at least 64/],
    [{ seconds: 'long' }, /--seconds/],
  ])('%j is refused', (given, message) => {
    expect(() => OVERLOAD_OPTIONS.parse(given)).toThrow(message);
  });
});

const PHASE = { count: 100, medianMs: 1, p99Ms: 10, worstMs: 20, open: 0 };
const SLOW = { ...PHASE, p99Ms: 20.1 };
const GOOD: RoundResult = {
  name: 'calm on 2+1@3',
  peaks: { 'ps-0': 100 * MEBIBYTE, 'ps-1': 300 * MEBIBYTE },
  ended: undefined,
  quiet: PHASE,
  pairs: [{ attack: PHASE, beside: PHASE }],
  cores: { attackers: 0.5, ps: 0.5 },
  lost: 1,
  killed: 1,
  tooLarge: 0,
  died: [],
  attackers: { answered: 1, refused: {} },
  rows: { rows: 4096, wrong: 0, acknowledged: 7, lost: 0, duplicated: 0 },
  wrongPulls: [],
  refused: 0,
  errors: [],
};

describe('goals', () => {
  const bounds = { memoryBytes: 300 * MEBIBYTE, overheadBytes: 100 * MEBIBYTE, times: true };

  function missed(result: RoundResult, which = bounds): string[] {
    const report = new BenchReport('overload', { smoke: true });
    judge(report, result, which);
    return report.goals.filter(({ met }) => !met).map(({ name }) => name.replace(/^.*?: /, ''));
  }

  it('a round in which all was well meets all of them', () => {
    expect(missed(GOOD)).toEqual([]);
    expect(boundOf(bounds) / MEBIBYTE).toBeCloseTo(460);
    expect(peakOf(GOOD, 'ps-') / MEBIBYTE).toBe(300);
  });

  it.each([
    ['a PS above its bound', { peaks: { 'ps-0': 461 * MEBIBYTE } }, ['peak of a PS, of its bound']],
    [
      'a gateway above it',
      { peaks: { 'gateway-0': 461 * MEBIBYTE } },
      ['peak of a gateway, of the bound of a PS'],
    ],
    [
      'a slow answer',
      { pairs: [{ attack: SLOW, beside: PHASE }] },
      ['p99, of that beside another job under attack'],
    ],
    [
      'slow answers in two of three pairs',
      {
        pairs: [
          { attack: SLOW, beside: PHASE },
          { attack: PHASE, beside: PHASE },
          { attack: SLOW, beside: PHASE },
        ],
      },
      ['p99, of that beside another job under attack'],
    ],
    [
      'slow answers in one of three pairs',
      {
        pairs: [
          { attack: SLOW, beside: PHASE },
          { attack: PHASE, beside: PHASE },
          { attack: PHASE, beside: PHASE },
        ],
      },
      [],
    ],
    ['a PS that nobody killed', { lost: 2 }, ['PS declared lost that nobody killed']],
    ['a PS that was killed for its size', { lost: 2, tooLarge: 1 }, []],
    ['a crash', { died: ['ps-0 was ended'] }, ['processes that ended by themselves']],
    ['a refusal', { refused: 1, errors: ['TIMEOUT'] }, ['requests of the well-behaved client that failed']],
    ['a pull of what never was', { wrongPulls: ['row 1'] }, ['rows and pushes that are wrong']],
    [
      'a lost push',
      { rows: { rows: 4096, wrong: 0, acknowledged: 7, lost: 1, duplicated: 0 } },
      ['rows and pushes that are wrong'],
    ],
    [
      'an attack that had to be ended',
      { ended: 'ps-0 has more than --kill-at' },
      ['attacks ended before their time'],
    ],
    [
      'a round that hung',
      { rows: undefined, pairs: [], errors: ['TIMEOUT: late'] },
      [
        'p99, of that beside another job under attack',
        'rows and pushes that are wrong',
        'rounds that did not come to their end',
      ],
    ],
  ] satisfies [string, Partial<RoundResult>, string[]][])('%s', (_, change, names) => {
    expect(missed({ ...GOOD, ...change })).toEqual(names);
  });

  it('times of a smoke are no goal', () => {
    const slow = { ...GOOD, pairs: [{ attack: SLOW, beside: PHASE }] };
    expect(missed(slow, { ...bounds, times: false })).toEqual([]);
  });
});

it('a row is right with any number of pushes from those acknowledged to those sent', () => {
  const values = Float32Array.of(3, 3, 4, 4, 5, 5, 2, 2, 3, 4, 3.5, 3.5);
  expect(wrongRows(values, 2, [4, 4, 4, 4, 4, 4], [3, 3, 3, 3, 3, 3])).toBe(4);
});

it.runIf(process.platform === 'linux')('a process that is too large is told of, with its peak', async () => {
  let watch: MemoryWatch | undefined;
  const [name, bytes, isMachineFull] = await new Promise<[string, number, boolean]>((resolve) => {
    const alarm = { mostBytes: 1, leastAvailableBytes: 0 };
    const processes = () => [['self', process.pid] as const, ['gone', 2 ** 22] as const];
    watch = new MemoryWatch(processes, { ...alarm, onTooMuch: (...found) => resolve(found) });
  });
  watch?.stop();
  expect([name, isMachineFull, [...watch!.peaks.keys()]]).toEqual(['self', false, ['self']]);
  expect(watch?.peaks.get('self')).toBeGreaterThanOrEqual(bytes);
});

it('the slow store lists nothing, has nothing, and begins uploads that do not end', async () => {
  const store = await SlowStore.open();
  try {
    const listed = await fetch(`${store.endpoint}/overload?list-type=2&prefix=x`);
    expect([listed.status, await listed.text()]).toEqual([200, expect.stringContaining('<KeyCount>0<')]);
    expect((await fetch(`${store.endpoint}/overload/x`)).status).toBe(404);
    expect((await fetch(`${store.endpoint}/overload/x`, { method: 'DELETE' })).status).toBe(204);
    const upload = fetch(`${store.endpoint}/overload/x`, { method: 'PUT', body: new Uint8Array(1 << 26) });
    upload.catch(() => {});
    while (store.uploads === 0) await new Promise((resolve) => setImmediate(resolve));
    store.close();
    await expect(upload).rejects.toThrow();
  } finally {
    store.close();
  }
});

it.runIf(process.platform === 'linux')(
  'a smoke attacks, kills a PS, and finds every push once',
  async () => {
    const directory = mkdtempSync(join(tmpdir(), 'kintsugi-overload-test-'));
    try {
      const json = join(directory, 'overload.json');
      const output = await kintsugi(['bench', 'overload', '--smoke', '--quiet', '--json', json]);
      expect([output.code, output.said]).toEqual([0, []]);
      const { goals, rounds } = JSON.parse(readFileSync(json, 'utf8')) as {
        goals: Goal[];
        rounds: (RoundResult & { boundBytes: number })[];
      };
      expect(goals.filter(({ met }) => !met)).toEqual([]);
      expect(rounds.map(({ name }) => name)).toEqual(['idle-connections on 2+1@3', 'recovery on 2+1@3']);
      for (const { rows, pairs, peaks } of rounds) {
        expect(rows?.acknowledged).toBeGreaterThan(0);
        expect(pairs.map(({ attack }) => attack.count > 0)).toEqual([true]);
        expect(Object.keys(peaks).sort()).toEqual(['ps-0', 'ps-1', 'ps-2']);
      }
      // Once by the attack, and once beside the baseline.
      expect(rounds[1]?.killed).toBe(2);
      expect(rounds[0]?.attackers.answered).toBeGreaterThan(100);
    } finally {
      rmSync(directory, { recursive: true, force: true });
    }
  },
  280_000,
);
