// The scale simulation with small jobs: its counts, and costs that must not depend on the size of the job.
import { beforeAll, describe, expect, it } from 'vitest';
import { loadNative } from '../../src/engine/native.js';
import { decodeFrame } from '../../src/protocol/frame.js';
import { scaleConfig } from '../../src/sim/scale/config.js';
import { ScaleMeter } from '../../src/sim/scale/meter.js';
import { Phases, type ScalePhase } from '../../src/sim/scale/phases.js';
import { goalsText, phaseText, reportOf } from '../../src/sim/scale/report.js';

const SHORT = { tables: 4, rows: 8, steadyMs: 4000, leasesMs: 1000, movesMs: 2000 };
const config = scaleConfig({ ps: 10, workers: 20, groups: 10 }, SHORT);

/** A clock that stands still, because this test measures no times. */
const run = (change = {}): { phases: ScalePhase[]; world: Phases['world'] } => {
  const all = new Phases({ ...config, ...change }, new ScaleMeter(() => 0), loadNative());
  return { phases: all.run(), world: all.world };
};

describe('the scale simulation', () => {
  let found: ReturnType<typeof run>;
  beforeAll(() => {
    found = run();
  });
  const phase = (name: string): ScalePhase => found.phases.find((each) => each.name.startsWith(name))!;

  it('goes through all phases, and prints them', () => {
    expect(found.phases.map(({ name }) => name)).toEqual([
      ...['start', 'steady, 4 s', 'newcomers', 'loss of one PS', 'loss of a host of 2 PS'],
      ...['scale-out by 1 PS', '5000 leases a second'],
    ]);
    for (const each of found.phases) expect(phaseText(each)).toContain(each.name);
    expect(goalsText(reportOf(config, found.phases))).toContain('a PS, steady');
  });

  it('counts the same for the same job', () => {
    const counted = ({ phases }: typeof found) =>
      phases.map(({ roles, figures, mostReceived }) => [roles, figures, mostReceived]);
    expect(counted(run())).toEqual(counted(found));
  });

  it('the real PS takes a push of every range, and forgets the range when it is finished', () => {
    const short = { batchMs: 100, rangeBatches: 2, steadyMs: 6000, leasesMs: 100, movesMs: 100 };
    const { phases, world } = run(short);
    const { figures } = phases.find(({ name }) => name.startsWith('steady'))!;
    // 20 are open, some 100 are finished in a second.
    expect(world.workers.leases).toBeGreaterThan(600);
    expect(figures.remembered).toBeGreaterThanOrEqual(20);
    expect(figures.remembered).toBeLessThan(160);
  });

  it('simulated PS report what a real one does', () => {
    const { real, nodes } = found.world;
    const { header } = decodeFrame(real!.heartbeat!);
    expect(Object.keys(header).sort()).toEqual(Object.keys(nodes.newest!).sort());
  });

  it('a loss is one decision and one map, and all is redundant again', () => {
    expect(phase('loss of one PS').figures.maps).toBe(1);
    expect(phase('loss of a host').figures.maps).toBe(2);
    expect(found.world.redundant).toBe(true);
  });

  it('what a loss sends to each receiver does not grow with the job', () => {
    const short = { steadyMs: 200, leasesMs: 100, movesMs: 100 };
    const bytesOf = (ps: number, groups: number): number => {
      const large = scaleConfig({ ps, workers: 4, groups }, { ...SHORT, ...short });
      const phases = new Phases(large, new ScaleMeter(() => 0), undefined).run();
      return phases.find(({ name }) => name === 'loss of one PS')!.figures.mapBytes!;
    };
    // The PS that is lost holds 10 of 100, 400 or 800 shards.
    const [small, ...large] = [bytesOf(10, 20), bytesOf(40, 80), bytesOf(80, 160)];
    for (const bytes of large) expect(bytes).toBeLessThan(1.2 * small!);
    expect(small).toBeLessThan(1024);
  });

  it('a scale-out moves no more than it must', () => {
    const { planned, leastMoves } = phase('scale-out').figures;
    expect(planned).toBeGreaterThan(0);
    expect(planned).toBe(leastMoves);
  });

  it('every worker gets ranges at the rate that it asks for', () => {
    expect(phase('5000 leases').figures.granted).toBeGreaterThan(20);
  });
});
