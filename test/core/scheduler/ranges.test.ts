/**
 * Pushes for another client: the client machine keeps their numbers apart, and a node answers whoever pushed
 * last.
 */
import { describe, expect, it } from 'vitest';
import {
  type ClientEffect,
  type ClientInput,
  DEFAULT_CLIENT_POLICY,
  listSections,
  PsClientCore,
} from '../../../src/core/client/client.js';
import { Replies } from '../../../src/core/node/replies.js';
import { Meter } from '../../../src/core/shared/meter.js';
import { Outbox } from '../../../src/core/shared/outbox.js';
import type { Message } from '../../../src/protocol/messages.js';
import { ackMessage, pushesIn } from '../packed.js';

const RANGE = 900;
const map = {
  ...{ epoch: 1, job: 'test', pools: [], nodes: [], tables: [] },
  groups: [
    {
      ...{ id: 0, pool: 0, version: 1, sinks: [] },
      data: [0, 1].map(() => ({ node: 11, inc: 1, gen: 1, init: true })),
    },
  ],
};
const items = (...members: number[]) => members.map((m) => ({ g: 0, m, section: Uint8Array.of(1) }));

class Worker {
  private readonly core = new PsClientCore(DEFAULT_CLIENT_POLICY);
  private ticket = 1;

  constructor() {
    this.message({ t: 'map', map });
  }

  step(input: ClientInput): ClientEffect[] {
    return this.core.step(input);
  }

  message(message: Message): ClientEffect[] {
    return this.step({ kind: 'message', from: message.t === 'map' ? 0 : 11, message, parts: [] });
  }

  push(
    client: number | undefined,
    ...members: number[]
  ): { ticket: number; sent: string[]; effects: ClientEffect[] } {
    const ticket = this.ticket++;
    const whose = client === undefined ? {} : { client };
    const effects = this.step({ kind: 'push', ticket, lists: listSections(items(...members)), ...whose });
    return { ticket, sent: sentOf(effects), effects };
  }

  counts(client?: number): [m: number, sent: number, acknowledged: number][] {
    return this.core.counts(client).map(({ m, sent, acknowledged }) => [m, sent, acknowledged]);
  }
}

/** "client member:number" of every push that goes out. */
const sentOf = (effects: ClientEffect[]): string[] =>
  effects.flatMap((effect) => {
    if (effect.kind !== 'send' || effect.message.t !== 'push') return [];
    const { client } = effect.message;
    return pushesIn(effect.message).map(([, m, cseq]) => `${client ?? 'own'} ${m}:${cseq}`);
  });
const done = (effects: ClientEffect[]): [number, string | undefined][] =>
  effects.flatMap((effect): [number, string | undefined][] =>
    effect.kind === 'done' ? [[effect.ticket, effect.error?.code]] : [],
  );
const released = (effects: ClientEffect[]): number[] =>
  effects.flatMap((effect) => (effect.kind === 'released' ? [effect.ticket] : []));

describe('pushes for another client', () => {
  it('have numbers of their own, go in messages of their own, and are acknowledged apart', () => {
    const worker = new Worker();
    expect(worker.push(undefined, 0).sent).toEqual(['own 0:1']);
    const first = worker.push(RANGE, 0, 1);
    expect(first.sent).toEqual([`${RANGE} 0:1`, `${RANGE} 1:1`]);
    expect(worker.push(RANGE, 0).sent).toEqual([`${RANGE} 0:2`]);
    const acked: [number, number, number][] = [
      [0, 0, 1],
      [0, 1, 1],
    ];
    expect(done(worker.message(ackMessage(acked, RANGE)))).toEqual([[first.ticket, undefined]]);
    expect(worker.counts()).toEqual([[0, 1, 0]]);
    expect(worker.counts(RANGE)).toEqual([
      [0, 2, 1],
      [1, 1, 1],
    ]);
  });

  it('go on behind the numbers that somebody else has used', () => {
    const worker = new Worker();
    worker.step({ kind: 'skip', client: RANGE, items: [{ g: 0, m: 0, count: 3 }] });
    expect(worker.push(RANGE, 0, 1).sent).toEqual([`${RANGE} 0:4`, `${RANGE} 1:1`]);
  });

  it('whose session has ended fail, and nothing else does', () => {
    const worker = new Worker();
    const own = worker.push(undefined, 0);
    const [first, second] = [worker.push(RANGE, 0), worker.push(RANGE, 1)];
    const ended = worker.message(ackMessage([[0, 0, 1, 'SESSION_EXPIRED']], RANGE));
    expect(done(ended)).toEqual([
      [first.ticket, 'SESSION_EXPIRED'],
      [second.ticket, 'SESSION_EXPIRED'],
    ]);
    expect(released(ended)).toEqual([first.ticket, second.ticket]);
    expect(done(worker.push(RANGE, 0).effects)).toEqual([[4, 'SESSION_EXPIRED']]);
    expect(done(worker.message(ackMessage([[0, 0, 1]])))).toEqual([[own.ticket, undefined]]);
    expect(worker.push(901, 0).sent).toEqual(['901 0:1']);
  });

  it('to a lost shard take no number with them: whoever goes on makes the same pushes', () => {
    const worker = new Worker();
    const [first, second] = [worker.push(RANGE, 0), worker.push(RANGE, 1)];
    const lost = worker.message({ t: 'lost', g: 0, m: 0, client: RANGE, v: 1 });
    expect(done(lost)).toEqual([
      [first.ticket, 'UNRECOVERABLE'],
      [second.ticket, 'UNRECOVERABLE'],
    ]);
    // Not even when a newer map brings the shard back, nor when the connection does.
    const back = { ...map, epoch: 2, groups: map.groups.map((group) => ({ ...group, version: 2 })) };
    back.groups[0]!.data = back.groups[0]!.data.map((entry) => ({ ...entry, gen: 2 }));
    expect(sentOf(worker.message({ t: 'map', map: back }))).toEqual([]);
    expect(sentOf(worker.step({ kind: 'peerUp', peer: 11 }))).toEqual([]);
    expect(worker.push(RANGE, 0).sent).toEqual([]);
    worker.step({ kind: 'leave', client: RANGE });
    expect(worker.push(RANGE, 0).sent).toEqual([`${RANGE} 0:1`]);
  });

  it('that are left are given up, and start anew', () => {
    const worker = new Worker();
    const { ticket } = worker.push(RANGE, 0);
    const left = worker.step({ kind: 'leave', client: RANGE });
    expect([done(left), released(left)]).toEqual([[[ticket, 'ABORTED']], [ticket]]);
    expect(sentOf(worker.step({ kind: 'peerUp', peer: 11 }))).toEqual([]);
    expect(worker.counts(RANGE)).toEqual([]);
    expect(worker.push(RANGE, 0).sent).toEqual([`${RANGE} 0:1`]);
  });
});

describe('replies of a node', () => {
  const sent = (out: Outbox) =>
    out.take().map((effect) => (effect.kind === 'send' ? [effect.to, effect.message] : effect));

  it('about another client go to whoever pushed for it last, and say whom they are about', () => {
    const out = new Outbox();
    const replies = new Replies(out, new Meter(), 1000);
    replies.route(RANGE, 5);
    replies.route(RANGE, 6);
    replies.acknowledge(RANGE, 0, 1, 2);
    replies.acknowledge(7, 0, 1, 3);
    replies.send();
    replies.tell(RANGE, { t: 'gap', g: 0, m: 1, expected: 4 });
    expect(sent(out)).toEqual([
      [6, ackMessage([[0, 1, 2]], RANGE)],
      [7, ackMessage([[0, 1, 3]])],
      [6, { t: 'gap', client: RANGE, g: 0, m: 1, expected: 4 }],
    ]);
  });

  it('remember a bounded number of clients, the newest ones', () => {
    const out = new Outbox();
    const replies = new Replies(out, new Meter(), 1000);
    for (let client = 1; client <= 5000; client++) replies.route(client, 9999);
    replies.tell(1, { t: 'lost', g: 0, m: 0, v: 1 });
    replies.tell(5000, { t: 'lost', g: 0, m: 0, v: 1 });
    expect(sent(out).map((each) => (Array.isArray(each) ? each[0] : each))).toEqual([1, 9999]);
  });
});
