/** Heartbeats say what changed; everything now and then, and when the scheduler may have forgotten it. */
import { beforeEach, describe, expect, it } from 'vitest';
import { type ReportedOwner, type ReportedSink, Reporter } from '../../../src/core/node/heartbeat.js';
import { Reports } from '../../../src/core/scheduler/reports.js';
import { CAPABILITIES, EMPTY_MAP, type Group } from '../../../src/protocol/map.js';
import type { RecoveryStats } from '../../../src/protocol/messages.js';

const MS = 100;
const GROUP: Group = {
  ...{ id: 0, pool: 0, version: 1 },
  data: [{ node: 1, inc: 1, gen: 4, init: false }],
  sinks: [{ sid: 9, kind: 'P', index: 0, node: 1, inc: 1, init: true, ...CAPABILITIES.P }],
};

let asked: number;
let rows: number;
let recovery: RecoveryStats | undefined;
type Writable<T> = { -readonly [K in keyof T]: T[K] };
let owner: Writable<ReportedOwner>;
let sink: Writable<ReportedSink>;
let reporter: Reporter;
let reports: Reports;

beforeEach(() => {
  asked = 0;
  rows = 7;
  recovery = undefined;
  owner = {
    ...{ group: GROUP, member: 0, gen: 4, complete: true, requests: 3 },
    recoveryStats: () => recovery,
    native: {
      bytes: 64,
      get rows() {
        asked++;
        return rows;
      },
    },
  };
  sink = { sid: 9, complete: true, followsOne: false, groupId: 0, seat: 1, deltas: 5, native: { bytes: 32 } };
  reporter = new Reporter(MS);
  reports = new Reports({ map: { ...EMPTY_MAP, groups: [GROUP] } });
});

/** A heartbeat at this time, as the scheduler hears it. */
function beat(now: number) {
  const report = reporter.report(now, [owner], [sink]);
  if (report) reports.learn(1, { t: 'heartbeat', inc: 1, epoch: 1, bytes: 96, ...report }, now);
  return report;
}
const NOTHING = { completeSinks: [], completeShards: [], owned: [], held: [] };
const EVERYTHING = {
  completeSinks: [9],
  completeShards: [[0, 0, 4]],
  owned: [[0, 0, 7]],
  held: [
    [0, 1, 32, 5],
    [0, 0, 64, 3],
  ],
  recoveries: [],
  rows: 7,
};

describe('a heartbeat', () => {
  it('has everything first, then nothing while nothing happens, and asks no table', () => {
    expect(beat(0)).toEqual(EVERYTHING);
    expect(beat(MS / 2)).toBeUndefined();
    for (let n = 1; n <= 10; n++) expect(beat(n * MS)).toEqual({ ...NOTHING, rows: 7 });
    expect(asked).toBe(1);
    expect(reports.rows(0, 0)).toBe(7);
    expect(reports.nodes.get(1)).toEqual({ bytes: 96, rows: 7, recoveries: [] });
  });

  it('has everything again after a while, and when the scheduler may have forgotten it', () => {
    beat(0);
    rows = 8;
    reporter.everything();
    expect(beat(MS)).toMatchObject({ ...EVERYTHING, owned: [[0, 0, 8]], rows: 8 });
    expect(beat(15 * MS)).toMatchObject(NOTHING);
    expect(beat(16 * MS)).toMatchObject({ completeSinks: [9], completeShards: [[0, 0, 4]] });
  });

  it('comes at once when something is complete or is not, and sizes come with it', () => {
    owner.complete = sink.complete = false;
    expect(beat(0)).toMatchObject({ ...NOTHING, rows: 7 });
    owner.complete = true;
    rows = 9;
    expect(beat(1)).toMatchObject({ completeSinks: [], completeShards: [[0, 0, 4]], owned: [[0, 0, 9]] });
    sink.complete = true;
    expect(beat(2)).toMatchObject({ ...NOTHING, completeSinks: [9], held: [[0, 1, 32, 5]] });
    expect([reports.isSinkComplete(9), reports.isShardComplete(0, 0, 4)]).toEqual([true, true]);
    sink.complete = false;
    expect(beat(3)).toMatchObject(NOTHING);
    expect(beat(4)).toBeUndefined();
    sink.complete = true;
    expect(beat(5)).toMatchObject({ completeSinks: [9] });
  });

  it('has sizes of what was used, some heartbeats apart', () => {
    beat(0);
    owner.requests++;
    rows = 8;
    expect(beat(MS)).toMatchObject(NOTHING);
    expect(beat(5 * MS)).toMatchObject({ ...NOTHING, owned: [[0, 0, 8]], held: [[0, 0, 64, 4]], rows: 8 });
    expect(reports.rows(0, 0)).toBe(8);
    expect(beat(6 * MS)).toMatchObject({ ...NOTHING, rows: 8 });
  });

  it('has recoveries when one of them moves on; those that are not named again stay known', () => {
    const at = (blocksPresent: number): RecoveryStats => ({
      ...{ g: 0, m: 0, gen: 4, blocksLost: 9, blocksPresent, blocksOnDemand: 0 },
    });
    recovery = at(1);
    expect(beat(0)?.recoveries).toEqual([at(1)]);
    expect(beat(MS)?.recoveries).toBeUndefined();
    expect(reports.nodes.get(1)?.recoveries).toEqual([at(1)]);
    recovery = at(2);
    expect(beat(2 * MS)?.recoveries).toEqual([at(2)]);
    recovery = undefined;
    expect(beat(3 * MS)?.recoveries).toEqual([]);
    expect(reports.nodes.get(1)?.recoveries).toEqual([]);
  });
});
