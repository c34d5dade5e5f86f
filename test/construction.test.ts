/** Objects, too, run one way: a part is made with what it needs, and knows nothing that is made after it. */
import { describe, expect, it } from 'vitest';
import { constructionProblems } from './construction.js';
import { filesUnder, text } from './tree.js';

/** Classes whose parts may be given more, by the names of these parts, and why. */
const EXCEPTIONS: Readonly<Record<string, { parts: readonly string[]; because: string }>> = {
  'src/core/shard/owner.ts: Owner': {
    parts: ['Stream', 'ShardReplicas', 'Gaps', 'Recovery', 'Pulls'],
    because: 'one machine in six files: each part sees its owner through an interface of a few questions',
  },
  'src/core/client/client.ts: PsClientCore': {
    parts: ['Reads'],
    because: 'pulls and pushes are two halves of one machine',
  },
  'src/library/client/session.ts: Session': {
    parts: ['AddressBook', 'PushHold', 'Peers'],
    because: 'the network calls back, at a later turn of the event loop',
  },
  'src/roles/ps/ps.ts: PsRuntime': {
    parts: ['PlaceFiles', 'FailStop', 'Peers'],
    because: 'the network, the disk and a failure call back, at a later turn of the event loop',
  },
  'src/roles/replica/replica.ts: Replica': {
    parts: ['Peers'],
    because: 'the network calls back, at a later turn of the event loop',
  },
  'src/roles/scheduler/scheduler.ts: SchedulerRuntime': {
    parts: ['Checkpoints', 'Probing'],
    because: 'the network and the place of checkpoints call back, at a later turn of the event loop',
  },
};

const problemsOf = (body: string) =>
  constructionProblems('a.ts', `class A { ${body} }`).map((problem) => problem.replace('a.ts: A: ', ''));

describe('the check', () => {
  it('takes parts that are made from the ground up', () => {
    expect(problemsOf('b = new B(); c = new C(1); d: D; constructor() { this.d = new D(this.c); }')).toEqual(
      [],
    );
    expect(
      problemsOf('b: B; constructor(readonly p: P) { this.b = new B(() => this.p, (x) => p.at(x)); }'),
    ).toEqual([]);
    expect(
      problemsOf(
        'b: B; c: C; constructor() { const l = new L(); this.b = new B(l); this.c = new C(this.b); }',
      ),
    ).toEqual([]);
    // A method may use whatever there is by then.
    expect(problemsOf('b = new B(); c = new C(); run() { return new D(this, this.c); }')).toEqual([]);
  });

  it('finds what is made later: in arguments, closures, fields and locals', () => {
    const later = 'new B names this.c, which is made later';
    expect(problemsOf('b: B; c: C; constructor() { this.b = new B(this.c); this.c = new C(); }')).toEqual([
      later,
    ]);
    expect(
      problemsOf('b: B; c: C; constructor() { this.b = new B({ c: () => this.c }); this.c = new C(); }'),
    ).toEqual([later]);
    expect(
      problemsOf('b = new B((id) => this.c.has(id)); c: C; constructor() { this.c = new C(); }'),
    ).toEqual([later]);
    expect(problemsOf('b = new B(() => this.c); c = new C();')).toEqual([later]);
    expect(problemsOf('b: B; constructor() { this.b = new B(() => this.b); }')).toEqual([
      'new B names this.b, which is made later',
    ]);
    expect(problemsOf('b: B; constructor() { this.b = new B(() => c); const c = new C(); }')).toEqual([
      'new B names c, which is made later',
    ]);
    expect(problemsOf('constructor() { const b = new B(() => this.c); this.c = new C(b); }')).toEqual([
      later,
    ]);
  });

  it('follows methods and accessors of the class', () => {
    const made = 'b: B; c: C; constructor() { this.b = new B(() => this.view()); this.c = new C(); }';
    const later = ['new B names this.c, which is made later'];
    expect(problemsOf(`${made} view() { return this.all; } get all() { return [this.c]; }`)).toEqual(later);
    expect(problemsOf(`${made} view() { const { c } = this; return c; }`)).toEqual(later);
    expect(problemsOf(`${made} view = () => this.c;`)).toEqual(later);
    expect(problemsOf(`${made} view() { return this.view(); }`)).toEqual([]);
  });

  it('finds the object itself', () => {
    const given = ['new B is given this'];
    expect(problemsOf('b = new B(this);')).toEqual(given);
    expect(problemsOf('b: B; constructor() { this.b = new B({ ...this }, 1); }')).toEqual(given);
    expect(problemsOf('b: B; constructor() { this.b = new B(() => run(this)); }')).toEqual(given);
    expect(problemsOf('b: B; constructor() { const self = this; this.b = new B(self); }')).toEqual([
      'calls itself self',
    ]);
  });

  it('finds what is hung on a part that was made', () => {
    expect(problemsOf('b = new B(); constructor() { this.b.onChange = () => this.d(); }')).toEqual([
      'sets this.b.onChange of a part that is made',
    ]);
    expect(problemsOf('b = new B(); constructor() { this.b.size = 4; }')).toEqual([]);
  });
});

it('parts of the core, the roles, the network and the libraries are made from the ground up', () => {
  const folders = ['src/core', 'src/roles', 'src/net', 'src/library'];
  const files = folders.flatMap((folder) => filesUnder(folder, /\.ts$/));
  expect(files.length).toBeGreaterThan(200);
  const problems = files.flatMap((file) => constructionProblems(file, text(file)));
  const excused = Object.entries(EXCEPTIONS).flatMap(([where, { parts }]) =>
    parts.map((part) => `${where}: new ${part} `),
  );
  expect(problems.filter((problem) => !excused.some((start) => problem.startsWith(start)))).toEqual([]);
  expect(excused.filter((start) => !problems.some((problem) => problem.startsWith(start)))).toEqual([]);
});
