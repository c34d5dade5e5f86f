/**
 * A sink and its positions. Rules 12 to 18: promises, roll-back, and messages that are taken only at the
 * position, in the generation and in the version that they name.
 */
import { afterEach, describe, expect, it } from 'vitest';
import { ContentBytes } from '../../../src/core/shared/content-bytes.js';
import { DeltaBytes } from '../../../src/core/shared/delta-bytes.js';
import { NONE_GONE } from '../../../src/core/shared/gone-tables.js';
import { Meter } from '../../../src/core/shared/meter.js';
import { Outbox } from '../../../src/core/shared/outbox.js';
import { Pace } from '../../../src/core/shared/pace.js';
import { DEFAULT_POLICY } from '../../../src/core/shared/policy.js';
import { RateLimit } from '../../../src/core/shared/rate.js';
import { Sink } from '../../../src/core/sink/sink.js';
import type { NativeShard, NativeSink } from '../../../src/engine/native.js';
import { CAPABILITIES, type Group } from '../../../src/protocol/map.js';
import type { Message, MessageOf } from '../../../src/protocol/messages.js';
import { ADDING, DIM, native, section } from '../harness.js';

const OWNERS = [11, 12];
const SID = 5;
const TABLE = { id: 1, dim: DIM, optimizer: ADDING, initializer: { kind: 'zeros' as const }, seed: 0 };
const word = (array: Uint32Array): Uint8Array =>
  new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
const toClose: (NativeShard | NativeSink)[] = [];
afterEach(() => {
  for (const object of toClose.splice(0)) object.close();
});

/** One parity of two members, whose owners are played by the test over real shards. */
class Stage {
  readonly out = new Outbox();
  readonly pace = new Pace();
  readonly moveRate = new RateLimit(0, this.pace, 'parity');
  readonly host = {
    out: this.out,
    policy: DEFAULT_POLICY,
    pace: this.pace,
    deltaBytes: new DeltaBytes(1 << 30),
    contentBytes: new ContentBytes(1 << 30),
    gone: NONE_GONE,
    meter: new Meter(),
    moveRate: this.moveRate,
    now: 1000,
    // Bytes that are discarded too early turn to garbage.
    discard: (bytes: Uint8Array) => void bytes.fill(0xa5),
  };
  readonly memory = native.createMemory(0);
  readonly parity: NativeSink;
  readonly sink: Sink;
  readonly shards: NativeShard[] = [];
  readonly group: Group;

  constructor(init: boolean, gen = 1) {
    const entry = { sid: SID, kind: 'P' as const, index: 0, node: 20, inc: 1, init, ...CAPABILITIES.P };
    const data = OWNERS.map((node) => ({ node, inc: 1, gen, init: gen === 1 }));
    this.group = { id: 0, pool: 0, version: 4, data, sinks: [entry] };
    this.parity = native.createSink(this.memory, 2, 1, 0, init);
    this.sink = new Sink(this.group, entry, this.parity, this.host);
    for (const m of [0, 1]) {
      const shard = native.createShard(this.memory, m, 2, 1);
      shard.addTable(TABLE);
      this.shards.push(shard);
    }
    toClose.push(this.parity, ...this.shards);
  }

  sent(): { to: number; message: Message; parts: readonly Uint8Array[] }[] {
    return this.out.take().filter((effect) => effect.kind === 'send');
  }

  only<T extends Message['t']>(t: T): MessageOf<T>[] {
    return this.sent()
      .map(({ message }) => message)
      .filter((message): message is MessageOf<T> => message.t === t);
  }

  /** Sends the next delta of a member: a push of `value` to `key`. */
  delta(m: number, key: number, value: number): Uint8Array {
    expect(this.shards[m]!.push(section([{ keys: [key], value }], true))).toBe(0);
    return this.shards[m]!.flush();
  }

  apply(m: number, seq: number, delta: Uint8Array, gen = 1, committed = 0): MessageOf<'applied'>[] {
    const message: MessageOf<'delta'> = {
      t: 'delta',
      g: 0,
      m,
      sid: SID,
      gen,
      seq,
      ids: [[90 + m, seq]],
      committed,
    };
    this.sink.onDelta(message, delta, OWNERS[m]!);
    return this.only('applied');
  }

  open(gen: number, m = 0): MessageOf<'openAck'>[] {
    this.sink.onOpen({ t: 'open', g: 0, m, sid: SID, gen, v: 4, attempt: 1 }, OWNERS[m]!);
    return this.only('openAck');
  }

  begin(gen: number, base: number, fields: Partial<MessageOf<'start'>> = {}): MessageOf<'startAck'>[] {
    this.sink.onStart(
      { t: 'start', g: 0, m: 0, sid: SID, gen, v: 4, base, dedup: [], extents: [], ...fields },
      OWNERS[0]!,
    );
    return this.only('startAck');
  }

  content(m: number, seq: number, blocks: Uint32Array, gen = 1): void {
    const { present, bytes } = this.shards[m]!.read(blocks);
    this.sink.onContent({ t: 'content', g: 0, m, sid: SID, gen, seq }, word(present), bytes);
  }

  /** The parity equation holds on every block: k = 2, r = 1 is a plain XOR. */
  mismatches(): number {
    const blocks = this.parity.allBlocks(0, 1000);
    expect(blocks.length).toBeGreaterThan(0);
    this.parity.dropAccumulators();
    this.parity.check(blocks);
    for (const m of [0, 1]) this.parity.content(m, blocks, this.shards[m]!.read(blocks).bytes);
    const done = this.parity.takeCompleted();
    expect(done.reduce((sum, part) => sum + part.blocks.length, 0)).toBe(blocks.length);
    return done.reduce((sum, part) => sum + part.nonZero, 0);
  }
}

describe('rule 12: a promise', () => {
  it('is answered with the position, and then older generations are ignored', () => {
    const stage = new Stage(true);
    stage.apply(0, 1, stage.delta(0, 1, 1));
    expect(stage.open(7)).toMatchObject([{ gen: 7, none: false, sgen: 1, applied: 1 }]);
    expect(stage.open(6)).toEqual([]);
    expect(stage.begin(6, 1)).toEqual([]);
    // The old owner's stream is fenced, although no new one has started.
    expect(stage.apply(0, 2, stage.delta(0, 2, 1))).toEqual([]);
  });

  it('says none when there is no stream of the member', () => {
    expect(new Stage(false).open(7)).toMatchObject([{ none: true, sgen: 0, applied: 0 }]);
  });

  it('drops recoveries when the fence rises, not when it is repeated', () => {
    const stage = new Stage(true);
    stage.apply(0, 1, stage.delta(0, 1, 1));
    stage.open(7);
    stage.parity.check(stage.parity.allBlocks(0, 10));
    stage.open(7);
    expect(stage.parity.accumulators).toBeGreaterThan(0);
    stage.open(8);
    expect(stage.parity.accumulators).toBe(0);
  });
});

describe('rule 13: a start', () => {
  it('begins at the base with dedup and extents of the owner, nothing included', () => {
    const stage = new Stage(false);
    stage.delta(0, 1, 1);
    const ack = stage.begin(7, 12, { dedup: [[90, 33, []]], extents: stage.shards[0]!.extents() });
    expect(ack).toMatchObject([{ applied: 12, dedup: [[90, 33, []]] }]);
    expect([stage.sink.complete, stage.parity.excludedBlocks(0)]).toEqual([false, 2]);
  });

  it('takes back exactly the deltas above the base and folds the rest into dedup', () => {
    const stage = new Stage(true);
    stage.apply(1, 1, stage.delta(1, 1, 9));
    const twin = native.createShard(stage.memory, 0, 2, 1);
    toClose.push(twin);
    twin.addTable(TABLE);
    const pushes: [key: number, value: number][] = [
      [1, 1],
      [2, 2],
      [1, 4],
      [3, 30],
      [2, 50],
    ];
    for (const [i, [key, value]] of pushes.entries()) {
      stage.apply(0, i + 1, stage.delta(0, key, value));
      if (i < 3) twin.push(section([{ keys: [key], value }], true));
    }
    twin.flush();
    stage.open(7);
    expect(stage.begin(7, 3)).toMatchObject([{ gen: 7, applied: 3, dedup: [[90, 3, []]] }]);
    stage.shards[0] = twin;
    expect(stage.mismatches()).toBe(0);
  });

  it('repeated in the same generation only answers again', () => {
    const stage = new Stage(true);
    stage.apply(0, 1, stage.delta(0, 1, 1));
    stage.begin(7, 1);
    stage.apply(0, 2, stage.delta(0, 2, 2), 7);
    expect(stage.begin(7, 1)).toMatchObject([{ applied: 2, dedup: [[90, 2, []]] }]);
    expect(stage.mismatches()).toBe(0);
  });

  it('at a base that is committed or not there yet is refused, and changes nothing', () => {
    const stage = new Stage(true);
    stage.apply(0, 1, stage.delta(0, 1, 1));
    stage.apply(0, 2, stage.delta(0, 2, 1), 1, 1);
    expect(() => stage.begin(7, 0)).toThrow(/a start at 0, which is not in 1..2/);
    expect(() => stage.begin(8, 3)).toThrow(/a start at 3, which is not in 1..2/);
    expect(stage.apply(0, 3, stage.delta(0, 3, 1), 1, 1)).toMatchObject([{ applied: 3 }]);
  });
});

describe('rule 14: deltas', () => {
  it('are taken once and in order; what was applied is acknowledged again', () => {
    const stage = new Stage(true);
    const [one, two, three] = [1, 2, 3].map((key) => stage.delta(0, key, key)) as [
      Uint8Array,
      Uint8Array,
      Uint8Array,
    ];
    expect(stage.apply(0, 2, two)).toEqual([]);
    expect(stage.apply(0, 1, one)).toMatchObject([{ applied: 1 }]);
    expect(stage.apply(0, 1, one)).toMatchObject([{ applied: 1 }]);
    expect(stage.apply(0, 3, three)).toEqual([]);
    expect(stage.apply(0, 2, two)).toMatchObject([{ applied: 2 }]);
    expect(stage.apply(0, 3, three)).toMatchObject([{ applied: 3 }]);
    expect(stage.apply(0, 1, one)).toMatchObject([{ applied: 3 }]);
    expect(stage.mismatches()).toBe(0);
  });

  it('of another generation than the stream are ignored', () => {
    const stage = new Stage(true);
    const delta = stage.delta(0, 1, 1);
    for (const gen of [0, 2]) expect(stage.apply(0, 1, delta, gen)).toEqual([]);
    expect(stage.apply(0, 1, delta, 1)).toMatchObject([{ applied: 1 }]);
  });

  it('are trimmed up to the committed position, so that a later base may not undo them', () => {
    const stage = new Stage(true);
    for (const seq of [1, 2, 3]) stage.apply(0, seq, stage.delta(0, seq, 1), 1, seq - 1);
    expect(() => stage.begin(7, 1)).toThrow(/which is not in 2..3/);
    const ack = stage.begin(8, 2);
    expect(ack).toMatchObject([{ applied: 2, dedup: [[90, 2, []]] }]);
  });

  it('make a member pending again that lacked the block, and ask it again', () => {
    const stage = new Stage(true);
    stage.apply(0, 1, stage.delta(0, 1, 1));
    stage.apply(1, 1, stage.delta(1, 1, 1));
    const blocks = Uint32Array.of(3, 0);
    const claim = { g: 0, sid: SID, gen: 1, seq: 1, v: 4 };
    stage.sink.onRecover({ t: 'recover', ...claim, m: 0, extents: [] }, word(blocks));
    expect(stage.sent().map(({ to, message }) => [to, message.t])).toEqual([[12, 'want']]);
    // Member 1 has not answered yet. Member 0, which lacked the block, writes to it: it has the block by now.
    stage.sink.onDelta(
      { t: 'delta', g: 0, m: 0, sid: SID, gen: 1, seq: 2, ids: [], committed: 0 },
      stage.delta(0, 1, 2),
      11,
    );
    expect(stage.sent().map(({ to, message }) => [to, message.t])).toEqual([
      [11, 'want'],
      [11, 'applied'],
    ]);
  });
});

describe('rules 15 and 16: content and lacking count only at the position', () => {
  const lost = (): Stage => {
    const stage = new Stage(true);
    for (const m of [0, 1]) stage.apply(m, 1, stage.delta(m, 1, 1 + m));
    stage.sink.onRecover(
      { t: 'recover', g: 0, m: 0, sid: SID, gen: 1, seq: 1, v: 4, extents: [] },
      word(Uint32Array.of(2, 0, 3, 0)),
    );
    stage.out.take();
    return stage;
  };

  it('content of another position or generation is ignored; the exact one completes the equation', () => {
    const stage = lost();
    const blocks = Uint32Array.of(2, 0, 3, 0);
    for (const [seq, gen] of [
      [0, 1],
      [2, 1],
      [1, 2],
    ] as const) {
      stage.content(1, seq, blocks, gen);
      expect(stage.sent()).toEqual([]);
    }
    stage.content(1, 1, blocks);
    const [equation, ...rest] = stage.sent();
    expect(rest).toEqual([]);
    expect(equation).toMatchObject({
      to: 11,
      message: { t: 'equation', m: 0, gen: 1, v: 4, index: 0, lacking: [[0, 1]], ok: true },
    });
    // The coefficients of this parity are ones, so the equation is the lost content itself.
    expect(Buffer.from(equation!.parts[1]!)).toEqual(Buffer.from(stage.shards[0]!.read(blocks).bytes));
  });

  it('a word "lacking" of another version or position is ignored', () => {
    const stage = lost();
    const blocks = word(Uint32Array.of(2, 0, 3, 0));
    const stream = { t: 'lacking' as const, g: 0, m: 1, sid: SID, gen: 1 };
    stage.sink.onLacking({ ...stream, seq: 1, v: 3 }, blocks);
    stage.sink.onLacking({ ...stream, seq: 0, v: 4 }, blocks);
    expect(stage.sent()).toEqual([]);
    stage.sink.onLacking({ ...stream, seq: 1, v: 4 }, blocks);
    expect(stage.sent()).toMatchObject([
      {
        message: {
          t: 'equation',
          lacking: [
            [0, 1],
            [1, 1],
          ],
        },
      },
    ]);
  });

  it('rule 23: a claim of another version, position or generation starts nothing', () => {
    const stage = lost();
    stage.parity.dropAccumulators();
    const claim = { t: 'recover' as const, g: 0, m: 0, sid: SID, gen: 1, seq: 1, v: 4, extents: [] };
    for (const wrong of [{ v: 3 }, { seq: 0 }, { seq: 2 }, { gen: 2 }]) {
      stage.sink.onRecover({ ...claim, ...wrong }, word(Uint32Array.of(3, 0)));
      expect([stage.sent(), stage.parity.accumulators]).toEqual([[], 0]);
    }
    stage.open(7);
    stage.sink.onRecover(claim, word(Uint32Array.of(3, 0)));
    expect(stage.parity.accumulators).toBe(0);
  });

  it('rule 17: a change of the group drops what is under way', () => {
    const stage = lost();
    expect(stage.parity.accumulators).toBe(2);
    stage.sink.onGroup({ ...stage.group, version: 5 });
    expect(stage.parity.accumulators).toBe(0);
  });

  it('includes a block once, and is complete when every member has no excluded block', () => {
    const stage = new Stage(false);
    for (const m of [0, 1]) stage.delta(m, 1, 1 + m);
    for (const m of [0, 1]) {
      const message = {
        g: 0,
        m,
        sid: SID,
        gen: 1,
        v: 4,
        base: 1,
        dedup: [],
        extents: stage.shards[m]!.extents(),
      };
      stage.sink.onStart({ t: 'start', ...message }, OWNERS[m]!);
    }
    const wanted = stage.sent().filter(({ message }) => message.t === 'want');
    expect(wanted.map(({ to }) => to)).toEqual(OWNERS);
    const blocks = Uint32Array.of(2, 0, 3, 0);
    stage.content(0, 1, blocks);
    stage.content(0, 1, blocks);
    expect(stage.sink.complete).toBe(false);
    stage.content(1, 1, blocks);
    expect([stage.sink.complete, stage.mismatches()]).toEqual([true, 0]);
  });
});

describe('a check of the parity equation', () => {
  it('starts again when a promise or a start drops what is under way, and is answered', () => {
    const stage = new Stage(true);
    const blocks = Uint32Array.of(2, 0, 3, 0);
    for (const m of [0, 1]) stage.apply(m, 1, stage.delta(m, 1, 1 + m));
    stage.sink.onCheck({ t: 'check', epoch: 4, id: 77, g: 0, sid: SID }, 99);
    stage.content(0, 1, blocks);
    expect(stage.parity.accumulators).toBe(2);
    stage.open(7);
    stage.begin(7, 1);
    stage.out.take();
    stage.content(0, 1, blocks, 7);
    stage.content(1, 1, blocks);
    expect(stage.sent()).toMatchObject([
      {
        to: 99,
        message: { t: 'checked', id: 77, checked: 2, mismatched: 0, unprotected: 0, unknown: false },
      },
    ]);
  });

  it('finds a block that does not fit', () => {
    const stage = new Stage(true);
    for (const m of [0, 1]) stage.apply(m, 1, stage.delta(m, 1, 1 + m));
    // The bytes are changed without a delta.
    stage.delta(1, 1, 100);
    stage.sink.onCheck({ t: 'check', epoch: 4, id: 77, g: 0, sid: SID }, 99);
    for (const m of [0, 1]) stage.content(m, 1, Uint32Array.of(2, 0, 3, 0));
    expect(stage.only('checked')).toMatchObject([{ id: 77, checked: 2, mismatched: 1 }]);
  });
});
