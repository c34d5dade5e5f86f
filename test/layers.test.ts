/** Imports run one way, the core knows no world, and files stay readable: checked on the source text. */
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { codeOnly } from './code-only.js';

const ROOT = resolve(dirname(fileURLToPath(import.meta.url)), '..');
const MAX_LINES = 450;

function filesUnder(folder: string, ends: RegExp): string[] {
  return readdirSync(join(ROOT, folder), { withFileTypes: true, recursive: true })
    .filter((entry) => entry.isFile() && ends.test(entry.name))
    .map((entry) => relative(ROOT, join(entry.parentPath, entry.name)))
    .sort();
}
const text = (file: string): string => readFileSync(join(ROOT, file), 'utf8');

/** What a TypeScript file imports: packages by name, its own files by path from the root. */
function importsOf(file: string, source: string): string[] {
  const forms = [
    /(?:^|\n)\s*(?:import|export)\b[^'";]*?\bfrom\s*'([^']+)'/g,
    /(?:^|\n)\s*import\s*'([^']+)'/g,
    /\b(?:import|require)\s*\(\s*'([^']+)'/g,
  ];
  return forms
    .flatMap((form) => [...source.matchAll(form)])
    .map((match) => {
      const name = match[1]!;
      return name.startsWith('.')
        ? relative(ROOT, resolve(ROOT, dirname(file), name)).replace(/\.js$/, '.ts')
        : name;
    });
}

/** Quoted and angled includes of a C++ file. */
const includesOf = (source: string): string[] =>
  [...source.matchAll(/^\s*#\s*include\s*[<"]([^>"]+)[>"]/gm)].map((match) => match[1]!);

const sources = filesUnder('src', /\.ts$/);
const pure = sources.filter((file) => /^src\/((core|protocol)\/|(optimizers|schedules)\.ts$)/.test(file));

describe('TypeScript', () => {
  it('the checks see the files and their imports', () => {
    expect(pure.length).toBeGreaterThan(15);
    expect(importsOf('src/core/shard/owner.ts', text('src/core/shard/owner.ts'))).toEqual(
      expect.arrayContaining(['src/native.ts', 'src/core/shared/dedup.ts', 'src/protocol/map.ts']),
    );
    expect(
      importsOf(
        'src/a/b.ts',
        "import type {\n  X,\n} from '../c.js';\nimport 'ws';\nawait import('node:fs');",
      ),
    ).toEqual(['src/c.ts', 'ws', 'node:fs']);
    expect(codeOnly(`a; // Date\n/* process */ 'Math.random'; \`x $\{Date.now()}\``)).toMatch(
      /^a; +\n +''; +Date\.now\(\)$/,
    );
  });

  it('protocol and core import only each other, the errors and the types of the engine', () => {
    // The codec is the one outsider: it is a function from bytes to values.
    const allowed = /^src\/(core|protocol)\/|^src\/(errors|native|optimizers|schedules)\.ts$|^msgpackr$/;
    const wrong = pure.flatMap((file) =>
      importsOf(file, text(file)).flatMap((name) => (allowed.test(name) ? [] : [`${file} imports ${name}`])),
    );
    expect(wrong).toEqual([]);
  });

  it('protocol does not import core', () => {
    const wrong = pure.filter(
      (file) =>
        file.startsWith('src/protocol/') &&
        importsOf(file, text(file)).some((name) => name.startsWith('src/core/')),
    );
    expect(wrong).toEqual([]);
  });

  it('protocol and core have no clock, timers, randomness or process, and never load the engine', () => {
    const names = 'Date|performance|setTimeout|setInterval|setImmediate|queueMicrotask|process|globalThis';
    const world = new RegExp(
      `\\b(?:${names}|Buffer|fetch|console|loadNative|crypto)\\b|\\bMath\\s*\\.\\s*random\\b`,
    );
    const wrong = pure.flatMap((file) => {
      const match = world.exec(codeOnly(text(file)));
      return match ? [`${file} uses ${match[0]}`] : [];
    });
    expect(wrong).toEqual([]);
  });

  it('planner and decisions are pure, and no role knows them', () => {
    const rooms = /^src\/(planner|autoscale\/decide)\//;
    const allowed =
      /^src\/(planner|autoscale\/decide)\/|^src\/(errors|optimizers|schedules|statistics|runtime\/job)\.ts$/;
    const imports = sources.flatMap((file) => importsOf(file, text(file)).map((name) => ({ file, name })));
    const beyond = imports.filter(({ file, name }) => rooms.test(file) && !allowed.test(name));
    const users = imports.filter(({ file, name }) => rooms.test(name) && !rooms.test(file));
    const impure = sources.filter(
      (file) => rooms.test(file) && /\bDate\b|\bMath\s*\.\s*random\b|\bprocess\b/.test(codeOnly(text(file))),
    );
    expect([beyond, impure]).toEqual([[], []]);
    expect(users.filter(({ file }) => !/^src\/(cli|local|autoscale|dashboard)\//.test(file))).toEqual([]);
    expect(users.length).toBeGreaterThan(0);
  });

  it('what the operator decides is pure: types of its own, no clock, no randomness', () => {
    const room = /^src\/operator\/reconcile\//;
    const allowed = /^src\/operator\/(reconcile\/|types\.ts$|objects\.ts$)|^node:crypto$/;
    const inside = sources.filter((file) => room.test(file));
    const beyond = inside.flatMap((file) =>
      importsOf(file, text(file)).flatMap((name) => (allowed.test(name) ? [] : [`${file} imports ${name}`])),
    );
    const impure = inside.filter((file) =>
      /\bDate\s*\.\s*now\b|\bnew\s+Date\s*\(\s*\)|\brandom\w*\b|\bprocess\b|\bset(Timeout|Interval)\b/.test(
        codeOnly(text(file)),
      ),
    );
    expect([beyond, impure]).toEqual([[], []]);
    expect(inside.length).toBeGreaterThan(5);
  });

  it('nothing outside cli imports cli', () => {
    const wrong = sources.filter(
      (file) =>
        !file.startsWith('src/cli/') &&
        importsOf(file, text(file)).some((name) => name.startsWith('src/cli/')),
    );
    expect(wrong).toEqual([]);
  });

  it('the simulator is imported by nothing, and is itself without clock and randomness of its own', () => {
    const importers = sources.filter(
      (file) =>
        !file.startsWith('src/sim/') &&
        importsOf(file, text(file)).some((name) => name.startsWith('src/sim/')),
    );
    // What a schedule is made of; the programs around it (its command line, its own check) live in the world.
    const programs = /\/(main|mutants\/hunt)\.ts$/;
    const simulator = sources.filter((file) => file.startsWith('src/sim/') && !programs.test(file));
    const impure = simulator.filter((file) =>
      /\bDate\b|\bMath\s*\.\s*random\b|\bset(Timeout|Interval)\b/.test(codeOnly(text(file))),
    );
    expect([importers, impure]).toEqual([[], []]);
    expect(simulator.length).toBeGreaterThan(3);
  });
});

const benchSources = filesUnder('bench', /\.ts$/);
/** Each benchmark is a room of its own. */
const benchmarks = [
  ...new Set(benchSources.flatMap((file) => /^bench\/(?!common\/)[^/]+\//.exec(file) ?? [])),
];

/**
 * Rooms from the ground up. A file imports from its own room and from rooms on lower floors; rooms that share
 * a floor do not know each other. So no change runs in circles, and a reader knows where to look.
 */
const FLOORS: readonly (readonly string[])[] = [
  [
    'src/errors.ts',
    'src/package-root.ts',
    'src/schedules.ts',
    'src/protobuf.ts',
    'src/statistics.ts',
    'src/native-data.ts',
    'src/native-system.ts',
  ],
  ['src/optimizers.ts'],
  ['src/addon-file.ts', 'src/optional.ts', 'src/options.ts'],
  ['src/native.ts', 'src/storage/'],
  ['src/protocol/'],
  ['src/core/shared/'],
  ['src/core/placement/', 'src/core/shard/', 'src/core/sink/', 'src/core/client/', 'src/core/replica/'],
  ['src/core/node/', 'src/core/scheduler/', 'src/transport/'],
  ['src/checkpoint/'],
  ['src/runtime/', 'src/serving/'],
  ['src/client/', 'src/planner/', 'src/autoscale/decide/', 'src/data/'],
  ['src/tools/', 'src/train/', 'src/observe/'],
  ['src/autoscale/'],
  [
    'src/index.ts',
    'src/local/',
    'src/worker/',
    'src/dashboard/',
    'src/operator/',
    'src/gateway/',
    'src/sim/',
  ],
  ['src/cli/'],
  ['bench/common/'],
  benchmarks,
  ['bench/registry.ts'],
];

describe('rooms', () => {
  const files = [...sources, ...benchSources];
  const graph = new Map(
    files.map((file) => [file, importsOf(file, text(file)).filter((name) => /^(src|bench)\//.test(name))]),
  );
  const roomOf = (file: string): string => FLOORS.flat().find((room) => file.startsWith(room)) ?? '';
  const floorOf = (file: string): number => FLOORS.findIndex((floor) => floor.includes(roomOf(file)));

  it('every file lies in a room', () => {
    expect(files.filter((file) => floorOf(file) < 0)).toEqual([]);
    expect(FLOORS.flat().filter((room) => !files.some((file) => file.startsWith(room)))).toEqual([]);
  });

  it('imports run down, never up and never to a neighbour', () => {
    const wrong = (file: string, name: string): boolean =>
      roomOf(name) !== roomOf(file) && floorOf(name) >= floorOf(file);
    expect(wrong('src/core/sink/sink.ts', 'src/core/shard/owner.ts')).toBe(true);
    expect(wrong('src/core/node/node.ts', 'src/core/shard/owner.ts')).toBe(false);
    expect(wrong('bench/scan/bench.ts', 'bench/read/bench.ts')).toBe(true);
    expect(wrong('bench/scan/bench.ts', 'bench/common/job.ts')).toBe(false);
    const found = [...graph].flatMap(([file, names]) =>
      names.flatMap((name) => (wrong(file, name) ? [`${file} imports ${name}`] : [])),
    );
    expect(found).toEqual([]);
  });

  it('no file needs, by way of others, itself', () => {
    expect(
      circles(
        new Map([
          ['a', ['b']],
          ['b', ['c']],
          ['c', ['b']],
        ]),
      ),
    ).toEqual([['b', 'c']]);
    expect(circles(graph)).toEqual([]);
  });
});

/**
 * Files that reach each other: strongly connected components of more than one file, or one that imports
 * itself.
 */
function circles(edges: ReadonlyMap<string, readonly string[]>): string[][] {
  const reach = (from: string): Set<string> => {
    const seen = new Set<string>();
    const open = [...(edges.get(from) ?? [])];
    for (let next = open.pop(); next !== undefined; next = open.pop()) {
      if (seen.has(next)) continue;
      seen.add(next);
      open.push(...(edges.get(next) ?? []));
    }
    return seen;
  };
  const reached = new Map([...edges.keys()].map((file) => [file, reach(file)]));
  const found = new Map<string, string[]>();
  for (const [file, others] of reached) {
    if (!others.has(file)) continue;
    const circle = [...others].filter((other) => reached.get(other)?.has(file)).sort();
    found.set(circle.join(' '), circle);
  }
  return [...found.values()];
}

describe('Python', () => {
  const SOURCE = 'python/src/';
  const modules = filesUnder('python/src', /\.py$/);
  /** Modules of ours that a file imports, by path: also those that are imported for types only. */
  const importsIn = (file: string, source: string): string[] =>
    [...source.matchAll(/^\s*from (\.+)(\w*) import (\([^)]*\)|[^\n]*)/gm)].flatMap((match) => {
      const [, dots, name, list] = match;
      const folder = join(dirname(file), '../'.repeat(dots!.length - 1));
      const inside = name ? [name] : [...list!.matchAll(/\w+/g)].map((each) => each[0]);
      return inside
        .flatMap((each) => [join(folder, `${each}.py`), join(folder, each, '__init__.py')])
        .filter((path) => modules.includes(path));
    });

  it('the checks see the files and their imports', () => {
    expect(modules.length).toBeGreaterThan(20);
    const source = 'from ._client import Client\nfrom . import (\n  schedules,\n)\n  from .torch import x\n';
    expect(importsIn(`${SOURCE}kintsugi/a.py`, source)).toEqual([
      `${SOURCE}kintsugi/_client.py`,
      `${SOURCE}kintsugi/schedules.py`,
      `${SOURCE}kintsugi/torch/__init__.py`,
    ]);
    expect(importsIn(`${SOURCE}kintsugi/torch/a.py`, 'from .._tables import Table')).toEqual([
      `${SOURCE}kintsugi/_tables.py`,
    ]);
  });

  it('no module needs, by way of others, itself, and PyTorch is needed by its own room only', () => {
    const graph = new Map(modules.map((file) => [file, importsIn(file, text(file))]));
    expect(circles(graph)).toEqual([]);
    const outside = modules.filter((file) => !file.startsWith(`${SOURCE}kintsugi/torch/`));
    expect(outside.filter((file) => graph.get(file)!.some((name) => name.includes('/torch/')))).toEqual([]);
  });
});

describe('C++', () => {
  const under = (folder: string): [string, string[]][] =>
    filesUnder(`native/${folder}`, /\.(cc|h)$/).map((file) => [file, includesOf(text(file))]);
  const names = (folder: string): Set<string> =>
    new Set(under(folder).map(([file]) => file.slice(file.lastIndexOf('/') + 1)));

  it('the checks see the files', () => {
    expect(under('engine').flatMap(([, list]) => list).length).toBeGreaterThan(30);
    expect(under('kernels').length).toBeGreaterThan(4);
    expect(includesOf('#include "a.h"\n  #  include <b.h>\n// #include')).toEqual(['a.h', 'b.h']);
  });

  it('engine, kernels and data never include napi.h', () => {
    const wrong = [...under('engine'), ...under('kernels'), ...under('data')].filter(([, list]) =>
      list.some((name) => /napi|node(_api)?\.h|v8/.test(name)),
    );
    expect(wrong).toEqual([]);
  });

  it.each([
    ['kernels', ['engine', 'data', 'binding']],
    ['engine', ['data', 'binding']],
    ['data', ['binding']],
  ])('%s include nothing of %s', (folder, above) => {
    const forbidden = new Set(above.flatMap((upper) => [...names(upper)]));
    for (const name of names(folder)) forbidden.delete(name);
    const wrong = under(folder).flatMap(([file, list]) =>
      list
        .filter(
          (name) =>
            forbidden.has(name.slice(name.lastIndexOf('/') + 1)) ||
            above.some((upper) => name.includes(`${upper}/`)),
        )
        .map((name) => `${file} includes ${name}`),
    );
    expect(wrong).toEqual([]);
  });
});

describe('files', () => {
  it(`have at most ${MAX_LINES} lines`, () => {
    const all = [
      ...sources,
      ...filesUnder('native', /\.(cc|h|mjs)$/),
      ...filesUnder('test', /\.(ts|mjs)$/),
      ...filesUnder('bench', /\.(ts|mjs)$/),
      ...filesUnder('src/dashboard/page', /\.js$/),
      ...filesUnder('examples', /\.(mjs|ts|py)$/),
      ...filesUnder('python/src', /\.py$/),
      ...filesUnder('python/tests', /\.py$/),
      ...filesUnder('python/bench', /\.(py|mjs)$/),
    ];
    const long = all
      .map((file): [string, number] => [file, text(file).split('\n').length - 1])
      .filter(([, lines]) => lines > MAX_LINES)
      .map(([file, lines]) => `${file}: ${lines}`);
    expect(long).toEqual([]);
  });
});
