/** Bugs of replicas. */
import type { Mutant } from './mutant.js';

export const REPLICA_MUTANTS: readonly Mutant[] = [
  {
    name: 'replica: a push waits until nobody follows the shard',
    file: 'shard/owner',
    from: 'if (uncommittedBytes > policy.maxUncommittedBytes)',
    to: 'if (uncommittedBytes > policy.maxUncommittedBytes || this.replicas.any)',
  },
  {
    name: 'replica: content of another position is taken',
    file: 'replica/shard',
    from: ' || seq !== filling.seq',
    to: '',
    scenario: {
      test: 'test/core/replica/replica.test.ts',
      because: 'content must cross a delta of the same rows; one schedule in a few thousand has it',
    },
  },
  {
    name: 'replica: the owner does not flush before it reads content',
    file: 'shard/replicas',
    from: 'return;\n        this.shard.flush();',
    to: 'return;',
  },
  {
    name: 'replica: what an owner before had and did not make durable is kept',
    file: 'replica/copy',
    from: 'this.check(this.native.applyDelta(part(this.log.pop().delta)));',
    to: 'this.log.pop();',
  },
  {
    name: 'replica: memory of deltas that may be taken back is used again',
    file: 'replica/copy',
    from: 'of this.log.splice(0, count))',
    to: 'of [...this.log.splice(0, count), ...this.log])',
  },
  {
    name: 'replica: a stream goes on with a state of any generation',
    file: 'shard/replicas',
    from: 'if (gen !== before?.gen || ',
    to: 'if (!before || ',
    scenario: {
      test: 'test/core/replica/replica.test.ts',
      because:
        'a replica must miss a whole ownership while it has batches of the one before that are not durable',
    },
  },
  {
    name: 'replica: batches that are not durable are not sent to who goes on',
    file: 'shard/replicas',
    from: 'for (const batch of stream.uncommitted(base))',
    to: 'for (const batch of [])',
    scenario: {
      test: 'test/core/replica/replica.test.ts',
      because: 'the new owner must have pushed before it is asked, and nothing of it be durable',
    },
  },
  {
    name: 'replica: the generation before is that of the newest promise',
    file: 'shard/takeover',
    from: 'oldest = Math.min(oldest, sgen)',
    to: 'oldest = oldest === Number.POSITIVE_INFINITY ? sgen : Math.max(oldest, sgen)',
    scenario: {
      test: 'test/core/replica/replica.test.ts',
      because: 'an owner must die between the Starts of its sinks while a replica follows the one before it',
    },
  },
  {
    name: 'replica: the map is taken for the newest',
    file: 'replica/shard',
    from: 'Math.min(this.probedAt, this.host.mapAt)',
    to: 'this.probedAt',
    scenario: {
      test: 'test/core/replica/replica.test.ts',
      because: 'an owner must be replaced while a replica does not hear of it',
    },
  },
  {
    name: 'replica: its age counts from the moment of the answer',
    file: 'replica/replica',
    from: 'shard.onProbed(probe.at, ',
    to: 'shard.onProbed(this.now, ',
  },
  {
    name: 'replica: the owner says where it is before it has flushed',
    file: 'shard/replicas',
    from: 'this.shard.flush();\n        return this.replicas.get(from) === replica ?',
    to: 'return this.replicas.get(from) === replica ?',
    scenario: {
      test: 'test/core/replica/replica.test.ts',
      because: 'a push must be open when the question comes, and its answer be looked at before the flush',
    },
  },
  {
    name: 'replica: an answer to a probe counts that the replica has not reached',
    file: 'replica/shard',
    from: ' || copy.seq < seq',
    to: '',
    scenario: {
      test: 'test/core/replica/replica.test.ts',
      because: 'a batch must get lost on the way to a replica that hears the answer to its probe behind it',
    },
  },
  {
    name: 'replica: what an owner before said of its position counts for the next one',
    file: 'replica/shard',
    from: "this.probedAt = Number.NEGATIVE_INFINITY;\n            stream.state = 'live';",
    to: "stream.state = 'live';",
    scenario: {
      test: 'test/core/replica/replica.test.ts',
      because: 'an owner that was replaced must answer a probe before the map comes to the replica',
    },
  },
  {
    name: 'replica: a question that is repeated is another one',
    file: 'replica/shard',
    from: 'const id = this.stream?.id ?? host.newId();',
    to: 'const id = host.newId();',
    scenario: {
      test: 'test/core/replica/replica.test.ts',
      because: 'answers must take longer than a question waits, for good; one schedule in thousands has it',
    },
  },
  {
    name: 'replica: a stream whose beginning was lost is waited for',
    file: 'replica/shard',
    from: "if (stream.state === 'asked') {",
    to: "if (stream.state === 'asked') {\n            return;",
    scenario: {
      test: 'test/core/replica/replica.test.ts',
      because: 'an answer must get lost, and a new connection makes the replica ask again at once',
    },
  },
  {
    name: 'replica: one that the owner has forgotten does not find out',
    file: 'replica/shard',
    from: 'if (seq === undefined || ',
    to: 'if (seq === undefined) return;\n        if (',
  },
  {
    name: 'replica: the rest of a delta is read where a table that is left out begins',
    file: 'shared/sections',
    from: 'at = end;',
    to: 'if (keep(word(0))) at = end;',
  },
];
