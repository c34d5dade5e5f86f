/** The rehearsal of a recovery ends well, and leaves nothing behind. */
import { expect, it } from 'vitest';
import { rehearse } from '../../../src/roles/ps/rehearsal.js';

it('decodes what it lost, as often as it is asked to', () => {
  expect(() => {
    rehearse();
    rehearse();
  }).not.toThrow();
});
