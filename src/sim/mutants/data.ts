/**
 * Bugs that show only with several tables, both pools, data sets or the real codec. A file that begins with
 * `protocol/` is one of the compiled protocol; others are of the core.
 */
import type { Mutant } from './mutant.js';

/** Edit of a push to other learning rates: `rate` is that of table number `t` among `rates`. */
function withRates(rate: string): string {
  const copied = 'const copy = section.slice(); const view = new DataView(copy.buffer);';
  const tables = 'const tables = Math.min(view.getUint32(0, true), Math.floor((copy.length - 8) / 16));';
  const rates = 'const rates = Array.from({ length: tables }, (_, t) => view.getUint32(20 + 16 * t, true));';
  const set = `rates.forEach((_, t) => view.setUint32(20 + 16 * t, ${rate}, true));`;
  return `const status = (() => { if (section.length < 8) return push(section);
    ${copied} ${tables} ${rates} ${set} return push(copy); })();`;
}

export const DATA_MUTANTS: readonly Mutant[] = [
  {
    name: 'tables: a new owner forgets how far all tables but the first reached',
    file: 'shard/takeover',
    from: 'return [...merged.values()];',
    to: 'return [...merged.values()].slice(0, 1);',
  },
  {
    name: 'tables: a schedule of learning rates is not kept',
    file: 'protocol/table-rules',
    from: 'optimizer: onlyKnownOptimizer(optimizer),',
    to: 'optimizer: { ...onlyKnownOptimizer(optimizer), schedule: undefined },',
  },
  {
    name: 'tables: the largest norm of a gradient is not kept',
    file: 'protocol/table-rules',
    from: 'optimizer: onlyKnownOptimizer(optimizer),',
    to: 'optimizer: { ...onlyKnownOptimizer(optimizer), clipNorm: undefined },',
  },
  {
    name: 'requests: the learning rate of a push is not taken',
    file: 'shard/owner',
    from: 'const status = push(section);',
    to: withRates('0'),
  },
  {
    name: 'requests: a table takes the learning rate of the table before it in the push',
    file: 'shard/owner',
    from: 'const status = push(section);',
    to: withRates('t > 0 ? rates[t - 1] : 0'),
  },
  {
    name: 'scan: an owner lists keys before it has them all',
    file: 'node/queries',
    from: "if (owner?.phase === 'ACTIVE' && owner.native.keysReady)",
    to: "if (owner?.phase === 'ACTIVE')",
    scenario: {
      test: 'test/core/node/queries.test.ts',
      because: 'a table is listed only when its own keys are there, so few schedules see a difference',
    },
  },
  {
    name: 'scan: the next page begins one slot too far',
    file: 'node/queries',
    from: 'owner.native.keys(table, Number(first), max)',
    to: 'owner.native.keys(table, Number(first) + (first > 0 ? 1 : 0), max)',
  },
  {
    name: 'scan: a page in order of key begins with the last key of the one before',
    file: 'node/queries',
    from: 'BigInt(first)',
    to: '(BigInt(first) > 0n ? BigInt(first) - 1n : 0n)',
  },
  {
    name: 'samples: a range is given to somebody while another one has it',
    file: 'scheduler/samples/samples',
    from: 'firstFree(live, this.policy.maxRangeFailures) ?? this.fresh(live)',
    to: '[...live.state.open.values()].find((each) => each.worker !== worker) ?? this.fresh(live)',
  },
  {
    name: 'samples: a range does not wait for what is in doubt',
    file: 'scheduler/samples/live',
    from: '!doubts.holdBack(range, maxFailures)',
    to: 'true',
    scenario: {
      test: 'test/core/scheduler/expired-leases.test.ts',
      because: 'in schedules it is the workers that fail, and no batch is at fault',
    },
  },
  {
    name: 'samples: nobody confirms what is in doubt',
    file: 'scheduler/samples/samples',
    from: 'if (reason === EXPIRED && live.doubts.add(range, this.time))',
    to: 'if (reason === EXPIRED)',
    scenario: {
      test: 'test/core/scheduler/expired-leases.test.ts',
      because: 'in schedules it is the workers that fail, and no batch is at fault',
    },
  },
  {
    name: 'samples: the session of a range does not end',
    file: 'scheduler/samples/samples',
    from: 'this.ledger.endSession(range.session);',
    to: '',
  },
  {
    name: 'samples: batches that were begun count as durable',
    file: 'scheduler/samples/live',
    from: 'range.done = Math.max(range.done, done);',
    to: 'range.done = Math.max(range.done, begun);',
  },
  {
    name: 'samples: pushes of a range are numbered afresh by the next worker',
    file: 'client/client',
    from: '.next += count;',
    to: '.next += 0;',
  },
  {
    name: 'client: a push to a slow connection that was dropped is never repeated',
    file: 'client/client',
    from: 'isOnTheWay && !shard.retry.overdue(now - this.policy.maxBusyMs)',
    to: 'isOnTheWay',
    scenario: {
      test: 'test/core/client/busy.test.ts',
      because: 'connections of a schedule are slow for a while only',
    },
  },
  {
    name: 'client: a pull over a slow connection is never repeated',
    file: 'client/reads',
    from: 'rejected || now > overdueAt + maxBusyMs || ',
    to: 'rejected || ',
    scenario: {
      test: 'test/core/client/busy.test.ts',
      because: 'connections of a schedule are slow for a while only',
    },
  },
  {
    name: 'client: a pull that was rejected waits for what is on the way',
    file: 'client/reads',
    from: '(rejected || now > overdueAt',
    to: '(now > overdueAt',
    scenario: {
      test: 'test/core/client/busy.test.ts',
      because: 'it only makes the wait longer',
    },
  },
  {
    name: 'codec: a push does not say whose it is',
    file: 'protocol/validate',
    from: 'const message = header;',
    to: "const message = header; if (message.t === 'push') delete message.client;",
  },
  {
    name: 'sections: a shard takes the number of the shard before it in the message',
    file: 'node/requests',
    from: 'items.number(i, 2)',
    to: 'items.number(Math.max(0, i - 1), 2)',
  },
  {
    name: 'sections: a shard takes the bytes of the first one in the message',
    file: 'node/requests',
    from: 'cseq, sections.subarray(start, end));',
    to: 'cseq, sections.subarray(0, end - start));',
  },
  {
    name: 'sections: the last shard of a message is left out of its acknowledgement',
    file: 'node/replies',
    from: "const message = { t: 'pushAck', items: items.bytes() };",
    to: "const message = { t: 'pushAck', items: items.bytes().subarray(0, -16) };",
  },
  {
    name: 'acknowledgements: the first shard of a push that is durable speaks for all',
    file: 'node/owed-acks',
    from: 'push.kept.push([g, m, cseq, refused]);\n        if (--push.left === 0)',
    to:
      'for (const [k, l] of [...(this.sections.get(client) ?? []), [shardKey(g, m), [{ cseq, push }]]])' +
      ' for (const s of l) if (s.push === push)' +
      ' push.kept.push([Math.floor(k / 65536), k % 65536, s.cseq, refused]);\n        if (--push.left >= 0)',
  },
  {
    name: 'acknowledgements: a push that waits too long is acknowledged as a whole',
    file: 'node/owed-acks',
    from: 'push.shards.push(key);',
    to: 'push.shards.push(key); push.kept.push([g, m, cseq, undefined]);',
  },
  {
    name: 'acknowledgements: those of a push wait for its last shard without end',
    file: 'node/owed-acks',
    from: 'if (now - push.since < this.waitMs)',
    to: 'if (true)',
    scenario: {
      test: 'test/core/node/owed-acks.test.ts',
      because: 'the client repeats its push, and is answered at once',
    },
  },
  {
    name: 'acknowledgements: a repeated section waits for its push',
    file: 'node/owed-acks',
    from: 'if (earlier)',
    to: 'if (false)',
    scenario: {
      test: 'test/core/node/owed-acks.test.ts',
      because: 'its answer is late, not wrong',
    },
  },
  {
    name: 'codec: tombstones are refused',
    file: 'protocol/validate',
    from: 'const mark = either(ended, skipped);',
    to: 'const mark = skipped;',
  },
];
