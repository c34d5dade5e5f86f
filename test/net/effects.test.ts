import { expect, it } from 'vitest';
import { each } from '../../src/net/effects.js';
import { EventLog } from '../roles/support.js';

it('an effect that fails is logged and does not take the others with it', () => {
  const log = new EventLog();
  const done: number[] = [];
  each([1, 2, 3], log, (effect) => {
    if (effect === 2) throw new Error('too large for a frame');
    done.push(effect);
  });
  expect(done).toEqual([1, 3]);
  expect(log.events).toMatchObject([
    { level: 'error', event: 'effect.failed', fields: { message: 'too large for a frame' } },
  ]);
});
