/**
 * The client machine (rule 5): numbers without gaps, everything resent in order until it is answered,
 * tickets.
 */
import { describe, expect, it } from 'vitest';
import type { ClientEffect } from '../../../src/core/client/client.js';
import { unpackItems } from '../../../src/protocol/items.js';
import type { Message } from '../../../src/protocol/messages.js';
import { ackMessage, pushesIn, rowsMessage } from '../packed.js';
import { Client, mapOf, POLICY, pushes } from './machine.js';

const pulls = (effects: ClientEffect[]): { to: number; id: number; members: number[] }[] =>
  effects.flatMap((effect) =>
    effect.kind === 'send' && effect.message.t === 'pull'
      ? [
          {
            to: effect.to,
            id: effect.message.id,
            members: unpackItems('pull', effect.message.items).map(([, m]) => m!),
          },
        ]
      : [],
  );
const EMPTY = new Uint8Array(0);
const released = (effects: ClientEffect[]): number[] =>
  effects.flatMap((effect) => (effect.kind === 'released' ? [effect.ticket] : []));
const done = (effects: ClientEffect[]): [number, string | undefined][] =>
  effects.flatMap((effect): [number, string | undefined][] =>
    effect.kind === 'done' ? [[effect.ticket, effect.error?.code]] : [],
  );

describe('pushes', () => {
  it('are numbered from 1 without gaps per shard, and fused into one message per node', () => {
    const client = new Client();
    expect(pushes(client.push(1, 0, 1, 2))).toEqual([
      [11, ['0:1', '1:1']],
      [12, ['2:1']],
    ]);
    expect(pushes(client.push(2, 2, 0))).toEqual([
      [12, ['2:2']],
      [11, ['0:2']],
    ]);
  });

  it('are done when every shard has acknowledged, once', () => {
    const client = new Client();
    client.push(1, 0, 2);
    expect(done(client.ack(0, 1))).toEqual([]);
    expect(done(client.ack(0, 1))).toEqual([]);
    expect(done(client.ack(2, 1))).toEqual([[1, undefined]]);
    expect([client.core.unacknowledged, done(client.ack(2, 1))]).toEqual([0, []]);
    expect(client.core.counts()).toEqual([
      { g: 0, m: 0, sent: 1, acknowledged: 1, refused: 0 },
      { g: 0, m: 2, sent: 1, acknowledged: 1, refused: 0 },
    ]);
  });

  it('of nothing are done at once', () => {
    expect(done(new Client().push(1))).toEqual([[1, undefined]]);
  });

  it('a refusal fails the ticket and leaves the others alone', () => {
    const client = new Client();
    client.push(1, 0, 2);
    client.push(2, 0);
    expect(done(client.message(ackMessage([[0, 0, 1, 'DIM_MISMATCH']])))).toEqual([[1, 'DIM_MISMATCH']]);
    expect(done(client.ack(0, 2))).toEqual([[2, undefined]]);
    expect(client.core.unacknowledged).toBe(1);
    expect(client.core.counts()[0]).toMatchObject({ acknowledged: 1, refused: 1 });
  });

  it('go to a new owner in order, unacknowledged ones only, and only those of its shards', () => {
    const client = new Client();
    for (const ticket of [1, 2, 3]) client.push(ticket, 0, 1);
    client.ack(0, 1);
    expect(pushes(client.message({ t: 'map', map: mapOf(2, [13, 11, 12], [2, 1, 1]) }))).toEqual([
      [13, ['0:2', '0:3']],
    ]);
  });

  it('go again when a shard only changed its generation, and not when nothing about it changed', () => {
    const client = new Client();
    client.push(1, 0, 2);
    expect(pushes(client.message({ t: 'map', map: mapOf(2, [11, 11, 12]) }))).toEqual([]);
    expect(pushes(client.message({ t: 'map', map: mapOf(3, [11, 11, 12], [1, 1, 3]) }))).toEqual([
      [12, ['2:1']],
    ]);
  });

  it('wait for an owner: an older map is ignored, a newer one with a home sends them', () => {
    const client = new Client([0, 11, 12]);
    expect(pushes(client.push(1, 0))).toEqual([]);
    expect(pushes(client.message({ t: 'map', map: mapOf(1, [13, 11, 12], [9, 1, 1]) }))).toEqual([]);
    expect(pushes(client.message({ t: 'map', map: mapOf(2, [13, 11, 12], [9, 1, 1]) }))).toEqual([
      [13, ['0:1']],
    ]);
  });

  it('go again to a node whose connection came back', () => {
    const client = new Client();
    client.push(1, 0, 2);
    client.push(2, 0);
    expect(pushes(client.step({ kind: 'peerUp', peer: 11 }))).toEqual([[11, ['0:1', '0:2']]]);
    expect(pushes(client.step({ kind: 'peerUp', peer: 13 }))).toEqual([]);
  });

  it('go again after a Gap that they fill', () => {
    const client = new Client();
    client.push(1, 0);
    client.push(2, 0);
    expect(pushes(client.message({ t: 'gap', g: 0, m: 0, expected: 1 }))).toEqual([[11, ['0:1', '0:2']]]);
  });

  it('fail with SESSION_EXPIRED when the shard asks for what was acknowledged long ago', () => {
    const client = new Client();
    client.push(1, 0);
    client.ack(0, 1);
    client.push(2, 0);
    // One such word may be an old one that comes late; a shard that has forgotten us says it again and again.
    const gap = () => client.message({ t: 'gap', g: 0, m: 0, expected: 1 });
    const first = gap();
    expect([done(first), pushes(first)]).toEqual([[], [[11, ['0:2']]]]);
    const answers = [gap(), gap(), gap(), gap(), gap(), gap(), gap(), gap()];
    expect(answers.flatMap(done)).toEqual([[2, 'SESSION_EXPIRED']]);
  });

  it('an old Gap that comes late does not end the session, however many came before an answer', () => {
    const client = new Client();
    client.push(1, 0);
    client.ack(0, 1);
    for (let cseq = 2; cseq < 20; cseq++) {
      client.push(cseq, 0);
      expect(done(client.message({ t: 'gap', g: 0, m: 0, expected: 1 }))).toEqual([]);
      expect(done(client.ack(0, cseq))).toEqual([[cseq, undefined]]);
    }
  });

  it('are repeated by the timer, with doubling pauses up to the limit, until an answer resets them', () => {
    const client = new Client();
    client.push(1, 0);
    client.push(2, 0);
    const sent: number[] = [];
    for (let now = 10; now <= 2000; now += 10) if (pushes(client.tick(now)).length > 0) sent.push(now);
    // 100 ms after the push; then 200, 400 and, at the limit, 400 ms.
    expect(sent.slice(0, 5)).toEqual([110, 320, 730, 1140, 1550]);
    client.ack(0, 1);
    expect(pushes(client.tick(2100))).toEqual([]);
    expect(pushes(client.tick(2110))).toEqual([[11, ['0:2']]]);
  });

  it('that nobody waits for any more are still delivered', () => {
    const client = new Client();
    client.push(1, 0);
    client.step({ kind: 'forget', ticket: 1 });
    expect(client.core.unacknowledged).toBe(1);
    expect(pushes(client.tick(200))).toEqual([[11, ['0:1']]]);
    expect([done(client.ack(0, 1)), client.core.unacknowledged]).toEqual([[], 0]);
    expect(client.core.counts()[0]).toMatchObject({ acknowledged: 1 });
  });

  it('to a lost shard fail their callers; their numbers are kept for a later map, not their bytes', () => {
    const client = new Client();
    client.push(1, 0, 2);
    client.push(2, 0);
    const lost = client.message({ t: 'lost', g: 0, m: 0, v: 1 });
    expect(done(lost)).toEqual([
      [1, 'UNRECOVERABLE'],
      [2, 'UNRECOVERABLE'],
    ]);
    // The other shard's part of the first one is still on its way.
    expect(released(lost)).toEqual([2]);
    expect(released(client.ack(2, 1))).toEqual([1]);
    const moved = client.message({ t: 'map', map: mapOf(2, [13, 11, 12], [2, 1, 1]) });
    const [resent] = moved;
    if (resent?.kind !== 'send' || resent.message.t !== 'push') throw new Error('nothing was sent again');
    expect([resent.to, pushesIn(resent.message), resent.parts]).toEqual([
      13,
      [
        [0, 0, 1, 0],
        [0, 0, 2, 0],
      ],
      [EMPTY],
    ]);
    // The first one had been applied before the loss, the second one had not.
    client.message(
      ackMessage([
        [0, 0, 1],
        [0, 0, 2, 'ABORTED'],
      ]),
    );
    expect(client.core.counts()[0]).toMatchObject({ sent: 2, acknowledged: 0, refused: 1 });
  });

  it('to a shard known to be lost fail at once without a number, until its group has a newer version', () => {
    const client = new Client();
    client.push(1, 0);
    client.message({ t: 'lost', g: 0, m: 0, v: 1 });
    const second = client.push(2, 0, 2);
    expect([pushes(second), done(second)]).toEqual([[[12, ['2:1']]], [[2, 'UNRECOVERABLE']]]);
    const third = client.push(3, 0);
    expect([pushes(third), done(third), released(third)]).toEqual([[], [[3, 'UNRECOVERABLE']], [3]]);
    expect(client.core.counts()[0]).toMatchObject({ sent: 1 });
    client.message({ t: 'map', map: mapOf(2, [11, 11, 12]) });
    expect(pushes(client.push(4, 0))).toEqual([[11, ['0:2']]]);
    // An owner's word about an older version is not news.
    expect(client.message({ t: 'lost', g: 0, m: 0, v: 1 })).toEqual([]);
  });

  it('of a session that has ended all fail, whatever their shard; nothing is sent again or kept', () => {
    const client = new Client();
    client.push(1, 0, 2);
    client.push(2, 1);
    const ended = client.message(ackMessage([[0, 0, 1, 'SESSION_EXPIRED']]));
    expect(done(ended)).toEqual([
      [1, 'SESSION_EXPIRED'],
      [2, 'SESSION_EXPIRED'],
    ]);
    expect(released(ended)).toEqual([1, 2]);
    expect([client.core.unacknowledged, client.tick(100_000)]).toEqual([0, []]);
    const later = client.push(3, 0);
    expect([pushes(later), done(later), released(later)]).toEqual([[], [[3, 'SESSION_EXPIRED']], [3]]);
    expect(pulls(client.pull(4, 0))).toHaveLength(1);
  });

  it('are kept until every shard has answered, also when nobody waits or one of them has refused', () => {
    const client = new Client();
    client.push(1, 0, 1);
    client.push(2, 0, 1);
    expect(released(client.step({ kind: 'forget', ticket: 1 }))).toEqual([]);
    expect(released(client.ack(0, 1))).toEqual([]);
    expect(released(client.ack(1, 1))).toEqual([1]);
    const refused = client.message(ackMessage([[0, 0, 2, 'DIM_MISMATCH']]));
    expect([done(refused), released(refused)]).toEqual([[[2, 'DIM_MISMATCH']], []]);
    expect(released(client.ack(1, 2))).toEqual([2]);
    expect(released(client.push(3))).toEqual([3]);
  });
});

describe('pulls', () => {
  it('are one message per node, done when all rows are there, whatever the order', () => {
    const client = new Client();
    const [near, far] = pulls(client.pull(1, 0, 1, 2));
    expect([near, far]).toMatchObject([
      { to: 11, members: [0, 1] },
      { to: 12, members: [2] },
    ]);
    const rows = (effects: ClientEffect[]) =>
      effects.flatMap((e) => (e.kind === 'rows' ? [[e.items[0], ...e.rows]] : []));
    expect(rows(client.message(...rowsMessage(far!.id, [[0, Uint8Array.of(72)]])))).toEqual([[2, 72]]);
    expect(rows(client.message(...rowsMessage(near!.id, [[1, Uint8Array.of(71)]])))).toEqual([[1, 71]]);
    const last = client.message(
      ...rowsMessage(near!.id, [
        [0, Uint8Array.of(70)],
        [1, Uint8Array.of(99)],
      ]),
    );
    expect([rows(last), done(last)]).toEqual([[[0, 70]], [[1, undefined]]]);
    expect(client.message(...rowsMessage(near!.id, [[0, Uint8Array.of(1)]]))).toEqual([]);
  });

  it('are asked again a little later at a node that is not (yet) the owner, that item alone', () => {
    const client = new Client();
    const [pull] = pulls(client.pull(1, 0, 1));
    client.message(...rowsMessage(pull!.id, [[0, Uint8Array.of(1)]]));
    const rejected = client.message({ t: 'reject', id: pull!.id, items: [[1, 'WRONG_OWNER']] });
    expect([done(rejected), pulls(rejected)]).toEqual([[], []]);
    expect(pulls(client.tick(20))).toEqual([]);
    const [again] = pulls(client.tick(21));
    expect(again).toMatchObject({ to: 11, members: [1] });
    expect(again!.id).not.toBe(pull!.id);
    expect(done(client.message(...rowsMessage(again!.id, [[0, Uint8Array.of(1)]])))).toEqual([
      [1, undefined],
    ]);
  });

  it('fail with the code of any other rejection', () => {
    const client = new Client();
    const [pull] = pulls(client.pull(1, 0, 1));
    expect(done(client.message({ t: 'reject', id: pull!.id, items: [[0, 'UNRECOVERABLE']] }))).toEqual([
      [1, 'UNRECOVERABLE'],
    ]);
    expect(client.tick(10_000)).toEqual([]);
  });

  it('go to the new owner at once when a shard moves, that item alone', () => {
    const client = new Client();
    client.pull(1, 0, 1, 2);
    const moved = pulls(client.message({ t: 'map', map: mapOf(2, [13, 11, 12], [2, 1, 1]) }));
    expect(moved).toMatchObject([{ to: 13, members: [0] }]);
  });

  it('are repeated by the timer and when a connection comes back', () => {
    const client = new Client();
    client.pull(1, 0, 2);
    expect(pulls(client.step({ kind: 'peerUp', peer: 12 }))).toMatchObject([{ to: 12, members: [2] }]);
    expect(pulls(client.tick(400))).toEqual([]);
    expect(pulls(client.tick(401)).map(({ to }) => to)).toEqual([11, 12]);
  });

  it('of nothing are done; forgotten ones are over', () => {
    const client = new Client();
    expect(done(client.pull(1))).toEqual([[1, undefined]]);
    const [pull] = pulls(client.pull(2, 0));
    client.step({ kind: 'forget', ticket: 2 });
    expect(client.message(...rowsMessage(pull!.id, [[0, Uint8Array.of(1)]]))).toEqual([]);
    expect(client.tick(10_000)).toEqual([]);
  });

  it('that are repeated for long are known by their newest ids', () => {
    const client = new Client();
    const ids: number[] = [];
    client.pull(1, 0, 1, 2);
    for (let i = 1; i <= 1000; i++) ids.push(...pulls(client.tick(i * 10_000)).map(({ id }) => id));
    expect(ids).toHaveLength(2000);
    expect(client.core.unanswered).toBeLessThan(100);
    expect(done(client.message(...rowsMessage(ids.at(-10)!, [[0, Uint8Array.of(1)]])))).toEqual([]);
    client.step({ kind: 'forget', ticket: 1 });
    expect(client.core.unanswered).toBe(0);
  });

  it('that a node rejects as not its own are known no longer', () => {
    const client = new Client();
    let [pull] = pulls(client.pull(1, 0, 1));
    for (let i = 1; i <= 100; i++) {
      const items: [number, 'WRONG_OWNER'][] = [
        [0, 'WRONG_OWNER'],
        [1, 'WRONG_OWNER'],
      ];
      client.message({ t: 'reject', id: pull!.id, items });
      expect(client.core.unanswered).toBe(0);
      [pull] = pulls(client.tick(i * POLICY.wrongOwnerMs * 2));
      expect(client.core.unanswered).toBe(1);
    }
  });

  it('announce the first answer of a shard after its owner changed, once', () => {
    const client = new Client();
    const [pull] = pulls(client.pull(1, 0, 2));
    expect(pull).toBeDefined();
    const moved = client.message({ t: 'map', map: mapOf(2, [13, 11, 12], [2, 1, 1]) });
    const [again] = pulls(moved);
    const events = (effects: ClientEffect[]) => effects.filter((e) => e.kind === 'event');
    const answer = client.message(...rowsMessage(again!.id, [[0, Uint8Array.of(1)]]));
    expect(events(answer)).toEqual([
      { kind: 'event', name: 'shard.served', fields: { group: 0, member: 0, gen: 2 } },
    ]);
    client.push(2, 0);
    expect(events(client.ack(0, 1))).toEqual([]);
  });
});

describe('queries', () => {
  const keys: Message & { t: 'keys' } = {
    t: 'keys',
    g: 0,
    m: 2,
    epoch: 0,
    id: 0,
    table: 1,
    order: 'slot',
    from: 0,
    max: 10,
  };

  it('carry the epoch, are repeated under a new id, and any of their answers settles them', () => {
    const client = new Client();
    const sends = (effects: ClientEffect[]) =>
      effects.flatMap((e) => (e.kind === 'send' ? [{ to: e.to, message: e.message as typeof keys }] : []));
    const query = { to: { g: 0, m: 2 }, message: keys };
    const [first] = sends(client.step({ kind: 'query', ticket: 5, query }));
    expect(first).toMatchObject({ to: 12, message: { t: 'keys', epoch: 1, from: 0, max: 10 } });
    client.message({ t: 'reject', id: first!.message.id, items: [[0, 'WRONG_OWNER']] });
    const [second] = sends(client.tick(21));
    expect(second!.message.id).not.toBe(first!.message.id);
    const effects = client.message({ t: 'keysPage', id: first!.message.id, next: -1 }, [Uint8Array.of(7)]);
    expect(effects).toMatchObject([
      { kind: 'answer', ticket: 5, message: { t: 'keysPage' } },
      { kind: 'done', ticket: 5 },
    ]);
    expect(client.message({ t: 'keysPage', id: second!.message.id, next: -1 })).toEqual([]);
  });
});
