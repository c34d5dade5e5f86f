/** Links of the operator to a real job. */
import { onTestFinished } from 'vitest';
import { JobLink } from '../../../src/fleet/operator/link.js';

/** A link to the job at `address`, whose token is "secret". `until` resolves when a change makes it so. */
export function linkTo(address: string): { link: JobLink; until(so: () => boolean): Promise<void> } {
  const waiting = new Set<() => void>();
  const link = new JobLink({
    ...{ address, token: 'secret', run: 'train' },
    onChange: () => {
      for (const check of [...waiting]) check();
    },
  });
  onTestFinished(() => link.close());
  const until = (so: () => boolean): Promise<void> =>
    new Promise((resolve) => {
      const check = (): void => void (so() && waiting.delete(check) && resolve());
      waiting.add(check);
      check();
    });
  return { link, until };
}
