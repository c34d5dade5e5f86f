/** A PS of a real job is killed for want of memory. */
import { expect, it } from 'vitest';
import type { KubeObject, Pod } from '../../src/fleet/operator/objects.js';
import {
  apply,
  booksOf,
  get,
  hurry,
  jobOf,
  kubectl,
  listen,
  MINUTES,
  movieJob,
  newPs,
  onKubernetes,
  pods,
  until,
  waitFor,
} from './cluster.js';

/** Once there is this file, the process takes memory until it is killed. When it begins again it does not. */
const HUNGRY = '/tmp/hungry';
const EATER = `
import { existsSync, unlinkSync } from 'node:fs';
setInterval(() => {
  if (!existsSync('${HUNGRY}')) return;
  unlinkSync('${HUNGRY}');
  for (const all = [];;) all.push(Buffer.alloc(1 << 24, 1));
}, 100).unref();
`;
const template = {
  spec: {
    containers: [
      {
        name: 'kintsugi',
        env: [{ name: 'NODE_OPTIONS', value: `--import=data:text/javascript,${encodeURIComponent(EATER)}` }],
        resources: { requests: { memory: '128Mi' }, limits: { memory: '512Mi' } },
      },
    ],
  },
};

onKubernetes(() => {
  it('a PS that is killed for want of memory comes back larger, and nothing is lost', {
    timeout: 10 * MINUTES,
  }, async () => {
    const more = { resourceLimits: { ps: { memory: '1Gi' } } };
    await apply(movieJob('starved', { few: true, seconds: 400, ps: { template }, more }));
    await waitFor('starved', '.status.phase', 'Running');
    await waitFor('starved', '.status.redundancy', 'full');
    await waitFor('starved', '.status.ps', '4/4');
    const feed = `require('node:fs').writeFileSync('${HUNGRY}', '')`;
    const ps = await pods('starved', 'ps');
    const killed = ps[1]!.metadata.name;
    await kubectl('exec', killed, '-c', 'kintsugi', '--', 'node', '-e', feed);
    await until('starved', ({ status }) => status?.memory?.ps !== undefined);
    const [larger = ''] = await newPs('starved', ps);
    const { spec } = await get<Pod>('pod', larger);
    expect(spec.containers![0]!.resources).toEqual({
      limits: { memory: '768Mi' },
      requests: { memory: '192Mi' },
    });
    // The shards of the killed PS are elsewhere before it goes.
    await kubectl('wait', '--for=delete', `pod/${killed}`, '--timeout=240s');
    await hurry('starved');
    await waitFor('starved', '.status.phase', 'Succeeded');
    const { status } = await jobOf('starved');
    expect(status).toMatchObject({ memory: { ps: '768Mi' }, restartCount: 0 });
    const told = await listen('starved');
    expect(await booksOf('starved', told, { few: true })).toMatchObject({ exactlyOnce: true, problems: [] });
    type Told = KubeObject & { reason: string; message: string };
    const { items } = await get<{ items: Told[] }>('events', '--field-selector=reason=MoreMemory');
    expect(items.map(({ message }) => message)).toEqual([
      `the next ps have 768Mi of memory, of at most 1Gi: killed was ${killed}, which had 512Mi`,
    ]);
  });
});
