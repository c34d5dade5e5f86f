import { expect, test, vi } from 'vitest';
import { PLACE_TRIED_ENV } from '../../src/cli/checkpoint-flags.js';
import {
  embeddingOptimizer,
  modelOption,
  optimizerSpec,
  policyOf,
  scheduleSpec,
} from '../../src/cli/flags.js';
import { LIFELINE_ENV } from '../../src/cli/lifetime.js';
import { workerArgs } from '../../src/cli/local.js';
import { ownBudget, sizeOrAuto, usualMemory } from '../../src/cli/memory.js';
import { ages, duration, integer, part, positive, seconds, size } from '../../src/cli/values.js';
import { LIFELINE, PLACE_TRIED } from '../../src/fleet/local/child.js';
import { memoryBudget } from '../../src/fleet/operator/reconcile/pods.js';

const refusal = { code: 'BAD_ARGUMENT' };

test('sizes are powers of 1024, with or without a unit', () => {
  const parse = size('--memory');
  expect(['2GiB', '512M', '1.5k', '7', '0', '1 TB', '3b'].map(parse)).toEqual([
    2 ** 31,
    2 ** 29,
    1536,
    7,
    0,
    2 ** 40,
    3,
  ]);
  for (const text of ['', 'GiB', '-1', '1e9', '2 GiBs', '99999999T', '0.5', '0.0001k']) {
    expect(() => parse(text), text).toThrow(expect.objectContaining(refusal));
  }
});

test('the memory of a PS is what the limit of its container leaves, if it has one', () => {
  const [granted, machine] = [2 ** 31, 2 ** 34];
  const container = { name: 'kintsugi', resources: { limits: { memory: '2Gi' } } };
  expect(ownBudget(granted, machine)).toBe(memoryBudget({ spec: { containers: [container] } }));
  expect(ownBudget(granted, machine)).toBeLessThan(granted - 192 * 2 ** 20);
  // Node says no number, 0, or more than any machine has, where there is no limit.
  for (const none of [0, machine, 2 ** 64]) expect(ownBudget(none, machine)).toBe(0);
  expect(sizeOrAuto('--memory')('auto')).toBe(ownBudget());
  vi.stubEnv('KINTSUGI_MEMORY', '');
  expect(usualMemory()).toBe(0);
  vi.stubEnv('KINTSUGI_MEMORY', '512MiB');
  expect(usualMemory()).toBe(2 ** 29);
  vi.stubEnv('KINTSUGI_MEMORY', 'lots');
  expect(usualMemory).toThrow(expect.objectContaining(refusal));
  vi.unstubAllEnvs();
});

test('durations need a unit', () => {
  const parse = duration('--respawn');
  expect(['500ms', '1s', '0s', '1.5s', '2m'].map(parse)).toEqual([500, 1000, 0, 1500, 120_000]);
  // No message carries a part of a millisecond.
  expect(['1.6ms', '0.0001m', '0.0s'].map(parse)).toEqual([2, 6, 0]);
  // A timer of Node that is longer than 2^31-1 ms ends at once.
  expect(parse('35791m')).toBe(2_147_460_000);
  for (const text of ['', '1', 's', '-1s', '1h', '35792m', '0.4ms', '0.0001s', `${'9'.repeat(400)}s`])
    expect(() => parse(text), text).toThrow(expect.objectContaining(refusal));
});

test('ages of rows are steps, a time, or both', () => {
  const parse = ages('--max-age');
  expect(['2000', '24h', '2000,24h', '30m,5', '0', '0s', '7, 1d'].map(parse)).toEqual([
    { maxAge: 2000, maxAgeSeconds: 0 },
    { maxAge: 0, maxAgeSeconds: 86_400 },
    { maxAge: 2000, maxAgeSeconds: 86_400 },
    { maxAge: 5, maxAgeSeconds: 1800 },
    { maxAge: 0, maxAgeSeconds: 0 },
    { maxAge: 0, maxAgeSeconds: 0 },
    { maxAge: 7, maxAgeSeconds: 86_400 },
  ]);
  for (const text of [
    '',
    ',',
    '5,',
    '5,6',
    '1h,2h',
    '1h,2,3',
    '-1',
    '1.5',
    '1e3',
    '536870912',
    '6214d',
    '5ms',
  ])
    expect(() => parse(text), text).toThrow(expect.objectContaining(refusal));
  expect(() => parse('x')).toThrow('--max-age must be steps like 2000, a time like 24h, or 2000,24h');
  expect(['90s', '2m', '24h', '7d', '0s'].map(seconds('--time'))).toEqual([90, 120, 86_400, 604_800, 0]);
  for (const text of ['', '90', 'h', '1.5h', '6214d', '1h,2h'])
    expect(() => seconds('--time')(text), text).toThrow(expect.objectContaining(refusal));
});

test('a policy that is none is refused with what it might be', () => {
  expect(policyOf('evict=ttl(24h),evict=keep(5)')).toEqual({ ttl: 86_400, keep: 5, clock: 'seconds' });
  for (const [text, message] of [
    ['evict=ttl(24h),evict=l2Below(0.1,5)', /: all of its ttls have a unit \(s, m, h or d\), or none has/],
    ['evict=ttl(0s)', /: policy: ttl must be an integer from 1/],
    ['evict=ttl(9999d)', /: policy: ttl must be an integer from 1 to 536870911/],
    ['evict=keep(5)', /: policy: keep says how many rows stay in spite of ttl: it needs one/],
    ['evict=ttl(5w)', /: it has one or more of .*TTL and EVERY are steps, or times like 24h/],
  ] as const)
    expect(() => policyOf(text), text).toThrow(
      expect.objectContaining({ ...refusal, message: expect.stringMatching(message) }),
    );
});

test('a part is above 0 and below 1', () => {
  const parse = part('--background-share');
  expect(['0.03', '.5', '1e-3'].map(parse)).toEqual([0.03, 0.5, 0.001]);
  for (const text of ['', ' ', '0', '1', '-0.1', '10%', 'NaN'])
    expect(() => parse(text), text).toThrow(expect.objectContaining(refusal));
});

test('integers have a range', () => {
  const parse = integer('--ps', 1, 8);
  expect([parse('1'), parse('8')]).toEqual([1, 8]);
  for (const text of ['0', '9', '1.0', '1e0', '', ' 1', '-1']) {
    expect(() => parse(text), text).toThrow(expect.objectContaining(refusal));
  }
});

test('rates are finite and above zero', () => {
  expect(positive('--lr')('1e-3')).toBe(0.001);
  expect(['1', '.5', '5.', '+2', '1E3', ' 7 '].map(positive('--lr'))).toEqual([1, 0.5, 5, 2, 1000, 7]);
  for (const text of ['0', '-1', '', 'x', 'Infinity', '0x10', '0b1', '0o7', '1_000', '1e', '.', '1e999']) {
    expect(() => positive('--lr')(text), text).toThrow(expect.objectContaining(refusal));
  }
});

test('model options become numbers and booleans where they are some', () => {
  const first = modelOption('a=1');
  expect(modelOption('d=x=y', modelOption('c=', modelOption('b=true', first)))).toEqual({
    a: 1,
    b: true,
    c: '',
    d: 'x=y',
  });
  expect(() => modelOption('a')).toThrow(expect.objectContaining(refusal));
  // Names of columns may look like numbers of a program.
  for (const text of ['0x10', 'Infinity', ' ']) expect(modelOption(`a=${text}`)).toEqual({ a: text });
  expect(() => embeddingOptimizer({ optimizer: 'adam', lr: 1e-60 })).toThrow(/lr .* not 1e-60/);
  expect(() => scheduleSpec('cosine,steps=0x10')).toThrow(expect.objectContaining(refusal));
});

test('every optimizer has its constants', () => {
  expect(optimizerSpec('sgd', 0.1)).toEqual({ kind: 'sgd', lr: 0.1 });
  expect(optimizerSpec('adam', 0.1)).toEqual({ kind: 'adam', lr: 0.1, beta1: 0.9, beta2: 0.999, eps: 1e-8 });
  expect(() => optimizerSpec('lamb', 0.1)).toThrow(expect.objectContaining(refusal));
});

test('the embedding may have clipping and a schedule', () => {
  const flags = { optimizer: 'sgd', lr: 0.1 };
  expect(embeddingOptimizer(flags)).toEqual({ kind: 'sgd', lr: 0.1 });
  expect(embeddingOptimizer({ ...flags, clipNorm: 2, lrSchedule: 'cosine,warmup=10,steps=1e3' })).toEqual({
    ...{ kind: 'sgd', lr: 0.1, clipNorm: 2 },
    schedule: { kind: 'cosine', warmup: 10, steps: 1000 },
  });
  const refused: [optimizer: string, schedule: string, problem: RegExp][] = [
    ['sgd', 'cosine', /steps/],
    ['sgd', 'cosine,steps', /--lr-schedule must be .*constant, cosine.*"cosine,steps"/],
    ['sgd', 'cosine,steps=x', /--lr-schedule must be/],
    ['sgd', 'line,steps=10', /unknown schedule; one of constant/],
    ['sgd', 'step,every=10,factor=2', /factor/],
    ['ftrl', 'constant,warmup=10', /ftrl takes no schedule/],
  ];
  for (const [optimizer, lrSchedule, problem] of refused) {
    expect(() => embeddingOptimizer({ ...flags, optimizer, lrSchedule })).toThrow(problem);
    expect(() => embeddingOptimizer({ ...flags, optimizer, lrSchedule })).toThrow(
      expect.objectContaining(refusal),
    );
  }
});

test('a launcher hands the training flags on to its workers', () => {
  const flags = {
    epochs: 1,
    batch: 8,
    dim: 4,
    optimizer: 'sgd',
    lr: 0.1,
    clipNorm: 1.5,
    lrSchedule: 'step,every=10,factor=0.5',
    tablePolicy: {
      ...{ counter: 2, minFrequency: { sightings: 3, ttl: 5 }, l2Below: { norm: 1e-7, ttl: 4 } },
      ...{ clock: 'seconds' as const, maxRows: 7, memory: true as const },
    },
    countDuplicates: true,
    denseOptimizer: 'sgd',
    denseLr: 0.01,
    seed: 3,
    inFlight: 2,
    threads: 1,
    rangeBatches: 16,
    sync: true,
  };
  const args = workerArgs({ ...flags, deterministic: true, model: 'm.js', modelOption: { a: 1 } }).join(' ');
  for (const part of [
    '--batch 8',
    '--dim 4',
    '--optimizer sgd',
    '--lr 0.1',
    '--clip-norm 1.5',
    '--lr-schedule step,every=10,factor=0.5',
    '--table-policy admit=counter(2),evict=minFrequency(3,5s),evict=l2Below(1e-7,4s)' +
      ',evict=maxRows(7),evict=memory',
    '--count-duplicates',
    '--dense-optimizer sgd',
    '--dense-lr 0.01',
    '--seed 3',
    '--in-flight 2',
    '--range-batches 16',
    '--staleness 0',
  ]) {
    expect(args).toContain(part);
  }
  expect(args).toContain('--model m.js --model-option a=1 --deterministic');
});

test('a model option cannot be what a flag gives to every model', () => {
  expect(modelOption('heads=2', { a: true })).toEqual({ a: true, heads: 2 });
  for (const [text, flag] of [
    ['dim=8', '--dim'],
    ['denseOptimizer=sgd', '--dense-optimizer'],
  ] as const) {
    const message = `--model-option ${text}: every model has that of ${flag}`;
    expect(() => modelOption(text)).toThrow(expect.objectContaining({ ...refusal, message }));
  }
});

test('launcher and roles agree on the variables between them', () => {
  expect(Object.keys(LIFELINE)).toEqual([LIFELINE_ENV]);
  expect(Object.keys(PLACE_TRIED)).toEqual([PLACE_TRIED_ENV]);
});
