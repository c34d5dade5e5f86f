import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { KintsugiError } from '../../../src/common/errors.js';
import { OPTIMIZER_KINDS, optimizerOf } from '../../../src/engine/optimizers.js';
import type { DedupEntry } from '../../../src/protocol/messages.js';
import { bytesOf } from '../../../src/stores/checkpoint/bytes.js';
import { encodeHeader } from '../../../src/stores/checkpoint/safetensors.js';
import {
  decodeSegment,
  encodeSegment,
  statePartsOf,
  type TableToWrite,
} from '../../../src/stores/checkpoint/segment.js';
import { filterOf, joined, random, rows, TABLES } from './support.js';

const OWNER = { group: 3, member: 1, position: 2 ** 40 };

/** Lists of random lengths, as the engine gives them page by page. */
const table = (name: string): fc.Arbitrary<TableToWrite> =>
  fc
    .record({
      dim: fc.integer({ min: 1, max: 9 }),
      kind: fc.constantFrom(...OPTIMIZER_KINDS),
      valuesOnly: fc.boolean(),
      pages: fc.array(fc.array(fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }), { maxLength: 20 }), {
        maxLength: 4,
      }),
      removed: fc.array(fc.bigInt({ min: 0n, max: 2n ** 64n - 1n }), { maxLength: 5 }),
      slots: fc.option(fc.array(fc.integer({ min: 100, max: 599 }), { maxLength: 5 }), { nil: undefined }),
      seed: fc.integer(),
    })
    .map(({ dim, kind, valuesOnly, pages, removed, slots, seed }) => {
      const stateParts = valuesOnly ? [] : statePartsOf(dim, optimizerOf(kind, 0.1));
      const width = stateParts.reduce((sum, { floats }) => sum + floats, 0);
      const next = random(seed);
      const floats = (count: number) => new Float32Array(Uint32Array.from({ length: count }, next).buffer);
      return {
        ...{ name, dim, stateParts },
        keys: pages.map((keys) => BigUint64Array.from(keys)),
        values: pages.map((keys) => floats(keys.length * dim)),
        state: pages.map((keys) => floats(keys.length * width)),
        removed: removed.length > 0 ? [BigUint64Array.from(removed)] : [],
        filter: slots && filterOf(slots, 16 * dim, next),
      };
    });
const natural = fc.maxSafeNat();
const sessions: fc.Arbitrary<DedupEntry[]> = fc
  .record({
    ended: fc.array(fc.tuple(natural, natural), { maxLength: 4 }),
    clients: fc.uniqueArray(
      fc.tuple(
        natural,
        natural,
        fc.array(fc.tuple(natural, fc.constantFrom('LIMIT' as const, 'MEMORY_LIMIT' as const))),
      ),
      { maxLength: 6, selector: ([client]) => client },
    ),
  })
  .map(({ ended, clients }) => [
    ...ended.map(([a, b]): DedupEntry => [Math.min(a, b), Math.max(a, b), 'ENDED']),
    ...clients,
  ]);
const segment = fc.record({
  tables: fc
    .uniqueArray(fc.string({ minLength: 1, maxLength: 30 }), { maxLength: 4 })
    .chain((names) => fc.tuple(...names.map(table))),
  sessions: fc.option(sessions, { nil: undefined }),
});

describe('a segment', () => {
  test('reads back as it was written, bit by bit, from any place in memory', () => {
    fc.assert(
      fc.property(segment, fc.integer({ min: 0, max: 9 }), ({ tables, sessions: open }, offset) => {
        const file = joined(encodeSegment(tables, open, OWNER));
        const moved = new Uint8Array(offset + file.byteLength);
        moved.set(file, offset);
        const read = decodeSegment(moved.subarray(offset), 'x');
        expect(read).toMatchObject(OWNER);
        expect(read.sessions).toEqual(open);
        expect(read.tables.map(({ name }) => name).sort()).toEqual(tables.map(({ name }) => name).sort());
        for (const wanted of tables) {
          const found = read.tables.find(({ name }) => name === wanted.name)!;
          expect(found).toMatchObject({ dim: wanted.dim, stateParts: wanted.stateParts });
          for (const part of ['keys', 'values', 'state', 'removed'] as const)
            expect(Buffer.from(bytesOf(found[part]))).toEqual(
              Buffer.concat((wanted[part] ?? []).map(bytesOf)),
            );
          const { filter } = wanted;
          expect(found.filter).toEqual(
            filter && { ...filter, slots: filter.slots[0], counters: filter.counters[0] },
          );
        }
      }),
      { numRuns: 300 },
    );
  });

  test('has slots of a filter only as its text and its counters say', () => {
    const next = random(2);
    const [table] = TABLES as [(typeof TABLES)[0]];
    const fileOf = (filter: TableToWrite['filter']) =>
      joined(encodeSegment([{ ...rows(table, [1n], next), filter }], undefined, OWNER));
    const filter = filterOf([100, 599], 48, next);
    expect(decodeSegment(fileOf(filter), 'x').tables[0]!.filter!.state).toEqual(filter.state);
    const problem = 'the filter of table "items" has other slots than its counters';
    for (const slot of [99n, 600n, 2n ** 40n]) {
      const wrong = { ...filter, slots: [BigUint64Array.of(100n, slot)] };
      expect(() => decodeSegment(fileOf(wrong), 'x')).toThrow(problem);
    }
    for (const [name, value] of [
      ['line', 0],
      ['hashes', 33],
      ['capacity', 2 ** 32],
      ['waiting', 2 ** 32],
    ] as const) {
      const wrong = { ...filter, state: { ...filter.state, [name]: value } };
      expect(() => decodeSegment(fileOf(wrong), 'x')).toThrow('table "items" has no valid filter');
    }
  });

  test('is used in place: nothing is copied', () => {
    const next = random(1);
    const tables = TABLES.map((each) => rows(each, [1n, 2n, 3n], next));
    const parts = encodeSegment(tables, [], OWNER);
    for (const { keys, values } of tables) {
      expect(parts.some(({ buffer }) => buffer === keys[0]!.buffer)).toBe(true);
      expect(parts.some(({ buffer }) => buffer === values[0]!.buffer)).toBe(true);
    }
    const file = joined(parts);
    const read = decodeSegment(file, 'x');
    for (const found of read.tables)
      for (const part of ['keys', 'values'] as const) expect(found[part].buffer).toBe(file.buffer);
  });

  test('of another program may have its tensors in any order', () => {
    const { header } = encodeHeader(
      [
        { name: 't.values', dtype: 'F32', shape: [1, 1] },
        { name: 't.keys', dtype: 'U64', shape: [1] },
      ],
      { format: 'kintsugi-checkpoint', version: '1', group: '0', member: '0', position: '1' },
    );
    const file = joined([header, bytesOf(Float32Array.of(0.5)), bytesOf(BigUint64Array.of(7n))]);
    expect(decodeSegment(file, 'x').tables).toMatchObject([{ name: 't', keys: BigUint64Array.of(7n) }]);
  });

  test('refuses arrays that do not fit together', () => {
    const [wrong] = TABLES.map((each) => rows(each, [1n, 2n], random(1)));
    const encode = () => encodeSegment([{ ...wrong!, dim: 5 }], undefined, OWNER);
    expect(encode).toThrow(expect.objectContaining({ code: 'INTERNAL' }));
    expect(() => encodeSegment([wrong!, wrong!], undefined, OWNER)).toThrow(/occurs once/);
  });
});

describe('what is no segment is refused with the name of the file', () => {
  const metadata = { format: 'kintsugi-checkpoint', version: '1', group: '0', member: '0', position: '1' };
  const craft = (specs: Parameters<typeof encodeHeader>[0], more: Record<string, string> = {}) => {
    const { header, layout } = encodeHeader(specs, { ...metadata, ...more });
    const file = new Uint8Array(layout.fileBytes);
    file.set(header);
    return file;
  };
  const keys = { name: 't.keys', dtype: 'U64', shape: [2] } as const;
  const values = { name: 't.values', dtype: 'F32', shape: [2, 3] } as const;
  const ended = { name: 'sessions.ended', dtype: 'U64', shape: [0, 2] } as const;
  const last = { name: 'sessions.last', dtype: 'U64', shape: [2, 2] } as const;
  test.each<[string, Uint8Array, RegExp]>([
    ['nothing', new Uint8Array(0), /truncated/],
    ['another format', craft([], { format: 'pt' }), /not a segment/],
    ['another version', craft([], { version: '2' }), /version 2/],
    ['no group', craft([], { group: '-1' }), /"group"/],
    ['a position that is no number', craft([], { position: '99999999999999999' }), /"position"/],
    ['a stranger', craft([{ name: 'x', dtype: 'U8', shape: [1] }]), /"x"/],
    ['values without keys', craft([values]), /"t.values"/],
    ['keys without values', craft([keys]), /no values/],
    ['too few keys', craft([{ ...keys, shape: [1] }, values]), /1 keys, 2 rows/],
    ['keys of another type', craft([{ ...keys, dtype: 'I64' }, values]), /I64/],
    ['values of another shape', craft([keys, { ...values, shape: [6] }]), /1 dimensions/],
    ['rows of nothing', craft([keys, { ...values, shape: [2, 0] }]), /without values/],
    [
      'state that is not announced',
      craft([keys, values, { ...values, name: 't.state' }]),
      /state of the shape/,
    ],
    ['state that is missing', craft([keys, values], { 't.state': 'sum:3' }), /state of the shape/],
    ['state with a strange layout', craft([keys, values], { 't.state': 'sum:x' }), /no valid state/],
    ['half of the sessions', craft([last]), /not complete/],
    ['sessions of one column', craft([ended, { ...last, shape: [2, 1] }]), /2 columns/],
    ['a client twice', craft([ended, last]), /client 0 occurs twice/],
    [
      'a refusal of nobody',
      craft([ended, { ...last, shape: [0, 2] }, { ...last, name: 'sessions.refused', shape: [1, 3] }]),
      /client 0/,
    ],
    [
      'a code that there is not',
      craft([ended, { ...last, shape: [0, 2] }], { 'sessions.codes': 'NO' }),
      /"NO"/,
    ],
  ])('%s', (_what, file, message) => {
    const decode = () => decodeSegment(file, 'some/file.safetensors');
    expect(decode).toThrow(expect.objectContaining({ code: 'BAD_CHECKPOINT' }));
    expect(decode).toThrow(message);
    expect(decode).toThrow(/^some\/file\.safetensors: /);
  });

  test('a header that claims to be large takes no memory', () => {
    const file = new Uint8Array(64);
    new DataView(file.buffer).setBigUint64(0, 2n ** 63n, true);
    expect(() => decodeSegment(file, 'x')).toThrow(/header of 9223372036854775808 bytes/);
  });
});

test('mutated bytes are refused or decode, and nothing else happens', () => {
  const next = random(7);
  const entries: DedupEntry[] = [
    [1, 5, 'ENDED'],
    [9, 4, [[3, 'LIMIT']]],
  ];
  const good = joined(
    encodeSegment(
      TABLES.map((each) => rows(each, [5n, 6n], next)),
      entries,
      OWNER,
    ),
  );
  const headerEnd = 8 + Number(new DataView(good.buffer).getBigUint64(0, true));
  const counts = { refused: 0, read: 0 };
  for (let run = 0; run < 20_000; run++) {
    let file = good.slice();
    for (let change = 0; change <= next() % 3; change++) {
      // Most changes hit the header: the rest are rows, of which all bits are valid.
      const at = next() % (next() % 8 === 0 ? file.length : headerEnd);
      const kind = next() % 5;
      if (kind === 0) file[at]! ^= 1 << (next() % 8);
      else if (kind === 1) file[at] = 0x30 + (next() % 10);
      else if (kind === 2) file = file.slice(0, at + 1);
      else if (kind === 3) file.copyWithin(at, next() % file.length, next() % file.length);
      else file = joined([file.subarray(0, at), file.subarray(next() % file.length)]);
    }
    try {
      const { tables } = decodeSegment(file, 'x');
      const sizes = tables.flatMap(({ keys, values, state }) => [keys, values, state].map(bytesOf));
      expect(sizes.reduce((sum, { byteLength }) => sum + byteLength, 0)).toBeLessThanOrEqual(file.length);
      counts.read++;
    } catch (error) {
      expect(error).toBeInstanceOf(KintsugiError);
      expect(error).toMatchObject({ code: 'BAD_CHECKPOINT' });
      counts.refused++;
    }
  }
  expect(counts.refused).toBeGreaterThan(5000);
  expect(counts.read).toBeGreaterThan(100);
});
