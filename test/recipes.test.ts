/**
 * What the recipes of CONTRIBUTING.md add is wired and tested: a message that nobody takes, a limit that
 * holds nowhere, and a command or benchmark without a test are found here by their names.
 */
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';
import { BENCHMARKS } from '../bench/registry.js';
import { createProgram } from '../src/cli/program.js';
import { DEFAULT_POLICY, DEFAULT_SCHEDULER_POLICY } from '../src/core/shared/policy.js';

const ROOT = resolve(dirname(fileURLToPath(import.meta.url)), '..');

/** All text of these files, in one. */
function textOf(...patterns: string[]): string {
  const args = ['ls-files', '--cached', '--others', '--exclude-standard', '--', ...patterns];
  const files = execFileSync('git', args, { cwd: ROOT, encoding: 'utf8' }).split('\n');
  const present = files.filter((file) => file !== '' && existsSync(join(ROOT, file)));
  return present.map((file) => readFileSync(join(ROOT, file), 'utf8')).join('\n');
}

const THIS_FILE = ':!test/recipes.test.ts';

it('somebody takes every kind of message', () => {
  const kinds = [...textOf('src/protocol').matchAll(/^ {2}t: '([a-zA-Z]+)';/gm)].map((match) => match[1]!);
  expect(kinds.length).toBeGreaterThan(50);
  const takers = textOf('src', ':!src/protocol', ':!src/sim');
  const taken = new Set(
    [...takers.matchAll(/(?:case|t ===|t !==) '([a-zA-Z]+)'/g)].map((match) => match[1]!),
  );
  expect(kinds.filter((kind) => !taken.has(kind))).toEqual([]);
});

it('every limit holds somewhere', () => {
  const code = textOf('src/core', ':!src/core/shared/policy.ts');
  const limits = Object.keys({ ...DEFAULT_POLICY, ...DEFAULT_SCHEDULER_POLICY });
  expect(limits.filter((name) => !new RegExp(`\\b${name}\\b`).test(code))).toEqual([]);
});

it('every command has a test', async () => {
  const tests = textOf('test', THIS_FILE, ':!test/docs.test.ts');
  const names = (await createProgram()).commands.map((command) => command.name());
  expect(names.filter((name) => !new RegExp(`[[(]'${name}'`).test(tests))).toEqual([]);
});

it('every benchmark has a test and a place in bench/README.md', () => {
  const tests = textOf('test/bench');
  const page = textOf('bench/README.md');
  const names = Object.keys(BENCHMARKS);
  expect(names.filter((name) => !tests.includes(`'${name}'`))).toEqual([]);
  expect(names.filter((name) => !page.includes(`\`${name}\``))).toEqual([]);
});
