/** Imports run one way, the core knows no world, and files stay readable: checked on the source text. */
import { dirname, join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { codeOnly } from './code-only.js';
import { filesUnder, importedFile, ROOT, text } from './tree.js';

const MAX_LINES = 450;

/** Imports of a TypeScript file: packages by name, files of ours by path from the root. */
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
      return name.startsWith('.') ? importedFile(file, name) : name;
    });
}

/** Quoted and angled includes of a C++ file. */
const includesOf = (source: string): string[] =>
  [...source.matchAll(/^\s*#\s*include\s*[<"]([^>"]+)[>"]/gm)].map((match) => match[1]!);

const sources = filesUnder('src', /\.ts$/);
const pure = sources.filter((file) =>
  /^src\/((core|protocol)\/|engine\/(optimizers|schedules|policies|policy-checks|filters)\.ts$)/.test(file),
);

describe('TypeScript', () => {
  it('the checks see the files and their imports', () => {
    expect(pure.length).toBeGreaterThan(15);
    expect(importsOf('src/core/shard/owner.ts', text('src/core/shard/owner.ts'))).toEqual(
      expect.arrayContaining(['src/engine/native.ts', 'src/core/shared/dedup.ts', 'src/protocol/map.ts']),
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
    const engine = 'native|optimizers|schedules|policies|policy-checks|filters|snapshots';
    const allowed = new RegExp(
      `^src/(core/|protocol/|common/errors\\.ts|engine/(${engine})\\.ts)|^msgpackr$`,
    );
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
    const rooms = /^src\/fleet\/(planner|autoscale\/decide)\//;
    const allowed = new RegExp(
      '^src/(fleet/(planner|autoscale/decide)/|common/(errors|statistics)\\.|' +
        'engine/(optimizers|schedules|policies|filters)\\.|protocol/blocks\\.|core/placement/job\\.)',
    );
    const imports = sources.flatMap((file) => importsOf(file, text(file)).map((name) => ({ file, name })));
    const beyond = imports.filter(({ file, name }) => rooms.test(file) && !allowed.test(name));
    const users = imports.filter(({ file, name }) => rooms.test(name) && !rooms.test(file));
    const impure = sources.filter(
      (file) => rooms.test(file) && /\bDate\b|\bMath\s*\.\s*random\b|\bprocess\b/.test(codeOnly(text(file))),
    );
    expect([beyond, impure]).toEqual([[], []]);
    expect(
      users.filter(({ file }) => !/^src\/(cli|fleet\/(local|autoscale|dashboard))\//.test(file)),
    ).toEqual([]);
    expect(users.length).toBeGreaterThan(0);
  });

  it('what the operator decides is pure: types of its own, no clock, no randomness', () => {
    const room = /^src\/fleet\/operator\/reconcile\//;
    const allowed = /^src\/fleet\/operator\/(reconcile\/|types\.ts$|objects\.ts$)|^node:crypto$/;
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
    // Programs around the simulator, its command line and its own check, may use clock and randomness.
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
 * Rooms from the ground up, each with its subject. A file imports from its own room and from rooms on lower
 * floors; rooms that share a floor do not know each other. So no change runs in circles, and a reader knows
 * where to look. ARCHITECTURE.md shows this table.
 */
const FLOORS: readonly Readonly<Record<string, string>>[] = [
  {
    'native/kernels/': 'GF(2^8), rows, steps of optimizers (their table first)',
  },
  { 'native/engine/': 'index, table, shard, snapshot, sink; C++20 without exceptions' },
  { 'native/data/': 'lines of data files become rows of a batch' },
  { 'native/binding/': 'N-API around the three, which know no Node' },
  { 'src/common/': 'errors, checks of options, optional packages, Protocol Buffers' },
  { 'src/engine/': 'the whole addon, typed; optimizers and schedules, policies and their filters' },
  { 'src/protocol/': 'messages, their senders and checks, frame, cluster map' },
  { 'src/core/shared/': 'limits (policy.ts), outbox, de-duplication, pace, bytes that wait' },
  {
    'src/core/placement/': 'pure functions of the map: groups, repair, health, moves',
    'src/core/shard/': 'a data shard: owner, stream, recovery, requests that wait',
    'src/core/sink/': 'a parity or a mirror, and the check of a parity',
    'src/core/client/': 'the side of clients: numbers, resends, pulls',
    'src/core/replica/': 'a client that follows shards and answers pulls',
  },
  {
    'src/core/node/': 'all shards and sinks of a PS; heartbeats, saving',
    'src/core/scheduler/': 'membership, durable decisions, sessions, scaling/, samples/, saving/',
  },
  { 'src/net/': 'links (transport/), addresses, logs; carries out effects' },
  { 'src/stores/decisions/': 'durable state of the scheduler, in a journal or etcd; who leads' },
  { 'src/stores/checkpoint/': 'files of checkpoints, in directories and object stores' },
  { 'src/roles/': 'scheduler, PS and replica: clock, sockets, metrics' },
  { 'src/data/': 'data files as batches; schemas, object stores, vectors' },
  {
    'src/library/client/': 'the library: client, session, pushes, data sets',
    'src/library/serving/': 'exports in memory, for programs that serve their rows',
  },
  {
    'src/library/tools/': 'digest, scrub, save, load, import, scaling',
    'src/library/observe/': 'looks at a job, rates between two looks, findings',
  },
  {
    'src/training/models/': 'built-in models as ONNX graphs; models of users',
    'src/training/gateway/': 'speaks the protocol for programs of other languages',
  },
  {
    'src/training/loop/': 'feed of leased ranges, training loop, spool',
    'src/training/reading/': 'reads data files for programs of other languages',
  },
  { 'src/training/worker/': 'the worker role' },
  {
    'src/fleet/planner/': 'needs of a job: memory, load, recovery, cost; pure',
    'src/fleet/autoscale/decide/': 'decisions about the number of PS and workers; pure',
  },
  { 'src/fleet/autoscale/': 'a client that has a job changed; a provider has the processes' },
  {
    'src/fleet/operator/': 'training jobs of Kubernetes; reconcile/ is pure',
    'src/fleet/local/': '`kintsugi local`: launcher, report; supervisor of PS',
    'src/fleet/dashboard/': 'the page of a job (page/) and its server',
  },
  {
    'src/index.ts': 'the exports of the package',
    'src/sim/': 'whole clusters stepped in one process; mutants/ are planted bugs',
  },
  { 'src/cli/': 'thin commands, listed in program.ts; nothing imports them' },
  { 'bench/common/': 'tools that benchmarks share' },
  Object.fromEntries(benchmarks.map((room) => [room, 'a benchmark'])),
  { 'bench/registry.ts': 'all benchmarks, by name' },
  {
    'python/src/kintsugi/': 'the package for Python, a client of a gateway and of a reader',
  },
  { 'python/src/kintsugi/torch/': 'layers for PyTorch' },
];
const ROOMS = FLOORS.flatMap((floor) => Object.keys(floor));

/** Each floor with its number and its rooms, from the ground up. All benchmarks share a line. */
function roomsText(): string {
  const width = Math.max(...ROOMS.map((room) => room.length));
  const lines = FLOORS.flatMap((floor, height) => {
    const rows = Object.entries(floor).map(([room, subject]) => {
      const shown = benchmarks.includes(room) ? 'bench/NAME/' : room;
      return `${shown.padEnd(width)}  ${subject}`;
    });
    return [...new Set(rows)].map((row, i) => `${i === 0 ? height + 1 : ''}`.padEnd(4) + row);
  });
  return lines.join('\n');
}

describe('rooms', () => {
  const files = [...sources, ...benchSources];
  const graph = new Map(
    files.map((file) => [file, importsOf(file, text(file)).filter((name) => /^(src|bench)\//.test(name))]),
  );
  const roomOf = (file: string): string => ROOMS.find((room) => file.startsWith(room)) ?? '';
  const floorOf = (file: string): number => FLOORS.findIndex((floor) => Object.hasOwn(floor, roomOf(file)));

  it('every file lies in a room', () => {
    expect(files.filter((file) => floorOf(file) < 0)).toEqual([]);
    const all = [...files, ...filesUnder('native', /\.cc$/), ...filesUnder('python/src', /\.py$/)];
    expect(ROOMS.filter((room) => !all.some((file) => file.startsWith(room)))).toEqual([]);
  });

  it('ARCHITECTURE.md shows them', async () => {
    const page = text('ARCHITECTURE.md');
    const block = /(<!-- rooms: .* -->\n)[\s\S]*(<!-- end of rooms -->)/;
    expect(page).toMatch(block);
    const written = page.replace(
      block,
      (_, begin, end) => `${begin}\n\`\`\`\n${roomsText()}\n\`\`\`\n\n${end}`,
    );
    await expect(written).toMatchFileSnapshot(join(ROOT, 'ARCHITECTURE.md'));
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

  const inside = ROOMS.flatMap((room) => /^native\/(\w+)\/$/.exec(room)?.[1] ?? []);
  const floors = inside.slice(0, -1).map((room, i): [string, string[]] => [room, inside.slice(i + 1)]);
  it.each(floors)('%s include nothing of %s', (folder, above) => {
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
      ...filesUnder('src/fleet/dashboard/page', /\.js$/),
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
