/**
 * Bugs in requests to etcd: who leads, and transactions that hold once and as a whole; and bugs of a
 * scheduler that steps down and stands by again.
 */
import type { Mutant } from './mutant.js';

const TERMS = {
  test: 'test/roles/scheduler/candidate.test.ts',
  because: 'the simulator has one scheduler, and no elections',
};

const OWNERS = {
  test: 'test/roles/scheduler/owner.test.ts',
  because: 'the schedulers of the simulator are all of one job',
};

export const STORAGE_MUTANTS: readonly Mutant[] = [
  {
    name: 'leadership: two leaders write, because a write does not compare the key of the leader',
    file: 'stores/decisions/etcd/store',
    from: "{ key: leader, target: 'CREATE', result: 'EQUAL', create_revision: this.revision }, ",
    to: '',
    scenario: { test: 'test/stores/decisions/etcd.test.ts', because: 'it takes a real etcd' },
  },
  {
    name: 'leadership: a write that was refused counts as durable',
    file: 'stores/decisions/etcd/store',
    from: 'if (!isDone)',
    to: 'if (false)',
    scenario: { test: 'test/stores/decisions/etcd.test.ts', because: 'it takes a real etcd' },
  },
  {
    name: 'leadership: a copy of a transaction that is late is carried out',
    file: 'stores/decisions/etcd/store',
    from: 'create_revision: this.revision }, before]',
    to: 'create_revision: this.revision }]',
    scenario: { test: 'test/stores/decisions/etcd-late.test.ts', because: 'it takes a real etcd' },
  },
  {
    name: 'leadership: a transaction whose first copy was carried out counts as refused',
    file: 'stores/decisions/etcd/store',
    from: '?.kvs?.[0]) === own',
    to: "?.kvs?.[0]) === ''",
    scenario: { test: 'test/stores/decisions/etcd-late.test.ts', because: 'it takes a real etcd' },
  },
  {
    name: 'store: a transaction that is larger than etcd takes is not logged first',
    file: 'stores/decisions/etcd/store',
    from: 'if (split.length <= 1)',
    to: 'if (split.length > 1) { for (const batch of split) await this.transact(batch); return; } else',
    scenario: { test: 'test/stores/decisions/etcd.test.ts', because: 'it takes a real etcd' },
  },
  {
    name: 'leadership: a scheduler that steps down goes on with the store of the term that is over',
    file: 'roles/scheduler/candidate',
    from: 'store.election.again()',
    to: 'store',
    scenario: TERMS,
  },
  {
    name: 'leadership: a scheduler that does not lead any more ends',
    file: 'roles/scheduler/candidate',
    from: '!ENDS_A_TERM.has(error.code)',
    to: 'true',
    scenario: TERMS,
  },
  {
    name: 'leadership: a scheduler that was closed between two terms begins the next one',
    file: 'roles/scheduler/candidate',
    from: 'if (this.closed)\n            return;\n        const next',
    to: 'const next',
    scenario: TERMS,
  },
  {
    name: 'leadership: a leader that stepped down writes what it decided, once it leads again',
    file: 'stores/decisions/etcd/store',
    from: 'return new EtcdStore(this.url, this.options, this.locationNow(), this.known)',
    to: 'this.deposed = undefined; this.stopped = new AbortController(); return this',
    scenario: { test: 'test/stores/decisions/etcd.test.ts', because: 'it takes a real etcd' },
  },
  {
    name: 'leadership: a scheduler begins an empty job where the store has lost its own',
    file: 'roles/scheduler/candidate',
    from: 'found === undefined ? !led && !election?.hadEntries :',
    to: 'found === undefined ? true :',
    scenario: TERMS,
  },
  {
    name: 'leadership: a scheduler that only stood by begins an empty job where the store has lost one',
    file: 'stores/decisions/etcd/store',
    from: "this.known.hadEntries = await this.hasInside('entry/')",
    to: 'this.known.hadEntries = false',
    scenario: { test: 'test/stores/decisions/etcd.test.ts', because: 'it takes a real etcd' },
  },
  {
    name: 'leadership: a scheduler leads another job than the one that it has led',
    file: 'roles/scheduler/candidate',
    from: '!led || led === found',
    to: 'true',
    scenario: TERMS,
  },
  {
    name: 'leadership: a new term forgets that etcd has answered, and ends when it is refused',
    file: 'stores/decisions/etcd/store',
    from: 'this.locationNow(), this.known)',
    to: 'this.locationNow(), { ...this.known, answered: false })',
    scenario: { test: 'test/stores/decisions/etcd.test.ts', because: 'it takes a real etcd' },
  },
  {
    name: 'owner: a scheduler goes on with the state of another job unasked',
    file: 'roles/scheduler/owner',
    from: "foreign === 'refuse')",
    to: "foreign === 'never')",
    scenario: OWNERS,
  },
  {
    name: 'owner: discarded state stays beside that of the new job',
    file: 'roles/scheduler/owner',
    from: '[...entries.keys()]',
    to: '[]',
    scenario: OWNERS,
  },
  {
    name: 'owner: the state of a new job does not say whose it is',
    file: 'scheduler/entries',
    from: 'HEAD_KEY, OWNER_KEY, SCALING_KEY',
    to: 'HEAD_KEY, SCALING_KEY',
    scenario: OWNERS,
  },
];
