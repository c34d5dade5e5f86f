/**
 * What the recipes of CONTRIBUTING.md add is wired and tested: a message that nobody takes, a limit that
 * holds nowhere, a command or benchmark without a test, and an optimizer that Python lacks are found here by
 * their names.
 */
import { execFileSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';
import { BENCHMARKS } from '../bench/registry.js';
import { createProgram } from '../src/cli/program.js';
import { DEFAULT_POLICY, DEFAULT_SCHEDULER_POLICY } from '../src/core/shared/policy.js';
import { OPTIMIZER_KINDS, optimizerParameters } from '../src/optimizers.js';
import { SCHEDULE_KINDS, scheduleParameters } from '../src/schedules.js';
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
  const takers = withoutComments(textOf('src/*.ts', ':!src/protocol', ':!src/sim'));
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

it('every benchmark has a test and a row at the top of bench/README.md', () => {
  const tests = textOf('test/bench');
  const [top] = textOf('bench/README.md').split('\n## ');
  const cells = [...top!.matchAll(/^\|([^|]*)\|/gm)].map(([, cell]) => cell!);
  const names = Object.keys(BENCHMARKS);
  expect(names.filter((name) => !tests.includes(`'${name}'`))).toEqual([]);
  expect(names.filter((name) => !cells.some((cell) => cell.includes(`\`${name}\``)))).toEqual([]);
});

interface PythonClass {
  name: string;
  kind: string;
  parameters: string[];
}

/** The classes below `base` in a file of Python; `parameters` have the names of TypeScript. */
function pythonClasses(text: string, base: string): PythonClass[] {
  const body = new RegExp(`^class (\\w+)\\(${base}\\):\\n((?:(?: {4}.*)?\\n)+)`, 'gm');
  return [...text.matchAll(body)].map(([, name, lines]) => ({
    name: name!,
    kind: /^ {4}kind: ClassVar\[str\] = "(\w+)"$/m.exec(lines!)?.[1] ?? '',
    parameters: [...lines!.matchAll(/^ {4}(\w+): (?:float|int)\b/gm)].map(([, parameter]) =>
      parameter!.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase()),
    ),
  }));
}

/** The names between brackets that follow `start`. */
function namesAfter(text: string, start: RegExp): string[] {
  const [, list] = new RegExp(`${start.source}[([]([^)\\]]*)`, 'm').exec(text) ?? [];
  return [...(list ?? '').matchAll(/\w+/g)].map(([name]) => name).sort();
}

it('Python has a class for every optimizer, and gives it out', () => {
  const specs = textOf('python/src/kintsugi/_specs.py');
  const init = textOf('python/src/kintsugi/__init__.py');
  const classes = pythonClasses(specs, 'Optimizer');
  const found = classes.map(({ kind, parameters }) => [kind, parameters]);
  expect(found).toEqual(OPTIMIZER_KINDS.map((kind) => [kind, optimizerParameters(kind)]));
  const names = classes.map(({ name }) => name).sort();
  expect(namesAfter(specs, /^OPTIMIZERS: [^}]* for each in /)).toEqual(names);
  expect(namesAfter(init, /^from \._specs import /)).toEqual(expect.arrayContaining(names));
  expect(namesAfter(init, /^__all__ = /)).toEqual(expect.arrayContaining(names));
  const page = textOf('docs/python.md');
  expect(names.filter((name) => !page.includes(`\`${name}\``))).toEqual([]);
});

it('Python has a class for every schedule, and gives it out', () => {
  const text = textOf('python/src/kintsugi/schedules.py');
  const classes = pythonClasses(text, 'Schedule');
  const found = classes.map(({ kind, parameters }) => [kind, ['warmup', ...parameters]]);
  expect(found).toEqual(SCHEDULE_KINDS.map((kind) => [kind, scheduleParameters(kind)]));
  const names = classes.map(({ name }) => name).sort();
  expect(namesAfter(text, /^SCHEDULES: .* for each in /)).toEqual(names);
  expect(namesAfter(text, /^__all__ = /)).toEqual([...names, 'Schedule'].sort());
});
