/**
 * The documents say what the code says: flags, limits, error codes, metrics, events and kinds of messages are
 * compared in both directions, and every path and link leads somewhere.
 *
 * docs/commands.md and docs/metrics.md are written from the programs: `npx vitest run test/docs.test.ts -u`
 * writes them again. The other pages have words that only people can write: each test names what is missing
 * and what is surplus.
 */
import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { flagName } from '../bench/common/flags.js';
import { BENCHMARKS } from '../bench/registry.js';
import { EXAMPLES, leavesOf } from '../src/cli/examples.js';
import { createProgram } from '../src/cli/program.js';
import { ERROR_CODES } from '../src/common/errors.js';
import { DEFAULT_REPLICA_POLICY } from '../src/core/replica/replica.js';
import { DEFAULT_POLICY, DEFAULT_SCHEDULER_POLICY } from '../src/core/shared/policy.js';
import { CONNECT_OPTIONS, TABLE_OPTIONS } from '../src/library/client/options.js';
import { EVENT_KINDS } from '../src/protocol/events.js';
import { CAPABILITIES } from '../src/protocol/map.js';
import { FLOWS } from '../src/protocol/senders.js';
import { METRICS, type Metric } from '../src/roles/metrics/declared.js';
import { commandsPage } from './commands-page.js';
import { listedFiles, ROOT, text } from './tree.js';

const MAX_README_WORDS = 900;

const documents = listedFiles('*.md');
/** Documents of the present: history speaks of files and flags that are gone. */
const current = documents.filter((file) => !/CHANGELOG|LOG\.md/.test(file));
/** Sources of the roles. */
const sources = listedFiles('src/*.ts').filter(
  (file) => !/^src\/(sim|fleet\/local\/(?!supervisor\.ts))/.test(file),
);

/** The first cells of all rows of tables in a document, or in one of its sections. */
function firstCells(file: string, section?: string): string[] {
  return rowsOf(file, section).map(([first]) => first ?? '');
}

function rowsOf(file: string, section?: string): string[][] {
  const whole = text(file);
  const from = section === undefined ? 0 : whole.indexOf(`\n## ${section}\n`);
  if (from < 0) throw new Error(`${file} has no section "${section}"`);
  const end = section === undefined ? -1 : whole.indexOf('\n## ', from + 1);
  const lines = whole.slice(from, end < 0 ? undefined : end).split('\n');
  const rows = lines.filter((line) => /^\|.*\|$/.test(line) && !/^\| *-/.test(line));
  return rows.map((line) =>
    line
      .slice(1, -1)
      .split(/(?<!\\)\|/)
      .map((cell) => cell.trim()),
  );
}
const quoted = (cell: string): string[] => [...cell.matchAll(/`([^`]+)`/g)].map((match) => match[1]!);

/** Compares in both directions: what the document lacks, and what it has beyond the code. */
function compare(inCode: Iterable<string>, inDocument: Iterable<string>) {
  const code = new Set(inCode);
  const document = new Set(inDocument);
  return {
    missing: [...code].filter((name) => !document.has(name)).sort(),
    surplus: [...document].filter((name) => !code.has(name)).sort(),
  };
}
const SAME = { missing: [], surplus: [] };

// ---- commands and flags

const program = await createProgram();

const allCommands = leavesOf(program.commands);

describe('commands', () => {
  it('docs/commands.md has every command with its flags', async () => {
    const page = commandsPage(program);
    expect(page).toContain('\n## kintsugi drain <node>\n');
    await expect(page).toMatchFileSnapshot(join(ROOT, 'docs/commands.md'));
  });

  it('every command has an example, which it understands and its help shows', async () => {
    expect(
      compare(
        allCommands.map(({ name }) => name),
        Object.keys(EXAMPLES),
      ),
    ).toEqual(SAME);
    for (const { name, command } of leavesOf((await createProgram()).commands)) {
      const example = EXAMPLES[name]!;
      expect(example.startsWith(`kintsugi ${name}`)).toBe(true);
      const words = example.slice(`kintsugi ${name}`.length).split(' ').filter(Boolean);
      const { operands, unknown } = command.parseOptions(words);
      // The benchmarks have flags of their own, and so have the roles of a supervisor.
      if (name !== 'bench' && name !== 'supervise') expect([name, unknown]).toEqual([name, []]);
      const required = command.registeredArguments.filter((argument) => argument.required);
      expect(operands.length).toBeGreaterThanOrEqual(required.length);
      const missing = command.options.filter(
        (option) => option.mandatory && command.getOptionValue(option.attributeName()) === undefined,
      );
      expect([name, missing]).toEqual([name, []]);
      let help = '';
      const writeOut = (part: string): void => {
        help += part;
      };
      command.configureOutput({ writeOut }).outputHelp();
      expect(help).toContain(`\nExample:\n  ${example}\n`);
    }
  });

  it('one sentence says everywhere what --require-redundancy does', () => {
    const sentence = 'pushes wait while their group has no parity at all';
    const files = ['README.md', 'docs/commands.md', 'docs/limits.md', 'docs/operations.md'];
    const lines = [...files, 'src/core/shared/policy.ts'].map((file) => text(file).toLowerCase());
    expect(lines.map((each) => each.replaceAll(/\s+/g, ' ').includes(sentence))).toEqual(
      lines.map(() => true),
    );
  });

  it('no document names a flag that no program has', () => {
    const known = new Set(allCommands.flatMap(({ command: c }) => c.options.map((option) => option.long)));
    for (const other of ['--help', '--version']) known.add(other);
    // Programs beside the command line, whose flags are literals, and those of others.
    const beside = ['src/sim/main.ts', 'native/fuzz/run.mjs', 'native/format.mjs', 'examples/python/dlrm.py'];
    for (const file of beside) for (const [flag] of text(file).matchAll(/--[a-z][a-z-]+/g)) known.add(flag);
    const others = ['--no-save', '--no-deps', '--save-dev', '--ignore-scripts', '--max-semi-space-size'];
    for (const other of [...others, '--server-side']) known.add(other);
    const ofBenchmarks = new Set(
      Object.values(BENCHMARKS).flatMap((it) => Object.keys(it.flags).map(flagName)),
    );
    const unknown = current.flatMap((file) =>
      text(file)
        .split('\n')
        .flatMap((line) => [...line.matchAll(/(?<![\w-])--[a-z][a-z-]+/g)].map(([flag]) => ({ flag, line })))
        .filter(({ flag, line }) => {
          const bench = /^(bench\/|docs\/commands\.md$)/.test(file) || /\bbench\b/.test(line);
          return !known.has(flag) && !(bench && ofBenchmarks.has(flag));
        })
        .map(({ flag }) => `${file}: ${flag}`),
    );
    expect(unknown).toEqual([]);
  });
});

// ---- limits

describe('docs/limits.md', () => {
  it.each([
    ['Inside a PS', DEFAULT_POLICY],
    ['Inside the scheduler', DEFAULT_SCHEDULER_POLICY],
    ['Inside a replica', DEFAULT_REPLICA_POLICY],
  ])('%s: every limit with its default', (section, policy) => {
    const inCode = Object.entries(policy).map(([name, value]) => `${name} = ${value}`);
    const rows = rowsOf('docs/limits.md', section).slice(1);
    const inDocument = rows.map(([name, value]) => `${quoted(name!)[0]} = ${value!.split(' ')[0]}`);
    expect(compare(inCode, inDocument)).toEqual(SAME);
  });
});

// ---- the library

describe('docs/library.md', () => {
  it.each([
    ['Tables', TABLE_OPTIONS],
    ['Options of `connect`', CONNECT_OPTIONS],
  ])('%s: every option', (section, options) => {
    const inDocument = firstCells('docs/library.md', section).flatMap(quoted);
    expect(compare(Object.keys(options), inDocument)).toEqual(SAME);
  });

  it('functions that it names are exported', async () => {
    const library = await import('../src/index.js');
    const named = firstCells('docs/library.md', 'Looking after a job').flatMap(quoted);
    const functions = named.filter((name) => !name.startsWith('client.')).map((name) => name.split('(')[0]!);
    expect(functions.length).toBeGreaterThan(5);
    expect(functions.filter((name) => !Object.hasOwn(library, name))).toEqual([]);
  });
});

// ---- error codes

it('docs/errors.md has every code with its meaning', () => {
  const inCode = Object.entries(ERROR_CODES).map(([code, meaning]) => `${code}: ${meaning}`);
  const rows = rowsOf('docs/errors.md').slice(1);
  const inDocument = rows.map(([code, meaning]) => `${quoted(code!)[0]}: ${meaning}`);
  expect(compare(inCode, inDocument)).toEqual(SAME);
  expect(rows.filter((cells) => cells.length !== 3)).toEqual([]);
});

// ---- metrics

describe('docs/metrics.md', () => {
  it('names are those of Prometheus: counters end in _total, durations have seconds', () => {
    for (const metrics of Object.values(METRICS))
      for (const [name, { kind, help }] of Object.entries<Metric>(metrics)) {
        expect(name).toMatch(/^kintsugi_[a-z_]+$/);
        expect([name, name.endsWith('_total')]).toEqual([name, kind === 'counter']);
        if (kind === 'histogram') expect(name).toMatch(/_seconds$/);
        expect(help).toMatch(/\.$/);
      }
  });

  it('has every metric', async () => {
    const titles: Record<keyof typeof METRICS, string> = {
      scheduler: 'Scheduler',
      ps: 'PS',
      worker: 'Worker',
      replica: 'Replica',
      operator: 'Operator',
    };
    const sections = Object.entries(METRICS).map(([role, metrics]) => {
      const rows = Object.entries<Metric>(metrics).map(([name, { kind, help, labels = [], was }]) => {
        const old = was === undefined ? '' : ` Until the next release also \`${was}\`.`;
        const names = labels.map((label) => `\`${label}\``).join(' ');
        return `| \`${name}\` | ${kind} | ${names} | ${help}${old} |`;
      });
      const title = titles[role as keyof typeof titles];
      const head = ['| metric | kind | labels | meaning |', '| --- | --- | --- | --- |'];
      return ['', `## ${title}`, '', ...head, ...rows];
    });
    const page = [
      '# Metrics',
      '',
      'Each role answers `/metrics` with Prometheus text. Every metric has the labels `role` and `name`.',
      'Those of the process (`process_*`, `nodejs_*`) are those of prom-client, and begin with the first',
      'scrape. The lag of the event loop is how late a timer of 100 ms is, over the newest 15 s. Counters',
      'count since the start of their process.',
      '[operations.md](operations.md#health-and-metrics) says who may read them.',
      '',
      'This page is written from src/roles/metrics/declared.ts by `npx vitest run test/docs.test.ts -u`.',
      ...sections.flat(),
    ];
    await expect(`${page.join('\n')}\n`).toMatchFileSnapshot(join(ROOT, 'docs/metrics.md'));
  });
});

// ---- events

const LOGGED = /\blog(?:ger)?\??\.(?:info|warn|error)\(\s*/g;
const TOLD = /\.(?:event|tell)\(\s*'([a-z]+(?:\.[a-zA-Z]+)?)'/g;
const MADE = /kind: 'event',\s*name(?:: '([^']+)')?/g;

describe('docs/events.md', () => {
  it('events are named by literals, so that they can be found', () => {
    const hidden = sources.flatMap((file) => {
      const source = text(file);
      const logged = [...source.matchAll(LOGGED)]
        .map((match) => source.slice(match.index + match[0].length))
        .filter((rest) => !/^(?:'|effect\.name\b)/.test(rest));
      const made = [...source.matchAll(MADE)].filter(
        (match) => match[1] === undefined && !/\b(?:event|tell)\(name: string/.test(source),
      );
      return logged.length + made.length > 0 ? [file] : [];
    });
    expect(hidden).toEqual([]);
  });

  it('has every event', () => {
    const inCode = sources.flatMap((file) => {
      const source = text(file);
      const logged = [...source.matchAll(LOGGED)].flatMap(
        (match) => /^'([^']+)'/.exec(source.slice(match.index + match[0].length))?.[1] ?? [],
      );
      const others = [...source.matchAll(TOLD), ...source.matchAll(MADE)].flatMap((match) => match[1] ?? []);
      return [...logged, ...others];
    });
    expect(inCode.length).toBeGreaterThan(40);
    const kept = Object.entries(EVENT_KINDS);
    const silent = kept.filter(([name, spec]) => !('told' in spec) && !inCode.includes(name));
    expect(silent).toEqual([]);
    const all = [...inCode, ...kept.map(([name]) => name)];
    expect(compare(all, firstCells('docs/events.md').flatMap(quoted))).toEqual(SAME);
  });

  it('has the fields of events that are kept, and when they happen', () => {
    const inCode = Object.entries(EVENT_KINDS).map(
      ([name, { fields, when }]) =>
        `\`${name}\` | ${fields.map((field) => `\`${field}\``).join(' ')} | ${when}`,
    );
    const rows = rowsOf('docs/events.md', 'Events of the job').slice(1);
    expect(rows.map((cells) => cells.join(' | '))).toEqual(inCode);
  });
});

// ---- findings

it('docs/observing.md has every finding', () => {
  const inCode = listedFiles('src/library/observe/findings/*.ts').flatMap((file) =>
    [...text(file).matchAll(/\bcode: '([a-z-]+)'/g)].map((match) => match[1]!),
  );
  expect(inCode.length).toBeGreaterThan(10);
  expect(compare(inCode, firstCells('docs/observing.md', 'Findings').flatMap(quoted))).toEqual(SAME);
});

// ---- messages and rules

describe('docs/protocol.md', () => {
  it('has every kind of message', () => {
    const kinds = [
      'messages',
      'events',
      'liveness',
      'membership',
      'replicas',
      'samples',
      'saving',
      'scaling',
      'status',
      'tables',
      'telemetry',
    ]
      .map((name) => `src/protocol/${name}.ts`)
      .flatMap((file) => [...text(file).matchAll(/^ {2}t: '([a-zA-Z]+)';/gm)].map((match) => match[1]!));
    expect(kinds.length).toBeGreaterThan(50);
    const inDocument = rowsOf('docs/protocol.md', 'Messages').flatMap((cells) => quoted(cells[2]!));
    expect(compare(kinds, inDocument)).toEqual(SAME);
  });

  it('says which roles send each kind to which', () => {
    const inCode = Object.entries(FLOWS).flatMap(([kind, flows]) => flows.map((flow) => `${kind}: ${flow}`));
    const inDocument = rowsOf('docs/protocol.md', 'Messages').flatMap((cells) =>
      cells[1]!.split(',').flatMap((flow) => {
        const roles = flow.replaceAll(' ', '');
        return quoted(cells[2]!).map((kind) => `${kind}: ${roles}`);
      }),
    );
    expect(compare(inCode, inDocument)).toEqual(SAME);
  });

  it('says what every kind of sink is', () => {
    const kinds = [...text('docs/protocol.md').matchAll(/\bKind ([A-Z]) is\b/g)].map((match) => match[1]!);
    expect(compare(Object.keys(CAPABILITIES), kinds)).toEqual(SAME);
  });

  it('has every rule that code and tests cite', () => {
    const rules = [...text('docs/protocol.md').matchAll(/^(\d+)\. /gm)].map((match) => Number(match[1]));
    expect(rules).toEqual(rules.map((_, index) => index + 1));
    const cited = [...listedFiles('src/*.ts', 'test/*.ts'), ...current].flatMap((file) =>
      [...text(file).matchAll(/\brules? ([\d, and]*\d)/g)].flatMap((match) =>
        [...match[1]!.matchAll(/\d+/g)].map(([number]) => Number(number)),
      ),
    );
    expect(cited.length).toBeGreaterThan(20);
    expect(Math.max(...cited)).toBeLessThanOrEqual(rules.length);
  });
});

// ---- words, links and lines

it(`README.md has at most ${MAX_README_WORDS} words`, () => {
  expect(text('README.md').trim().split(/\s+/).length).toBeLessThanOrEqual(MAX_README_WORDS);
});

describe('commands that documents name', () => {
  it('npm scripts exist', () => {
    const { scripts } = JSON.parse(text('package.json')) as { scripts: Record<string, string> };
    const unknown = current.flatMap((file) =>
      [...text(file).matchAll(/\bnpm run ([\w:-]+)/g)]
        .filter(([, script]) => !Object.hasOwn(scripts, script!))
        .map(([found]) => `${file}: ${found}`),
    );
    expect(unknown).toEqual([]);
  });

  it('commands of kintsugi exist', () => {
    const names = new Set(['COMMAND', ...program.commands.map((command) => command.name())]);
    const unknown = current.flatMap((file) =>
      [...text(file).matchAll(/(?:^|npx |`|\| )kintsugi ([\w-]+)/gm)]
        .filter(([, name]) => !names.has(name!))
        .map(([found]) => `${file}: ${found}`),
    );
    expect(unknown).toEqual([]);
  });
});

describe('links and paths', () => {
  it('relative links lead to files, and to headings where they name one', () => {
    const anchorsOf = (file: string) =>
      [...text(file).matchAll(/^#+ (.*)$/gm)].map((match) =>
        match[1]!
          .toLowerCase()
          .replace(/[^\w\- ]/g, '')
          .replaceAll(' ', '-'),
      );
    const broken = documents.flatMap((file) =>
      [...text(file).matchAll(/\]\((?!https?:)([^)#\s]*)(?:#([^)\s]*))?\)/g)]
        .filter(([, path, anchor]) => {
          const target = path === '' ? file : join(dirname(file), path!);
          if (!existsSync(join(ROOT, target))) return true;
          return anchor !== undefined && !anchorsOf(target).includes(anchor);
        })
        .map(([link]) => `${file}: ${link}`),
    );
    expect(broken).toEqual([]);
  });

  it('paths of sources and tests exist', () => {
    const path = /(?<![\w/.-])(?:src|test|native|bench|docs|examples)\/[\w./*{},-]*[\w*}]/g;
    const broken = current.flatMap((file) =>
      [...text(file).matchAll(path)]
        .map(([found]) => found)
        .filter((found) => !/[*{]|NAME/.test(found) && !existsSync(join(ROOT, found)))
        .map((found) => `${file}: ${found}`),
    );
    expect(broken).toEqual([]);
  });
});

it('no line is longer than lint allows', () => {
  expect(() => execFileSync(process.execPath, [join(ROOT, 'test/line-length.mjs')])).not.toThrow();
});
