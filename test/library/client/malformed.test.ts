// The client refuses, before it is sent, what a receiver would take for a broken peer: a question is
// repeated until it is answered, and every copy would close the connection of all other questions.
import { expect, it } from 'vitest';
import { MAX_TEXT } from '../../../src/common/options.js';
import type { Client } from '../../../src/library/client/client.js';
import { internalsOf } from '../../../src/library/client/connected.js';
import { setSavePlan } from '../../../src/library/tools/checkpoints.js';
import { drain } from '../../../src/library/tools/scaling.js';
import { text } from '../../../src/protocol/checks.js';
import { client, cluster, rejection } from '../../roles/support.js';

/** One character more than a text in a message may have. */
const LONG = 'x'.repeat(MAX_TEXT + 1);

async function connected(): Promise<Client> {
  return client((await cluster({ code: '1+1' })).address);
}

it('texts of arguments may be as long as those in messages', () => {
  expect([text(LONG), text(LONG.slice(1))]).toEqual([false, true]);
});

it('a question that the scheduler would not understand', async () => {
  const job = await connected();
  const { session } = internalsOf(job);
  const asked = session.ask((id) => ({ t: 'saveNow', id, name: 5 as never }));
  const { code, message } = await rejection(asked);
  expect([code, message]).toEqual(['BAD_ARGUMENT', expect.stringContaining('"name"')]);
  const plan = { url: `/${LONG}`, everyMs: 0, keep: 1, rate: 0, kind: 'full job' } as const;
  const planned = await rejection(setSavePlan(job, 'checkpoint', plan));
  expect([planned.code, planned.message]).toEqual(['BAD_ARGUMENT', expect.stringContaining('"plan"')]);
  // Other questions go on over the same connection.
  expect((await job.status()).nodes).toHaveLength(2);
});

it('a question that a PS would not understand', async () => {
  const job = await connected();
  const [node] = (await job.status()).nodes;
  const message = { t: 'observe', id: 0, shards: 'yes' as never } as const;
  const asked = internalsOf(job).session.query({ to: { node: node!.id }, message }, () => {});
  const { code, message: text } = await rejection(asked);
  expect([code, text]).toEqual(['BAD_ARGUMENT', expect.stringContaining('"shards"')]);
  expect((await job.observe({ shards: true })).missing).toEqual([]);
});

it('arguments of restore, drain and observe', async () => {
  const job = await connected();
  const onlyLost = true as const;
  const wrong: [string, () => Promise<unknown>][] = [
    ...[Number.NaN, -1, 1.5, '1', null].map((number): [string, () => Promise<unknown>] => [
      'number',
      () => job.restore('/tmp/nope', { onlyLost, number: number as never }),
    ]),
    ...[5, '', LONG, undefined].map((place): [string, () => Promise<unknown>] => [
      'place',
      () => job.restore(place as never, { onlyLost }),
    ]),
    ['onlyLost', () => job.restore('/tmp/nope', undefined as never)],
    ['options', () => job.restore('/tmp/nope', null as never)],
    ['onlyLost', () => job.restore('/tmp/nope', {} as never)],
    ['nombre', () => job.restore('/tmp/nope', { onlyLost, nombre: 1 } as never)],
    ['signal', () => job.restore('/tmp/nope', { onlyLost, signal: 'x' as never })],
    ['node', () => drain(job, LONG)],
    ['shards', () => job.observe({ shards: 'yes' as never })],
  ];
  const found = [];
  for (const [name, work] of wrong) {
    const { code, message } = await rejection(work());
    found.push([name, code, message.includes(name)]);
  }
  expect(found).toEqual(wrong.map(([name]) => [name, 'BAD_ARGUMENT', true]));
  // A number that is none of a checkpoint's, and a place without one, are answered by the scheduler.
  expect((await rejection(job.restore('/tmp/nope', { onlyLost }))).code).toBe('CHECKPOINT_MISSING');
});
