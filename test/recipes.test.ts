/**
 * Checks behind the recipes of CONTRIBUTING.md. They name a message that nobody takes, a limit that holds
 * nowhere, a command or benchmark without a test, and an optimizer that Python lacks.
 */
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { BENCHMARKS } from '../bench/registry.js';
import { createProgram } from '../src/cli/program.js';
import { DEFAULT_POLICY, DEFAULT_SCHEDULER_POLICY } from '../src/core/shared/policy.js';
import { FORMATS } from '../src/data/formats.js';
import { OPTIMIZER_KINDS, optimizerParameters } from '../src/engine/optimizers.js';
import { SCHEDULE_KINDS, scheduleParameters } from '../src/engine/schedules.js';
import { codeOnly, withoutComments } from './code-only.js';
import { FORMAT_NAMES } from './data/samples.js';
import { VECTOR_FORMATS } from './data/vectors.js';
import { listedFiles, ROOT, text } from './tree.js';

/** All text of these files, in one. */
const textOf = (...patterns: string[]): string =>
  listedFiles(...patterns)
    .map(text)
    .join('\n');

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
  // Tests run commands by functions of test/cli/support.ts: `kintsugi(['NAME', ...])`, `run('NAME', ...)`.
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

/** Rows of the tables of a document, in cells without spaces around them. */
function tableRows(document: string): string[][] {
  const lines = textOf(document).split('\n');
  return lines
    .filter((line) => /^\|.*\|$/.test(line))
    .map((line) => line.slice(1, -1).split('|'))
    .map((cells) => cells.map((cell) => cell.trim()));
}

it('docs/training.md has the endings, ranges and growth of every format of data files', () => {
  const quoted = (cell: string | undefined) =>
    (cell?.match(/`[^`]+`/g) ?? []).map((each) => each.slice(1, -1));
  const rows = tableRows('docs/training.md');
  const trained = FORMATS.flatMap(({ name, endings, samples }) =>
    samples ? [[name, [...endings], samples.ranges, samples.grows ? 'yes' : 'no']] : [],
  );
  const written = trained.map(([name]) => {
    const [, endings, ranges, grows] = rows.find(([first]) => first === name) ?? [];
    return [name, quoted(endings), /^\w+/.exec(ranges ?? '')?.[0], grows];
  });
  expect(trained.length).toBeGreaterThan(3);
  expect(written).toEqual(trained);
  const imported = FORMATS.flatMap(({ endings, vectors }) => (vectors ? endings : []));
  const first = rows.flatMap(([cell]) => quoted(cell)).filter((each) => each.startsWith('.'));
  expect(first.sort()).toEqual(imported.sort());
});

it('tests and fuzzers of data files have a file of every format', () => {
  const isThere = (files: readonly string[], endings: readonly string[]) =>
    files.some((file) => endings.some((ending) => file.includes(ending)));
  const missing = FORMATS.flatMap(({ name, endings, samples, vectors }) => [
    ...(samples && !isThere(FORMAT_NAMES, endings) ? [`${name}: test/data/samples.ts`] : []),
    ...(vectors && !isThere(VECTOR_FORMATS, endings) ? [`${name}: test/data/vectors.ts`] : []),
  ]);
  expect(missing).toEqual([]);
});

it('Python gives out, tests and documents every layer, and its optimizer finds it', () => {
  // Plain modules without a job are no layers.
  const others = ['__init__', '_export'].map((name) => `:!python/src/kintsugi/torch/${name}.py`);
  const layers = textOf('python/src/kintsugi/torch/_*.py', ...others);
  const classes = [...layers.matchAll(/^class (\w+)\((nn\.Module|_?Layer|_Collection\[\w+\])\):/gm)];
  // The pipeline and optimizers find what is a Layer.
  const lost = classes.filter(([, name, base]) => base === 'nn.Module' && name !== 'Layer');
  expect(lost.map(([, name]) => name)).toEqual([]);
  const given = namesAfter(textOf('python/src/kintsugi/torch/__init__.py'), /^__all__ = /);
  const names = classes.flatMap(([, name]) => (/^_?Layer$/.test(name!) ? [] : [name!]));
  expect(names.length).toBeGreaterThan(2);
  expect(given).toEqual(expect.arrayContaining(names));
  const [page, tests] = [
    textOf('docs/pytorch.md'),
    textOf('python/tests/test_torch*.py', 'python/tests/semantics'),
  ];
  const missing = (text: string) => given.filter((name) => !new RegExp(`\\b${name}\\b`).test(text));
  expect([missing(page), missing(tests)]).toEqual([[], []]);
});
