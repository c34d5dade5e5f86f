/** A mirror knows what the server tells, and what this program writes itself. */
import { expect, it, onTestFinished } from 'vitest';
import { Mirror } from '../../../src/fleet/operator/api/mirror.js';
import type { KubeObject } from '../../../src/fleet/operator/objects.js';
import { MemoryServer, randomOf } from './server.js';
import { jobOf } from './support.js';

it('an answer to a write that comes after the end of its object does not bring it back', async () => {
  const server = new MemoryServer(randomOf(1));
  let changed = () => {};
  const mirror = new Mirror<KubeObject>({
    ...{ api: server, kind: 'TrainingJob', selection: { namespace: 'ml' }, onError: () => {} },
    onChange: () => changed(),
  });
  const until = (so: () => boolean) =>
    new Promise<void>((resolve) => {
      changed = () => so() && resolve();
      changed();
    });
  onTestFinished(() => mirror.stop());
  server.put('TrainingJob', jobOf());
  mirror.start();
  await until(() => mirror.get('ml', 'movies') !== undefined);
  const answer = structuredClone(mirror.get('ml', 'movies')!);
  server.drop('TrainingJob', answer.metadata);
  await until(() => mirror.get('ml', 'movies') === undefined);
  mirror.note(answer);
  expect(mirror.get('ml', 'movies')).toBeUndefined();
  // Another one of that name is another object.
  mirror.note({ ...answer, metadata: { ...answer.metadata, uid: 'next' } });
  expect(mirror.get('ml', 'movies')).toBeDefined();
});
