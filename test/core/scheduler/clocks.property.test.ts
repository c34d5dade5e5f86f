// Bounded staleness against a model that looks at all workers whenever it is asked for the slowest.
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { Clocks } from '../../../src/core/scheduler/samples/clocks.js';

class Model {
  private readonly clocks = new Map<number, { base: number; durable: number; works: boolean }>();
  private readonly asking = new Map<number, { id: number; begun: number }>();

  constructor(private readonly staleness: number) {}

  private get slowest(): number | undefined {
    const times = [...this.clocks.values()].flatMap(({ base, durable, works }) =>
      works ? [base + durable] : [],
    );
    return times.length > 0 ? Math.min(...times) : undefined;
  }

  saw(worker: number, durable: number): void {
    const clock = this.clocks.get(worker);
    if (clock) clock.durable = Math.max(clock.durable, durable);
    else this.clocks.set(worker, { base: (this.slowest ?? 0) - durable, durable, works: false });
  }

  start(worker: number): void {
    const clock = this.clocks.get(worker);
    if (!clock || clock.works) return;
    clock.base = Math.max(clock.base, (this.slowest ?? 0) - clock.durable);
    clock.works = true;
  }

  stop(worker: number): void {
    const clock = this.clocks.get(worker);
    if (clock) clock.works = false;
    this.asking.delete(worker);
  }

  forget(worker: number): void {
    this.stop(worker);
    this.clocks.delete(worker);
  }

  ask(worker: number, id: number, begun: number): void {
    if (!this.clocks.has(worker)) this.saw(worker, begun);
    this.asking.set(worker, { id, begun });
  }

  granted(): unknown[] {
    const answers: unknown[] = [];
    for (const [worker, { id, begun }] of this.asking) {
      const until = (this.slowest ?? Number.NaN) + this.staleness - this.clocks.get(worker)!.base;
      if (begun > until) continue;
      this.asking.delete(worker);
      answers.push({ worker, id, until: Number.isNaN(until) ? Number.MAX_SAFE_INTEGER : until });
    }
    return answers;
  }
}

const steps = fc.array(fc.tuple(fc.nat(5), fc.nat(4), fc.nat(12)), { maxLength: 80 });

it('grants what a look at all workers grants', () => {
  fc.assert(
    fc.property(fc.nat(3), steps, (staleness, list) => {
      const [clocks, model] = [new Clocks(staleness), new Model(staleness)];
      for (const [id, [what, worker, count]] of list.entries()) {
        for (const each of [clocks, model]) {
          if (what <= 1) each.saw(worker, count);
          else if (what === 2) each.start(worker);
          else if (what === 3) each.stop(worker);
          else if (what === 4) each.forget(worker);
          else each.ask(worker, id, count);
        }
        expect(clocks.granted()).toEqual(model.granted());
      }
    }),
    { numRuns: 1000 },
  );
});
