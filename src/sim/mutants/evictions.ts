/** Bugs of the evictions that readers are told (rule 49). */
import type { Mutant } from './mutant.js';

export const EVICTION_MUTANTS: readonly Mutant[] = [
  {
    name: 'evictions: they are told before they are durable',
    file: 'shard/evictions',
    from: 'this.pending[0].seq <= seq',
    to: 'true',
  },
  {
    name: 'evictions: all that is open is told when anything is durable',
    file: 'shard/owner',
    from: 'this.evictions.committed(this.stream.committed);',
    to: 'this.evictions.committed(this.stream.seq);',
  },
  {
    name: 'evictions: what waits to be durable is told when it leaves',
    file: 'shard/evictions',
    from: 'this.pending.push({ seq, bytes, lists });',
    to: 'this.pending.push({ seq, bytes, lists }); this.committed(seq);',
  },
  {
    name: 'evictions: the oldest are forgotten without a gap',
    file: 'client/evictions',
    from: 'gen !== place.gen || from !== place.number',
    to: 'gen !== place.gen',
  },
  {
    name: 'evictions: a reader that is behind what is kept goes on where it was',
    file: 'shard/evictions',
    from: 'const isKept = gen === this.gen && ring.first <= from && from <= ring.end;',
    to: 'const isKept = gen === this.gen && from <= ring.end;',
  },
  {
    name: 'evictions: another owner leaves no gap',
    file: 'client/evictions',
    from: 'gen !== place.gen || from !== place.number',
    to: 'gen === place.gen && from !== place.number',
  },
  {
    name: 'evictions: they are kept anew under the numbers of those that are over',
    file: 'shard/evictions',
    from: 'this.past = Math.max(this.past, ring.end + 1);',
    to: '',
  },
  {
    name: 'evictions: those of a batch are left out when it is larger than a segment',
    file: 'shard/evictions',
    from: 'done += count;',
    to: 'done += keys.length;',
    scenario: {
      test: 'test/core/shard/evictions.test.ts',
      because: 'few rows leave in one batch of a schedule',
    },
  },
  {
    name: 'evictions: what was flushed before the last flush is lost',
    file: 'shard/evictions',
    from: 'this.pending.push({ seq, bytes, lists });',
    to: 'this.pending = [{ seq, bytes, lists }];',
  },
];
