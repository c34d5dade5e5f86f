/** docs/commands.md, made from the programs: flags that several commands have stand there once. */
import type { Command, Option } from 'commander';
import { flagName } from '../bench/common/flags.js';
import { BENCHMARKS, typed } from '../bench/registry.js';
import { EXAMPLES, leavesOf } from '../src/cli/examples.js';
import { flagText } from '../src/cli/flags.js';
import { OPTIMIZER_KINDS } from '../src/engine/optimizers.js';

/** Width of a line, as test/line-length.mjs allows it. */
const MAX_COLUMNS = 110;
/** A flag of this many benchmarks stands once for all of them. */
const SEVERAL = 3;

type Row = readonly [left: string, right: string];

function wrapped(text: string, width = 0): string[] {
  const lines = [''];
  for (const word of text.split(' ')) {
    const line = lines.at(-1)!;
    if (line !== '' && width + line.length + 1 + word.length > MAX_COLUMNS) lines.push(word);
    else lines[lines.length - 1] = line === '' ? word : `${line} ${word}`;
  }
  return lines;
}

/** Two columns, the right one wrapped. */
function columns(rows: readonly Row[]): string[] {
  const width = Math.max(0, ...rows.map(([left]) => left.length)) + 2;
  return rows.flatMap(([left, right]) =>
    wrapped(right, width).map((line, i) => `${(i === 0 ? left : '').padEnd(width)}${line}`.trimEnd()),
  );
}
const block = (lines: readonly string[]): string[] =>
  lines.length === 0 ? [] : ['```', ...lines, '```', ''];

/** The optimizers have a page of their own. */
const meaning = (option: Option): string =>
  flagText(option).replace(OPTIMIZER_KINDS.join(', '), 'see optimizers.md');
const optionRow = (option: Option): Row => [option.flags, meaning(option)];
const link = (heading: string): string => `[${heading}](#${heading.toLowerCase()})`;
const code = (flag: string | undefined): string => `\`${flag}\``;

const headingOf = ({ helpGroupHeading }: Option): string | undefined => helpGroupHeading?.replace(/:$/, '');

/** Flags with a heading of their own in the help, by heading, each once; those of most commands first. */
function sharedFlags(commands: readonly Command[]): Map<string, Map<string, Option>> {
  const groups = new Map<string, Map<string, Option>>();
  for (const option of commands.flatMap(({ options }) => options)) {
    const heading = headingOf(option);
    if (heading === undefined) continue;
    const group = groups.get(heading) ?? new Map<string, Option>();
    groups.set(heading, group.has(option.flags) ? group : group.set(option.flags, option));
  }
  const users = (heading: string): number =>
    commands.filter(({ options }) => options.some((option) => headingOf(option) === heading)).length;
  return new Map([...groups].sort(([a], [b]) => users(b) - users(a)));
}

function commandSection(name: string, command: Command, groups: Map<string, Map<string, Option>>): string[] {
  const args = command.registeredArguments.map((argument): Row => {
    const shown = `${argument.name()}${argument.variadic ? '...' : ''}`;
    return [argument.required ? `<${shown}>` : `[${shown}]`, argument.description];
  });
  const own = command.options.filter((option) => headingOf(option) === undefined).map(optionRow);
  const shared = [...groups].flatMap(([heading, all]) => {
    const here = command.options.filter((option) => headingOf(option) === heading);
    if (here.length === 0) return [];
    const which = here.length === all.size ? '' : ` (${here.map(({ long }) => code(long)).join(', ')})`;
    return [`${link(heading)}${which}`];
  });
  const rows = [...args, ...own];
  return [
    `## ${['kintsugi', name, ...args.map(([arg]) => arg)].join(' ')}`,
    '',
    command.description(),
    '',
    ...block([EXAMPLES[name]!, ...(rows.length === 0 ? [] : ['', ...columns(rows)])]),
    ...(shared.length === 0 ? [] : [...wrapped(`Also ${shared.join(', ')}.`), '']),
  ];
}

// ---- benchmarks

function benchRows(flags: (typeof BENCHMARKS)[string]['flags']): { name: string; row: Row }[] {
  return Object.entries(flags).map(([name, flag]) => {
    const { help, standard } = flag;
    const text = standard === undefined ? help : `${help} (default: ${standard})`;
    return { name: flagName(name), row: [typed(name, flag), text] };
  });
}

function benchmarkSections(): string[] {
  const all = Object.entries(BENCHMARKS).map(([name, { description, flags }]) => ({
    ...{ name, description, rows: benchRows(flags) },
  }));
  const counts = new Map<string, number>();
  for (const { row } of all.flatMap(({ rows }) => rows))
    counts.set(row.join(' '), (counts.get(row.join(' ')) ?? 0) + 1);
  const count = (row: Row): number => counts.get(row.join(' ')) ?? 0;
  const shared = new Map(
    all.flatMap(({ rows }) =>
      rows.filter(({ row }) => count(row) >= SEVERAL).map(({ row }) => [row.join(' '), row] as const),
    ),
  );
  const sections = all.flatMap(({ name, description, rows }) => {
    const also = rows.filter(({ row }) => count(row) >= SEVERAL && count(row) < all.length);
    const own = rows.filter(({ row }) => count(row) < SEVERAL);
    return [
      `## kintsugi bench ${name}`,
      '',
      `Benchmark: ${description}.`,
      '',
      ...block(columns(own.map(({ row }) => row))),
      ...(also.length === 0
        ? []
        : [...wrapped(`Also ${also.map((flag) => code(flag.name)).join(', ')}.`), '']),
    ];
  });
  const everywhere = [...shared.values()].filter((row) => count(row) === all.length);
  const names = everywhere.map(([left]) => code(left.split(' ')[0])).join(' and ');
  return [
    '## Flags that several benchmarks have',
    '',
    `Every benchmark has ${names}. [bench/README.md](../bench/README.md) has commands and results.`,
    '',
    ...block(columns([...shared.values()])),
    ...sections,
  ];
}

/** The whole page. */
export function commandsPage(program: Command): string {
  const leaves = leavesOf(program.commands);
  const groups = sharedFlags(leaves.map(({ command }) => command));
  const lines = [
    '# Commands',
    '',
    'This page is written from the programs by `npx vitest run test/docs.test.ts -u`. It has an example of',
    'each command and its own flags. `kintsugi COMMAND --help` shows all of its flags.',
    '',
    '## Flags that several commands have',
    '',
    'Sizes are like 512MiB or 2GiB, times like 500ms, 1s or 2m, and rates are sizes per second. A flag is',
    'given once, unless it is repeatable or takes several values.',
    '',
    ...[...groups].flatMap(([heading, options]) => [
      `### ${heading}`,
      '',
      ...block(columns([...options.values()].map(optionRow))),
    ]),
    ...leaves.flatMap(({ name, command }) => commandSection(name, command, groups)),
    ...benchmarkSections(),
  ];
  return `${lines.join('\n').trimEnd()}\n`;
}
