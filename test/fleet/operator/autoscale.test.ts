/** Decisions of an autoscaler become objects, one after the other. */
import { describe, expect, it } from 'vitest';
import type { ResourceKind } from '../../../src/fleet/operator/api/resources.js';
import { JobAutoscale, ObjectProvider } from '../../../src/fleet/operator/autoscale.js';
import type { ObjectManifest } from '../../../src/fleet/operator/objects.js';
import type { ScalerObject, ScalerStatus, TrainingJob } from '../../../src/fleet/operator/types.js';
import { jobOf, scalerOf } from './support.js';

const NEVER = new Promise<never>(() => {});

/** Objects that were made, and the scalers that an autoscaler sees. */
class Made {
  readonly objects: ScalerObject[] = [];
  readonly deleted: string[] = [];
  private readonly awaited = new Map<number, (scaler: ScalerObject) => void>();
  readonly options = {
    api: {
      create: async (_: ResourceKind, object: ObjectManifest): Promise<never> => {
        this.objects.push(object as unknown as ScalerObject);
        this.awaited.get(this.objects.length)?.(this.objects.at(-1)!);
        return object as never;
      },
      delete: async (_: ResourceKind, __: string, name: string) => void this.deleted.push(name),
    },
    link: { observe: () => NEVER, rebalance: async () => {}, tell: () => {} },
    scalers: () => [...this.objects],
    now: () => 1_000_000,
    log: () => {},
  };

  /** The nth, when it is there. */
  nth(count: number): Promise<ScalerObject> {
    const there = this.objects[count - 1];
    if (there) return Promise.resolve(there);
    return new Promise((resolve) => this.awaited.set(count, resolve));
  }

  end(scaler: ScalerObject, status: ScalerStatus): void {
    const at = this.objects.findIndex(({ metadata }) => metadata.name === scaler.metadata.name);
    this.objects[at] = { ...scaler, status } as ScalerObject;
  }
}
const providerOf = (job: TrainingJob) => {
  const made = new Made();
  return { made, provider: new ObjectProvider(job, made.options) };
};

describe('a decision', () => {
  const job = jobOf({ ps: { replicas: 4, maxReplicas: 6 } });

  it('is a ScaleOut that is the job’s and says why; it is done when that has succeeded', async () => {
    const { made, provider } = providerOf(job);
    provider.decision = '4 to 6 PS: the fullest PS is nearly full (fullest 0.9)';
    const done = provider.scalePs(6);
    const scaler = await made.nth(1);
    expect(scaler).toMatchObject({
      kind: 'ScaleOut',
      metadata: {
        namespace: 'ml',
        ownerReferences: [{ kind: 'TrainingJob', uid: 'uid-movies' }],
        labels: { 'kintsugi.dev/autoscale': 'true', 'kintsugi.dev/job': 'movies' },
        annotations: { 'kintsugi.dev/decision': provider.decision },
      },
      spec: { selector: { name: 'movies' }, role: 'ps', toAdd: { count: 2 } },
    });
    made.end(scaler, { phase: 'ScaleSucceeded' });
    provider.changed();
    await done;
  });

  it('that is taken back has failed, with its reason', async () => {
    const { made, provider } = providerOf(job);
    const done = provider.scaleWorkers(1);
    const scaler = await made.nth(1);
    expect(scaler).toMatchObject({ kind: 'ScaleIn', spec: { role: 'worker', toDelete: { count: 1 } } });
    made.end(scaler, { phase: 'ScaleFailed', reason: 'TakenBack', message: 'no progress in 60 s' });
    provider.changed();
    await expect(done).rejects.toThrow('TakenBack: no progress in 60 s');
  });

  it.each([
    ['TakenBack', 'TIMEOUT'],
    ['DeclaredElsewhere', 'FORBIDDEN'],
    ['AboveMaximum', 'BAD_ARGUMENT'],
    ['BelowMinimum', 'BAD_ARGUMENT'],
    ['NoSuchPod', 'BAD_ARGUMENT'],
    ['Cancelled', 'ABORTED'],
    ['JobEnded', 'CLOSED'],
    ['NoJob', 'CLOSED'],
  ])('that has failed with %s has failed with %s', async (reason, code) => {
    const { made, provider } = providerOf(job);
    const done = provider.scalePs(6);
    made.end(await made.nth(1), { phase: 'ScaleFailed', reason, message: 'so it is' });
    provider.changed();
    await expect(done).rejects.toMatchObject({ code });
  });

  it('to replace a worker makes another one and takes the named one, in an order that has room', async () => {
    for (const [maxReplicas, first, second] of [
      [3, 'ScaleOut', 'ScaleIn'],
      [2, 'ScaleIn', 'ScaleOut'],
    ] as const) {
      const { made, provider } = providerOf(jobOf({ worker: { replicas: 2, maxReplicas } }));
      const done = provider.replaceWorker('movies-worker-1');
      for (const count of [1, 2]) {
        made.end(await made.nth(count), { phase: 'ScaleSucceeded' });
        provider.changed();
      }
      await done;
      expect(made.objects.map(({ kind }) => kind)).toEqual([first, second]);
      const named = made.objects.find(({ kind }) => kind === 'ScaleIn')!;
      expect(named.spec).toMatchObject({ toDelete: { podNames: ['movies-worker-1'] } });
    }
  });

  it('waits for every ScaleOut and ScaleIn that is under way, whoever made it', async () => {
    const { made, provider } = providerOf(job);
    expect(provider.busy).toBe(false);
    const scaler = scalerOf('ScaleOut', { toAdd: { count: 1 } });
    made.objects.push(scaler);
    expect(provider.busy).toBe(true);
    made.end(scaler, { phase: 'ScaleSucceeded' });
    expect(provider.busy).toBe(false);
  });

  it.each([
    [3, 'ScaleOut', 'ScaleIn'],
    [2, 'ScaleIn', 'ScaleOut'],
  ] as const)(
    'to replace a worker is carried out to its end by the next operator: %i, %s first',
    async (maxReplicas, first, second) => {
      const { made, provider } = providerOf(jobOf({ worker: { replicas: 2, maxReplicas } }));
      provider.decision = 'replace movies-worker-1: slow';
      const dead = provider.replaceWorker('movies-worker-1');
      const begun = await made.nth(1);
      provider.stop();
      await expect(dead).rejects.toThrow('nobody waits');
      const next = new ObjectProvider(provider.job, made.options);
      const finished = next.takeOver();
      // An object that is under way is not made again.
      await Promise.resolve();
      expect(made.objects).toHaveLength(1);
      made.end(begun, { phase: 'ScaleSucceeded' });
      next.changed();
      const last = await made.nth(2);
      expect([begun.kind, last.kind]).toEqual([first, second]);
      expect(last.metadata.annotations).toMatchObject({ 'kintsugi.dev/decision': provider.decision });
      made.end(last, { phase: 'ScaleSucceeded' });
      next.changed();
      await finished;
      // Both are there: nothing is left to do.
      await new ObjectProvider(provider.job, made.options).takeOver();
      expect(made.objects).toHaveLength(2);
    },
  );

  it('to replace a worker of which the first step has failed is left alone', async () => {
    const { made, provider } = providerOf(jobOf({ worker: { replicas: 2, maxReplicas: 3 } }));
    void provider.replaceWorker('movies-worker-1').catch(() => {});
    made.end(await made.nth(1), { phase: 'ScaleFailed', reason: 'TakenBack' });
    await new ObjectProvider(provider.job, made.options).takeOver();
    expect(made.objects).toHaveLength(1);
    provider.stop();
  });

  it('is waited for by nobody when the operator goes', async () => {
    const { made, provider } = providerOf(job);
    const done = provider.scalePs(5);
    await made.nth(1);
    provider.stop();
    await expect(done).rejects.toThrow('nobody waits');
  });

  it('leaves the newest objects behind, and no others', async () => {
    const { made, provider } = providerOf(job);
    for (let count = 1; count <= 23; count++) {
      const done = provider.scalePs(count % 2 ? 5 : 3);
      made.end(await made.nth(count), { phase: 'ScaleSucceeded' });
      provider.changed();
      await done;
    }
    expect(new Set(made.deleted).size).toBeGreaterThan(0);
    expect(made.deleted).not.toContain(made.objects.at(-1)!.metadata.name);
  });
});

it('another policy is another autoscaler; another number of PS is not', async () => {
  const autoscale = {
    ...{ roles: ['ps' as const], lookSeconds: 3600, settleSeconds: 1, windowSeconds: 2 },
    ...{ retrySeconds: 1, budgetPerHour: 20 },
  };
  const job = jobOf({ ps: { replicas: 4, maxReplicas: 6 }, autoscale });
  const one = new JobAutoscale(job, new Made().options);
  expect(one.update(jobOf({ ps: { replicas: 5, maxReplicas: 6 }, autoscale }))).toBe(true);
  expect(one.update(jobOf({ ps: { replicas: 5, maxReplicas: 7 }, autoscale }))).toBe(false);
});
