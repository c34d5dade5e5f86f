/** A real job pauses and goes on. */
import { expect, it } from 'vitest';
import {
  apply,
  aucs,
  booksOf,
  checkpointsClaim,
  follow,
  get,
  hurry,
  type Items,
  kubectl,
  MINUTES,
  movieJob,
  onKubernetes,
  patch,
  pods,
  type Told,
  until,
  waitFor,
} from './cluster.js';

onKubernetes(() => {
  it('a job is suspended in the middle, and goes on: each sample exactly once', {
    timeout: 8 * MINUTES,
  }, async () => {
    await apply(checkpointsClaim());
    await apply(movieJob('pause', { seconds: 60, checkpoint: { everySeconds: 0 } }));
    const told: Told = new Map();
    await until('pause', ({ status }) => (status?.progress?.percentage ?? 0) >= 20);
    const first = await follow('pause', told);
    await patch('pause', { runPolicy: { suspend: true } });
    await waitFor('pause', '.status.phase', 'Suspended');
    await first();
    const { status } = await until('pause', () => true);
    expect(status).toMatchObject({ redundancy: 'none', ps: '0/4', workers: '0/2' });
    expect(status!.progress!.percentage).toBeLessThan(100);
    expect(await pods('pause')).toEqual([]);
    const line = await kubectl('get', 'trainingjob', 'pause', '--no-headers');
    expect(line).toMatch(/^pause +Suspended +0\/4 +0\/2 +none +\d+ /);

    await patch('pause', { runPolicy: { suspend: false } });
    await waitFor('pause', '.status.phase', 'Running');
    const second = await follow('pause', told);
    await hurry('pause');
    await waitFor('pause', '.status.phase', 'Succeeded');
    await second();
    expect(await booksOf('pause', told)).toMatchObject({ exactlyOnce: true, problems: [] });
    for (const auc of aucs(told)) expect(auc).toBeGreaterThanOrEqual(0.775);
    const ended = await until('pause', () => true);
    expect(ended.status).toMatchObject({ life: 2, restartCount: 0, progress: { percentage: 100 } });
    // Everybody who asks is told the story.
    const reasons = (
      await get<{ items: { reason: string; involvedObject: { name: string } }[] } & Items>('events')
    ).items
      .filter(({ involvedObject }) => involvedObject.name === 'pause')
      .map(({ reason }) => reason);
    expect(reasons).toEqual(
      expect.arrayContaining([
        ...['Running', 'SuspendedStoppingWorkers', 'SuspendedSaving', 'Suspended', 'SuspendedResumed'],
        'Succeeded',
      ]),
    );
  });
});
