/** The autoscaler beside a job that is made up: what it sees, and when it has a decision carried out. */
import { describe, expect, it } from 'vitest';
import { Autoscaler, type DecisionRecord, decisionText } from '../../../src/fleet/autoscale/autoscaler.js';
import { parseBounds } from '../../../src/fleet/autoscale/bounds.js';
import { policyWith } from '../../../src/fleet/autoscale/decide/policy.js';
import { observationOf } from '../../../src/fleet/autoscale/observed.js';
import type { Provider } from '../../../src/fleet/autoscale/provider.js';
import type { JobSnapshot } from '../../../src/library/client/observe.js';

const MIB = 2 ** 20;
const POLICY = policyWith({ ps: { least: 3, most: 9 }, workers: { least: 1, most: 4 }, settle: 10 });

interface Shape {
  at: number;
  ps?: number;
  usedMiB?: number;
  standby?: number;
  running?: boolean;
  silent?: string;
}

function snapshot({ at, ps = 3, usedMiB = 10, standby = 0, running = false, silent }: Shape): JobSnapshot {
  const names = Array.from({ length: ps + standby }, (_, i) => `ps-${i}`);
  const node = (name: string, i: number) => ({ id: i + 1, name, inc: i + 11, alive: true, standby: i >= ps });
  const memory = { usedBytes: usedMiB * MIB, limitBytes: 64 * MIB };
  const worker = { id: 99, name: 'worker-0', samples: at * 100, idleSeconds: 1 };
  return {
    at: at * 1000,
    status: {
      redundancy: 'full',
      nodes: names.map(node),
      scaling: {
        ...{ wanted: ps, serving: ps },
        changes: running ? [{ kind: 'scale', state: 'running', to: ps + 2 }] : [],
      },
    },
    scheduler: { runs: [{ run: 'r', samples: at * 100 }], workers: [] },
    nodes: names
      .filter((name) => name !== silent)
      .map((name) => ({ id: names.indexOf(name) + 1, name, telemetry: { cpuSeconds: at / 10, memory } })),
    workers: [{ ...worker, phaseSeconds: { read: 2, pull: at / 4, compute: at / 4, push: 0 } }],
  } as unknown as JobSnapshot;
}

class Place implements Provider {
  readonly workers = 1;
  readonly calls: string[] = [];
  private end: ((error?: Error) => void) | undefined;
  private call(what: string): Promise<void> {
    this.calls.push(what);
    return new Promise((resolve, reject) => {
      this.end = (error) => (error ? reject(error) : resolve());
    });
  }
  scalePs = (count: number) => this.call(`ps ${count}`);
  scaleWorkers = (count: number) => this.call(`workers ${count}`);
  replaceWorker = (name: string) => this.call(`replace ${name}`);
  rebalance = () => this.call('rebalance');
  async finish(error?: Error): Promise<void> {
    this.end?.(error);
    await new Promise((resolve) => setImmediate(resolve));
  }
}

function job(provider: Place | undefined) {
  let tell: (snapshot: JobSnapshot) => void = () => {};
  const done: DecisionRecord[] = [];
  const autoscaler = new Autoscaler({
    observer: {
      on: (listener) => {
        tell = listener;
        return () => {
          tell = () => {};
        };
      },
    },
    ...{ policy: POLICY, provider, onDone: (record) => done.push(record) },
  });
  autoscaler.start();
  return { autoscaler, done, look: (shape: Shape) => tell(snapshot(shape)) };
}

describe('what is seen', () => {
  it('is of the PS that serve, by process', () => {
    const seen = observationOf(snapshot({ at: 8, standby: 1 }), 2)!;
    expect(seen.ps.map(({ id }) => id)).toEqual(['ps-0/11', 'ps-1/12', 'ps-2/13']);
    expect(seen).toMatchObject({ at: 8, samples: 800, pendingPs: 0, pendingWorkers: 1, changing: false });
    expect(seen.workers).toEqual([{ id: '99', name: 'worker-0', samples: 800, busy: 5, idle: 1 }]);
  });

  it('is changing, and PS are pending, while a scale is carried out', () => {
    expect(observationOf(snapshot({ at: 8, running: true }), 1)).toMatchObject({
      pendingPs: 2,
      changing: true,
    });
  });

  it('is nothing while a PS does not answer', () => {
    expect(observationOf(snapshot({ at: 8, silent: 'ps-1' }), 1)).toBeUndefined();
  });
});

describe('what is done', () => {
  it('is one thing at a time', async () => {
    const place = new Place();
    const { autoscaler, look, done } = job(place);
    look({ at: 1, usedMiB: 60 });
    look({ at: 2, usedMiB: 61 });
    expect(place.calls).toHaveLength(1);
    expect(place.calls[0]).toMatch(/^ps [4-9]$/);
    await place.finish();
    expect(done[0]).toMatchObject({ at: 1000, ps: 3, workers: 1 });
    expect(done[0]!.tookMs).toBeGreaterThanOrEqual(0);
    look({ at: 3, usedMiB: 62 });
    expect(place.calls).toHaveLength(2);
    const stopped = autoscaler.stop();
    await place.finish();
    await stopped;
    look({ at: 30, usedMiB: 63 });
    expect(place.calls).toHaveLength(2);
  });

  it('that fails is told, and is not tried again at once', async () => {
    const place = new Place();
    const { look, done } = job(place);
    look({ at: 1, usedMiB: 60 });
    await place.finish(new Error('no more machines'));
    expect(done[0]!.problem).toContain('no more machines');
    look({ at: 5, usedMiB: 61 });
    expect(place.calls).toHaveLength(1);
    look({ at: 20, usedMiB: 61 });
    expect(place.calls).toHaveLength(2);
  });

  it('without a provider is only said, and not at every look', () => {
    const { autoscaler, look } = job(undefined);
    for (let at = 1; at <= 9; at++) look({ at, usedMiB: 60 });
    expect(autoscaler.records).toHaveLength(1);
    expect(decisionText(autoscaler.records[0]!.decision)).toMatch(
      /^3 to \d PS: the fullest PS is nearly full \(fullest 0\.938, /,
    );
  });
});

it('bounds are two ranges, or numbers that do not change', () => {
  expect(parseBounds('--b', 'ps=4..8,workers=1..4')).toEqual({
    ps: { least: 4, most: 8 },
    workers: { least: 1, most: 4 },
  });
  expect(parseBounds('--b', 'workers=2,ps=5').ps).toEqual({ least: 5, most: 5 });
  expect(parseBounds('--b', 'ps=4')).toEqual({ ps: { least: 4, most: 4 } });
  for (const wrong of [
    '',
    'workers=4',
    'ps=0..4,workers=1',
    'ps=4,ps=5,workers=1',
    'ps=1,workers=1,x=1',
    'ps=9..8',
  ])
    expect(() => parseBounds('--b', wrong), wrong).toThrow(/--b must be ps=LEAST\.\.MOST/);
});
