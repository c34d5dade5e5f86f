/** Bugs in what etcd is asked: who leads, and transactions that hold once and as a whole. */
import type { Mutant } from './mutant.js';

export const STORAGE_MUTANTS: readonly Mutant[] = [
  {
    name: 'leadership: two leaders write, because a write does not compare the key of the leader',
    file: 'storage/etcd/store',
    from: "{ key: leader, target: 'CREATE', result: 'EQUAL', create_revision: this.revision }, ",
    to: '',
    scenario: { test: 'test/storage/etcd.test.ts', because: 'it takes a real etcd' },
  },
  {
    name: 'leadership: a write that was refused counts as durable',
    file: 'storage/etcd/store',
    from: 'if (!isDone)',
    to: 'if (false)',
    scenario: { test: 'test/storage/etcd.test.ts', because: 'it takes a real etcd' },
  },
  {
    name: 'leadership: a copy of a transaction that is late is carried out',
    file: 'storage/etcd/store',
    from: 'create_revision: this.revision }, before]',
    to: 'create_revision: this.revision }]',
    scenario: { test: 'test/storage/etcd-late.test.ts', because: 'it takes a real etcd' },
  },
  {
    name: 'leadership: a transaction whose first copy was carried out counts as refused',
    file: 'storage/etcd/store',
    from: '?.kvs?.[0]) === own',
    to: "?.kvs?.[0]) === ''",
    scenario: { test: 'test/storage/etcd-late.test.ts', because: 'it takes a real etcd' },
  },
  {
    name: 'store: a transaction that is larger than etcd takes is not logged first',
    file: 'storage/etcd/store',
    from: 'if (split.length <= 1)',
    to: 'if (split.length > 1) { for (const batch of split) await this.transact(batch); return; } else',
    scenario: { test: 'test/storage/etcd.test.ts', because: 'it takes a real etcd' },
  },
];
