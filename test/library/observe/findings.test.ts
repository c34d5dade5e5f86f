/** Each finding: a job in which it is found, and the same job without what is wrong. */
import { describe, expect, it } from 'vitest';
import type { JobSnapshot } from '../../../src/library/client/observe.js';
import { findingsIn } from '../../../src/library/observe/findings/index.js';
import type { JobStatus } from '../../../src/protocol/messages.js';
import {
  DURATION_BOUNDS_SECONDS,
  type NodeTelemetry,
  type WorkerTelemetry,
} from '../../../src/protocol/telemetry.js';

const GIB = 2 ** 30;
const INTERVAL_MS = 5000;
const LOOKS = 7;

const durations = (bucket: number, count: number) => {
  const counts = new Array<number>(DURATION_BOUNDS_SECONDS.length + 1).fill(0);
  counts[bucket] = count;
  return { counts, sumSeconds: 0 };
};

function node(look: number): NodeTelemetry {
  const op = { requests: 1000 * look, rows: 0, failed: {}, duration: durations(3, 1000 * look) };
  return {
    ...{ upSeconds: 100 + 5 * look, cpuSeconds: look, rssBytes: 1, version: '1.0.0', clockMs: 5000 * look },
    memory: {
      ...{ limitBytes: 4 * GIB, usedBytes: GIB },
      partBytes: {
        ...{ data: GIB, parity: 0, snapshots: 0, files: 0, deltas: 0, sinkLogs: 0, outgoing: 0 },
        ...{ waiting: 0, answers: 0, received: 0, readers: 0, evicted: 0 },
      },
      unaccountedBytes: 0,
    },
    ops: { pull: structuredClone(op), push: structuredClone(op) },
    commit: durations(4, 1000 * look),
    tables: [],
    ...{ dataShards: 2, parityShards: 1, recoveringShards: 0, uncommittedBytes: 0, sinkLagBytes: 0 },
    ...{ parkedRequests: 0, parkedBytes: 0, movedBlocks: 0 },
    recoveredBlocks: { demand: 0, background: 0 },
    sentBytes: { answers: 0, deltas: 0, recovery: 0, replicas: 0, other: 0 },
    paceBytes: { recovery: 0, moves: 0, saves: 0 },
    shards: [],
  };
}

const worker = (id: number, look: number): WorkerTelemetry => ({
  ...{ id, agoMs: 1, name: `worker-${id}`, run: 'train', upSeconds: 5 * look, cpuSeconds: look, rssBytes: 1 },
  ...{ samples: 10_000 * look, batches: 10 * look, idleSeconds: 0, productiveSeconds: look },
  ...{ phaseSeconds: { read: 0, pull: 0, compute: 0, push: 0 }, stalenessBatches: 0 },
});

const STATUS: JobStatus = {
  ...{ job: 'j', epoch: 9, redundancy: 'full', reasons: [], warnings: [], tables: [], recoveries: [] },
  nodes: [1, 2, 3, 4, 5].map((id) => ({
    ...{ id, name: `ps-${id}`, host: `h${id}`, address: 'a:1', alive: true, standby: false, inc: 1 },
    ...{ life: 'turning' as const, dataShards: 2, parityShards: 1, bytes: 0, rows: 0 },
  })),
  pools: [{ name: 'embedding', code: '3+1', groups: 1, shards: 3 }],
  unrecoverable: [],
  scaling: { wanted: 5, serving: 5, changes: [] },
};

/** A job without a fault, as `change` makes it at each look. */
function found(change: (snapshot: JobSnapshot, look: number) => void, looks = LOOKS) {
  const history = Array.from({ length: looks }, (_, i): JobSnapshot => {
    const look = i + 1;
    const status = structuredClone(STATUS);
    const workers = [1, 2, 3].map((id) => worker(id, look));
    const snapshot: JobSnapshot = {
      ...{ at: look * INTERVAL_MS, status, workers, missing: [] },
      scheduler: {
        ...{ upSeconds: look, cpuSeconds: 0, rssBytes: 0, workers, runs: [] },
        ...{ version: '1.0.0', clockMs: 5000 * look },
      },
      nodes: status.nodes.map(({ id, inc, name, host }) => ({ id, inc, name, host, telemetry: node(look) })),
    };
    change(snapshot, look);
    return snapshot;
  });
  return findingsIn(history);
}
const codes = (...given: Parameters<typeof found>) =>
  found(...given).map(({ code, subject }) => [code, subject]);
const first = (snapshot: JobSnapshot): NodeTelemetry => snapshot.nodes[0]!.telemetry;

it('a job without a fault has no findings, and one look finds nothing', () => {
  expect(found(() => {})).toEqual([]);
  const lost = (snapshot: JobSnapshot) => {
    snapshot.status.redundancy = 'lost';
  };
  expect(found(lost, 1)).toEqual([]);
  expect(found(lost, 2)).toHaveLength(1);
});

describe('straggling workers', () => {
  const slow = (factor: number) => (snapshot: JobSnapshot, look: number) => {
    snapshot.workers[1]!.samples = Math.round((10_000 * look) / factor);
  };
  it('is slower than 1.5 times the median in each of five reports', () => {
    expect(codes(slow(1.4))).toEqual([]);
    const [finding] = found(slow(2));
    expect(finding).toMatchObject({ code: 'straggling-worker', subject: 'worker-2' });
    expect(finding!.evidence).toContain('2.0 times the median');
    expect(codes(slow(2), 5)).toEqual([]);
  });
  it('of two workers one can be slow, and one that does nothing is', () => {
    const two = (change: (snapshot: JobSnapshot, look: number) => void) => (s: JobSnapshot, look: number) => {
      s.workers.pop();
      change(s, look);
    };
    expect(codes(two(slow(2)))).toEqual([['straggling-worker', 'worker-2']]);
    const stuck = (s: JobSnapshot) => {
      s.workers[2]!.samples = 7;
    };
    expect(codes(stuck)).toEqual([['straggling-worker', 'worker-3']]);
  });
  it('is not one that has nothing to train, or was slow once', () => {
    const idle = (s: JobSnapshot, look: number) => {
      Object.assign(s.workers[0]!, { samples: 3000 * look, idleSeconds: 3.5 * look });
    };
    const once = (s: JobSnapshot, look: number) => {
      s.workers[0]!.samples = look < 4 ? 10_000 * look : 10_000 * look - 8000;
    };
    expect([codes(idle), codes(once)]).toEqual([[], []]);
  });
});

describe('workers whose reports do not come at the same time', () => {
  /** A look in a third of the time between two reports; each worker reports in a look of its own. */
  const staggered = (change: (each: WorkerTelemetry, report: number) => void) =>
    found((s, look) => {
      const all = [1, 2].map((id) => {
        const report = Math.floor((look + id) / 3);
        const each = worker(id, report);
        change(each, report);
        return each;
      });
      s.workers = s.scheduler.workers = all;
    }, 24).map(({ code, subject }) => [code, subject]);
  it('are held against the newest that is known of the others', () => {
    const slow = (each: WorkerTelemetry) => {
      if (each.id === 2) each.samples /= 4;
    };
    expect(staggered(slow)).toEqual([['straggling-worker', 'worker-2']]);
    expect(staggered(() => {})).toEqual([]);
  });
  it('one of two that trains nothing is found', () => {
    const stuck = (each: WorkerTelemetry) => {
      if (each.id === 1) each.samples = 7;
    };
    expect(staggered(stuck)).toEqual([['straggling-worker', 'worker-1']]);
  });
});

it('a worker that reports no more, and has not said that it ends', () => {
  const silent = (s: JobSnapshot) => {
    s.scheduler.silent = [{ id: 9, name: 'worker-9', run: 'train', agoMs: 61_000 }];
  };
  expect(found(silent)).toMatchObject([
    { code: 'silent-worker', subject: 'worker-9', evidence: 'it has not reported for 61 s' },
  ]);
});

describe('hot PS and shards', () => {
  it('a PS is busy while others are not', () => {
    const busy = (share: number, others: number) => (s: JobSnapshot, look: number) => {
      for (const { telemetry } of s.nodes) telemetry.cpuSeconds = others * 5 * look;
      first(s).cpuSeconds = share * 5 * look;
    };
    expect(codes(busy(0.95, 0.3))).toEqual([['hot-ps', 'ps-1']]);
    expect(codes(busy(0.95, 0.9))).toEqual([]);
    expect(codes(busy(0.5, 0.1))).toEqual([]);
  });
  it('a shard has most requests', () => {
    const shards = (most: number) => (s: JobSnapshot, look: number) => {
      for (const [i, { telemetry }] of s.nodes.entries())
        telemetry.shards = [{ g: 0, m: i, requests: (i === 2 ? most : 500) * look, rows: 1, bytes: 1 }];
    };
    expect(codes(shards(10_000))).toEqual([['hot-shard', 'shard 0/2 on ps-3']]);
    expect(codes(shards(1500))).toEqual([]);
  });
});

describe('imbalance', () => {
  it('is bytes or requests of one PS far above the mean', () => {
    const holds = (s: JobSnapshot) => {
      first(s).memory.usedBytes = 3 * GIB;
    };
    const serves = (s: JobSnapshot, look: number) => {
      first(s).ops.pull.requests = 9000 * look;
    };
    expect(codes(holds)).toEqual([['imbalance', 'ps-1']]);
    expect(found(holds)[0]!.evidence).toBe('it holds 3072 MiB, 2.1 times the mean');
    expect(codes(serves)).toEqual([['imbalance', 'ps-1']]);
  });
  it('is nobody worth telling while shards move, or of a PS that stands by', () => {
    const moving = (s: JobSnapshot) => {
      first(s).memory.usedBytes = 3 * GIB;
      s.status.scaling.changes = [{ state: 'running' } as never];
    };
    const standby = (s: JobSnapshot) => {
      s.nodes[4]!.telemetry.memory.usedBytes = 0;
      s.status.nodes[4]!.standby = true;
    };
    expect([codes(moving), codes(standby)]).toEqual([[], []]);
  });
});

it('a slow sink: bytes that are not durable at every look, or pushes that wait for it', () => {
  const behind = (s: JobSnapshot) => {
    first(s).sinkLagBytes = 20 * 2 ** 20;
  };
  const once = (s: JobSnapshot, look: number) => {
    first(s).sinkLagBytes = look === 3 ? 20 * 2 ** 20 : 0;
  };
  const late = (s: JobSnapshot, look: number) => {
    first(s).commit = durations(12, 1000 * look);
  };
  expect([codes(behind), codes(once), codes(late)]).toEqual([
    [['slow-sink', 'ps-1']],
    [],
    [['slow-sink', 'ps-1']],
  ]);
  expect(found(behind)[0]!.evidence).toContain('at least 20 MiB were not durable at every look');
});

describe('memory', () => {
  it('is nearly used up', () => {
    const full = (share: number) => (s: JobSnapshot) => {
      for (const { telemetry } of s.nodes) telemetry.memory.usedBytes = share * 4 * GIB;
    };
    expect(found(full(0.9)).map(({ severity }) => severity)).toEqual(Array(5).fill('warning'));
    expect(found(full(0.99)).map(({ severity }) => severity)).toEqual(Array(5).fill('error'));
    expect(found(full(0.5))).toEqual([]);
  });
  it('will not last, by its slope', () => {
    const grows = (bytes: number) => (s: JobSnapshot, look: number) => {
      for (const { telemetry } of s.nodes) telemetry.memory.usedBytes = GIB + bytes * look;
    };
    const [finding] = found(grows(10 * 2 ** 20));
    expect(finding).toMatchObject({ code: 'memory', severity: 'error', subject: 'ps-1' });
    expect(finding!.evidence).toContain('grows by 2.0 MiB/s and lasts for 25 minutes');
    expect(found(grows(10_000))).toEqual([]);
  });
  it('is not looked at without a limit', () => {
    const unlimited = (s: JobSnapshot) => {
      for (const { telemetry } of s.nodes) telemetry.memory.limitBytes = 0;
    };
    expect(found(unlimited)).toEqual([]);
  });
});

describe('redundancy', () => {
  it.each(['recovering', 'degraded', 'lost', 'forming'] as const)('is %s', (redundancy) => {
    const state = (s: JobSnapshot) => Object.assign(s.status, { redundancy, reasons: ['one', 'two'] });
    const [finding] = found(state);
    expect(finding).toMatchObject({ code: 'redundancy', subject: 'job' });
    expect(finding!.severity).toBe(redundancy === 'lost' || redundancy === 'degraded' ? 'error' : 'warning');
    expect(finding!.evidence).toBe(`redundancy is ${redundancy}: one, and 1 reasons more`);
  });
  it('has nowhere to go after the next loss', () => {
    const last = (s: JobSnapshot) => {
      s.status.nodes[4]!.alive = false;
      s.nodes.pop();
    };
    expect(codes(last)).toEqual([['no-spare', 'job']]);
  });
});

describe('failure domains', () => {
  it('are a fiction, as the scheduler sees', () => {
    const fiction = (s: JobSnapshot) => {
      s.status.warnings = ['all PS have different host labels and run on one machine'];
    };
    expect(codes(fiction)).toEqual([['domains', 'hosts']]);
  });
  it('are fewer than a group needs', () => {
    const hosts = (count: number) => (s: JobSnapshot) => {
      for (const each of s.status.nodes) each.host = `h${each.id % count}`;
    };
    expect(codes(hosts(2))).toEqual([['domains', 'pool embedding']]);
    expect(codes(hosts(4))).toEqual([]);
    const zones = (count: number) => (s: JobSnapshot) => {
      for (const each of s.status.nodes) each.host = `z${each.id % count}/h${each.id}`;
    };
    expect(found(zones(2))).toMatchObject([
      { code: 'domains', evidence: expect.stringMatching(/ in 2 zones: /) },
    ]);
    expect([codes(zones(1)), codes(zones(4))]).toEqual([[], []]);
  });
});

it('limits that are hit: requests that are refused, or that wait at every look', () => {
  const refused = (code: string) => (s: JobSnapshot, look: number) => {
    first(s).ops.push.failed = { [code]: 7 * look };
  };
  expect(found(refused('MEMORY_LIMIT'))).toMatchObject([
    { code: 'refused', severity: 'error', evidence: '42 requests were refused with MEMORY_LIMIT' },
  ]);
  expect(found(refused('LIMIT'))[0]!.severity).toBe('warning');
  // After a loss or a move a request goes to the new owner: nothing is wrong.
  expect(found(refused('WRONG_OWNER'))).toEqual([]);
  const before = (s: JobSnapshot) => {
    first(s).ops.push.failed = { LIMIT: 7 };
  };
  // Refusals from before the node was away for a look are known from the second look.
  const away = (s: JobSnapshot, look: number) => {
    before(s);
    if (look === 1) s.nodes.shift();
  };
  // A process that was started again has lower counters.
  const again = (s: JobSnapshot, look: number) => {
    first(s).ops.push.failed = { LIMIT: look < 4 ? 100 : 3 };
    if (look >= 4) s.nodes[0]!.inc = 2;
  };
  expect([codes(away), found(again).map(({ evidence }) => evidence)]).toEqual([
    [],
    ['3 requests were refused with LIMIT'],
  ]);
  const waits = (s: JobSnapshot, look: number) => {
    first(s).parkedRequests = look;
  };
  const recovers = (s: JobSnapshot, look: number) => {
    Object.assign(first(s), { parkedRequests: look, recoveringShards: 1 });
  };
  expect([codes(before), codes(waits), codes(recovers)]).toEqual([[], [['waiting-requests', 'ps-1']], []]);
});

it('versions and clocks that differ', () => {
  const older = (s: JobSnapshot) => {
    first(s).version = '0.9.0';
  };
  expect(found(older)).toMatchObject([{ code: 'versions' }]);
  expect(found(older)[0]!.evidence).toContain('0.9.0: ps-1');
  const olderWorker = (s: JobSnapshot) => {
    s.workers[1]!.version = '0.9.0';
  };
  expect(found(olderWorker)[0]!.evidence).toContain('0.9.0: worker-2');
  const clock = (ms: number) => (s: JobSnapshot) => {
    first(s).clockMs! += ms;
  };
  expect(found(clock(-60_000))).toMatchObject([{ code: 'clock', subject: 'ps-1' }]);
  expect(found(clock(-60_000))[0]!.evidence).toBe('its clock is 60 s behind the others');
  expect(found(clock(900))).toEqual([]);
});

it('checkpoints that fail, and PS that do not answer', () => {
  const plan = { name: 'checkpoint', url: 'u', kind: 'full job', everyMs: 1, keep: 1, rate: 0 } as const;
  const failure = { number: 4, code: 'PLACE_FAILED', message: 'full' } as const;
  const failed = (s: JobSnapshot) => {
    s.status.saving = [{ ...plan, failure }];
    s.missing = ['ps-2'];
  };
  expect(codes(failed)).toEqual([
    ['checkpoint', 'plan checkpoint'],
    ['silent-ps', 'ps-2'],
  ]);
});

it('a PS that does not turn has stopped, one that turns late is overloaded, others are gone', () => {
  const late = (s: JobSnapshot) => {
    s.status.nodes[1]!.life = 'stopped';
    s.status.nodes[2]!.life = 'gone';
    Object.assign(s.status.nodes[3]!, { life: 'gone', alive: false });
    s.status.nodes[4]!.overloaded = true;
    s.missing = ['ps-2', 'ps-3'];
  };
  expect(codes(late).filter(([code]) => code!.endsWith('-ps'))).toEqual([
    ['stopped-ps', 'ps-2'],
    ['overloaded-ps', 'ps-5'],
    ['silent-ps', 'ps-3'],
  ]);
});

it('errors come first', () => {
  const both = (s: JobSnapshot) => {
    first(s).version = '0.9.0';
    s.status.redundancy = 'degraded';
    s.missing = ['ps-2'];
  };
  expect(found(both).map(({ severity }) => severity)).toEqual(['error', 'warning', 'warning']);
});
