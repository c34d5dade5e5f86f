/**
 * What the recipes of CONTRIBUTING.md add is wired and tested: a message that nobody takes, a limit that
 * holds nowhere, and a command or benchmark without a test are found here by their names.
 */
import { execFileSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';
import { BENCHMARKS } from '../bench/registry.js';
import { createProgram } from '../src/cli/program.js';
import { DEFAULT_POLICY, DEFAULT_SCHEDULER_POLICY } from '../src/core/shared/policy.js';
import { codeOnly, withoutComments } from './code-only.js';

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
  const code = codeOnly(textOf('src/core', ':!src/core/shared/policy.ts'));
  const limits = Object.keys({ ...DEFAULT_POLICY, ...DEFAULT_SCHEDULER_POLICY });
  expect(limits.filter((name) => !new RegExp(`\\b${name}\\b`).test(code))).toEqual([]);
});

it('a test runs every command', async () => {
  const tests = withoutComments(textOf('test/*.ts', THIS_FILE));
  const names = (await createProgram()).commands.map((command) => command.name());
  // As test/cli/support.ts runs them, and what is made of it: `kintsugi(['NAME', ...])`, `run('NAME', ...)`.
  const run = (name: string) =>
    new RegExp(`\\b(?:(?:kintsugi|start)\\(\\s*\\[|(?:kintsugi|run)\\()\\s*'${name}'`);
  expect(names.filter((name) => !run(name).test(tests))).toEqual([]);
});

it('every folder of a benchmark is in the registry, and nothing else', () => {
  const entries = readdirSync(join(ROOT, 'bench'), { withFileTypes: true });
  const folders = entries.filter(({ name }) => existsSync(join(ROOT, 'bench', name, 'bench.ts')));
  expect(Object.keys(BENCHMARKS).sort()).toEqual(folders.map(({ name }) => name).sort());
});

it('every benchmark has a test and a place in bench/README.md', () => {
  const tests = textOf('test/bench');
  const page = textOf('bench/README.md');
  const names = Object.keys(BENCHMARKS);
  expect(names.filter((name) => !tests.includes(`'${name}'`))).toEqual([]);
  expect(names.filter((name) => !page.includes(`\`${name}\``))).toEqual([]);
});
