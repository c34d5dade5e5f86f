/** Kinds of messages that the runtime of a scheduler takes itself: the core has nothing to do with them. */
import { expect, it } from 'vitest';
import type { Message } from '../../../src/protocol/messages.js';
import { SAMPLES } from '../../fuzz/frames.js';
import { BareScheduler } from './bare.js';

it.each(['join', 'attach', 'observe', 'events', 'restoreLost'])('%s is no message of the core', (t) => {
  const bare = new BareScheduler(2, 1);
  const { id } = bare.attach();
  const message = (SAMPLES as readonly Message[]).find((sample) => sample.t === t)!;
  expect(() => bare.hear(id, message)).toThrow(
    expect.objectContaining({
      code: 'BAD_FRAME',
      message: `a scheduler does not take messages of kind "${t}"`,
    }),
  );
});
