/**
 * Requests over a connection that is slower than what goes over it: overdue ones are not repeated while they,
 * or their answers, may still be on the way.
 */
import { expect, it } from 'vitest';
import type { ClientEffect } from '../../../src/core/client/client.js';
import type { Busy } from '../../../src/core/client/state.js';
import type { Message } from '../../../src/protocol/messages.js';
import { Client, POLICY, pushes } from './machine.js';

const sending: Busy = { sending: new Set([11]), receiving: new Set() };
const receiving: Busy = { sending: new Set(), receiving: new Set([11]) };

/** Nodes that are asked. */
const asked = (effects: ClientEffect[], kind: Message['t']): number[] =>
  effects.flatMap((effect) => (effect.kind === 'send' && effect.message.t === kind ? [effect.to] : []));

it('a push waits while bytes to its node wait to be sent, and others do not', () => {
  const client = new Client();
  client.push(1, 0, 2);
  expect(pushes(client.tick(110, sending))).toEqual([[12, ['2:1']]]);
  client.ack(2, 1);
  expect(pushes(client.tick(600, sending))).toEqual([]);
  expect(pushes(client.tick(610, receiving))).toEqual([[11, ['0:1']]]);
});

it('a push that may have been dropped is repeated in the end', () => {
  const client = new Client();
  client.push(1, 0);
  const late = POLICY.retryMs + POLICY.maxBusyMs;
  expect(pushes(client.tick(late, sending))).toEqual([]);
  expect(pushes(client.tick(late + 1, sending))).toEqual([[11, ['0:1']]]);
});

it.each([
  ['to be sent', sending],
  ['to come in', receiving],
])('a pull waits while there is something %s, and is repeated in the end', (_, busy) => {
  const client = new Client();
  client.pull(1, 0, 2);
  expect(asked(client.tick(401, busy), 'pull')).toEqual([12]);
  const late = 4 * POLICY.retryMs + POLICY.maxBusyMs;
  expect(asked(client.tick(late, busy), 'pull')).not.toContain(11);
  expect(asked(client.tick(late + 1, busy), 'pull')).toContain(11);
});

it('a pull is asked again at once when nothing comes in any more', () => {
  const client = new Client();
  client.pull(1, 0);
  expect(asked(client.tick(900, receiving), 'pull')).toEqual([]);
  expect(asked(client.tick(920), 'pull')).toEqual([11]);
});

it('a pull that was rejected has nothing on the way', () => {
  const client = new Client();
  const [effect] = client.pull(1, 0);
  const { id } = (effect as { message: { id: number } }).message;
  client.message({ t: 'reject', id, items: [[0, 'WRONG_OWNER']] });
  expect(asked(client.tick(21, receiving), 'pull')).toEqual([11]);
  expect(asked(client.tick(422, receiving), 'pull')).toEqual([]);
});

it('a question waits likewise', () => {
  const client = new Client();
  const message = { t: 'shardStats' as const, g: 0, m: 0, epoch: 0, id: 0, table: 1 };
  const ask = (now: number, busy?: Busy) => asked(client.tick(now, busy), 'shardStats');
  const [first] = client.step({ kind: 'query', ticket: 5, query: { to: { node: 11 }, message } });
  expect([ask(401, receiving), ask(421)]).toEqual([[], [11]]);
  client.message({
    t: 'reject',
    id: (first as { message: { id: number } }).message.id,
    items: [[0, 'WRONG_OWNER']],
  });
  expect([ask(442, receiving), ask(900, receiving), ask(1900, receiving)]).toEqual([[11], [], [11]]);
});
