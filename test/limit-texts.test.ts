/** Every error LIMIT names its limit, and docs/limits.md has a limit of this name. */
import { expect, it } from 'vitest';
import { MAX_TABLES } from '../src/core/scheduler/tables.js';
import { LIMIT_NAMES, limitText } from '../src/protocol/limits.js';
import { filesUnder, text } from './tree.js';

/** Files that name the code LIMIT and refuse nothing: types, and codes that come from elsewhere. */
const ONLY_THE_CODE = [
  'src/cli/local.ts',
  'src/core/node/request-queue.ts',
  'src/core/shard/refusals.ts',
  'src/core/shard/pulls.ts',
  'src/core/scheduler/sessions.ts',
  'src/core/shared/engine.ts',
  'src/protocol/membership.ts',
  'src/protocol/validate.ts',
  'src/training/loop/feed.ts',
];

const documented = new Set(
  text('docs/limits.md')
    .split('\n')
    .filter((line) => line.startsWith('|'))
    .flatMap((line) => [...line.split('|')[1]!.matchAll(/`(\w+)`/g)].map(([, name]) => name!)),
);

it('docs/limits.md has every limit that an error names', () => {
  expect(LIMIT_NAMES.filter((name) => !documented.has(name))).toEqual([]);
});

it('every place that refuses with LIMIT names a limit', () => {
  const files = filesUnder('src', /\.ts$/).filter((file) => /'LIMIT'/.test(text(file)));
  expect(files.length).toBeGreaterThan(20);
  const silent = files.filter((file) => !text(file).includes('limitText('));
  expect(silent.sort()).toEqual([...ONLY_THE_CODE].sort());
});

it('the most tables are what the engine takes in a shard', () => {
  const [, most] = /kMaxTables = (\d+);/.exec(text('native/engine/sections.h')) ?? [];
  expect(MAX_TABLES).toBe(Number(most));
});

it('every name is used', () => {
  const all = filesUnder('src', /\.ts$/).filter((file) => file !== 'src/protocol/limits.ts');
  const sources = all.map((file) => text(file).replaceAll(/\s+/g, ' ')).join('\n');
  const calls = [...sources.matchAll(/limitText\([^;]*?'(\w+)'/g)].map(([, name]) => name!);
  expect(LIMIT_NAMES.filter((name) => !calls.includes(name) && !sources.includes(`'${name}'`))).toEqual([]);
});

it('a text has the name and the value', () => {
  expect(limitText('too many', 'maxTables', 4096)).toBe('too many (maxTables = 4096)');
  expect(limitText('too many', 'maxTables')).toBe('too many (maxTables)');
});
