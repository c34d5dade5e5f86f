/** Pulses of processes whose event loop is late (rule 44): who is given up, when, and what is told of it. */
import { beforeEach, describe, expect, it } from 'vitest';
import { DEFAULT_SCHEDULER_POLICY } from '../../../src/core/scheduler/scheduler.js';
import type { Life } from '../../../src/protocol/liveness.js';
import { BareScheduler, type Identity } from './bare.js';

const { vanishedMs, silentMs, stoppedMs, reconnectMs, overloadedMs } = DEFAULT_SCHEDULER_POLICY;
const STEP_MS = 250;

let bare: BareScheduler;
let nodes: Identity[];
let busy: Identity;
let told: unknown[];
beforeEach(() => {
  bare = new BareScheduler(3, 2, 6);
  nodes = Array.from({ length: 6 }, (_, i) => bare.join(`ps-${i}`, i === 5 ? { standby: true } : {}));
  busy = nodes[0]!;
  for (const node of nodes) bare.complete(node);
  bare.tick(STEP_MS);
  told = [];
});

const life = (): Life => bare.scheduler.status().nodes.find(({ id }) => id === busy.id)!.life;

/** Events about the busy node, without those that a job has anyway. */
function hear(): void {
  for (const effect of bare.effects)
    if (effect.kind === 'event' && effect.name.startsWith('node.'))
      told.push([effect.name, effect.fields.node, effect.fields.reason].filter((each) => each !== undefined));
}

interface Story {
  /** The age of the last turn in the pulse at this time; undefined: no pulse comes. */
  age: (ms: number) => number | undefined;
  of?: Identity;
  job?: string;
  links?: boolean;
  gap?: number;
}

/** Time passes; all other nodes send heartbeats, and the busy one sends pulses. */
function pass(
  forMs: number,
  { age, of = busy, job = bare.scheduler.map.job, links = false, gap = 20 }: Story,
): void {
  for (let ms = STEP_MS; ms <= forMs; ms += STEP_MS) {
    for (const node of nodes) if (node !== busy) bare.complete(node);
    const ageMs = age(ms);
    if (ageMs !== undefined)
      bare.hear(of.id, { t: 'pulse', node: of.id, inc: of.inc, job, ageMs, gapMs: gap });
    if (links) bare.step({ kind: 'silent', links: [{ node: busy.id, inc: busy.inc, ms }] });
    hear();
    bare.tick(STEP_MS);
    hear();
  }
}

const turns: Story = { age: () => 10 };
const stands: Story = { age: (ms) => ms };

describe('a process that sends pulses', () => {
  it('is never given up while it turns, though no heartbeat comes', () => {
    pass(3 * stoppedMs, turns);
    expect(told).toEqual([]);
    expect(life()).toBe('turning');
  });

  it('is not given up though its connection is gone, nor because nothing is acknowledged there', () => {
    bare.step({ kind: 'closed', peer: busy.id, inc: busy.inc });
    pass(2 * silentMs + reconnectMs, { ...turns, links: true });
    expect(told).toEqual([]);
  });

  it('has stopped when its last turn is older than silentMs, and is told to turn again', () => {
    pass(silentMs, stands);
    expect([told, life()]).toEqual([[], 'turning']);
    pass(STEP_MS, { age: () => silentMs + 1 });
    expect([told, life()]).toEqual([[['node.stopped', busy.id]], 'stopped']);
    pass(STEP_MS, turns);
    expect([told.slice(1), life()]).toEqual([[['node.turning', busy.id]], 'turning']);
  });

  it('is given up when it does not turn for stoppedMs', () => {
    pass(stoppedMs, stands);
    expect(told).toEqual([['node.stopped', busy.id]]);
    pass(STEP_MS, { age: () => stoppedMs + 1 });
    expect(told.slice(1)).toEqual([['node.lost', busy.id, 'stopped']]);
    expect(life()).toBe('gone');
    expect(bare.groups.flatMap(({ data }) => data.map(({ node }) => node))).not.toContain(busy.id);
  });

  it('has shards again when it turns after all', () => {
    pass(stoppedMs + 2 * STEP_MS, stands);
    bare.complete(busy);
    expect(life()).toBe('turning');
  });
});

describe('a sink that stalls', () => {
  const late: Story = { ...turns, gap: 400 };
  /** The owner of a stream to a sink on the busy node says so: whether that sink is still there. */
  const isKept = (forMs = 3000): boolean => {
    const held = bare.groups.flatMap(({ sinks }) => sinks).filter(({ node }) => node === busy.id);
    const { sid } = held[0]!;
    const { id: g, version: v, data } = bare.groups.find(({ sinks }) => sinks.some((s) => s.sid === sid))!;
    const m = data.findIndex(({ node }) => node !== busy.id);
    const { node, gen } = data[m]!;
    bare.hear(node, { t: 'stalled', g, m, sid, gen, v, forMs });
    bare.answerQuestions();
    return bare.groups[g]!.sinks.some((sink) => sink.sid === sid);
  };

  it('is replaced where the event loop turns in time: the stall is not for want of time', () => {
    pass(silentMs, turns);
    expect(isKept()).toBe(false);
  });

  it('is kept where it turns late, and replaced when it turns in time and the sink stalls still', () => {
    pass(silentMs, late);
    expect(isKept()).toBe(true);
    pass(10 * STEP_MS, turns);
    expect(isKept()).toBe(false);
  });

  it('is kept while a turn lasts, and replaced when the process has stopped', () => {
    pass(silentMs, stands);
    expect([life(), isKept()]).toEqual(['turning', true]);
    pass(STEP_MS, { age: () => silentMs + 1 });
    expect([life(), isKept()]).toEqual(['stopped', false]);
  });

  it('is replaced after stoppedMs, also where the event loop turns late', () => {
    pass(silentMs, late);
    expect(isKept(stoppedMs - 1)).toBe(true);
    expect(isKept(stoppedMs)).toBe(false);
  });
});

describe('a process that turns late', () => {
  const overloaded = () => bare.scheduler.status().nodes.find(({ id }) => id === busy.id)!.overloaded;
  const late: Story = { ...turns, gap: 400 };

  it('is overloaded after overloadedMs, which is told once, and is not given up', () => {
    pass(overloadedMs, late);
    expect([told, overloaded()]).toEqual([[], undefined]);
    pass(2 * overloadedMs, late);
    expect([told, overloaded(), life()]).toEqual([[['node.overloaded', busy.id]], true, 'turning']);
    pass(10 * STEP_MS, turns);
    expect([told.length, overloaded()]).toEqual([1, undefined]);
  });

  it('is not overloaded when late turns come now and then', () => {
    for (let i = 0; i < 8; i++) {
      pass(overloadedMs / 2, late);
      pass(10 * STEP_MS, turns);
    }
    expect(told).toEqual([]);
  });

  it('is not overloaded because it had stopped', () => {
    pass(overloadedMs + silentMs, stands);
    pass(STEP_MS, { ...turns, gap: overloadedMs + silentMs });
    pass(STEP_MS, turns);
    expect(told).toEqual([
      ['node.stopped', busy.id],
      ['node.turning', busy.id],
    ]);
  });
});

describe('a pulse', () => {
  it('of an older process says nothing of the newest one', () => {
    const older = busy;
    busy = bare.join('ps-0');
    nodes[0] = busy;
    bare.complete(busy);
    expect(busy.inc).toBeGreaterThan(older.inc);
    pass(silentMs + 2 * STEP_MS, { ...turns, of: { id: busy.id, inc: older.inc } });
    expect(told).toContainEqual(['node.lost', busy.id, 'silent']);
  });

  it('of another job says nothing', () => {
    pass(silentMs + 2 * STEP_MS, { ...turns, job: 'another' });
    expect(told).toContainEqual(['node.lost', busy.id, 'silent']);
  });

  it('that does not come any more does not keep a process alive', () => {
    pass(silentMs, turns);
    pass(silentMs + 2 * STEP_MS, { age: () => undefined });
    expect(told).toEqual([['node.lost', busy.id, 'silent']]);
  });

  it('shows that the machine is there', () => {
    pass(2 * vanishedMs, { ...stands, links: true });
    const asked = bare.effects.filter((effect) => effect.kind === 'send' && effect.message.t === 'reach');
    expect([asked, told, life()]).toEqual([[], [], 'turning']);
  });

  it('shows that the scheduler itself is not cut off, so the silence of all others counts', () => {
    const [, ...others] = nodes;
    for (let ms = STEP_MS; ms <= silentMs + 2 * STEP_MS; ms += STEP_MS) {
      for (const { id, inc } of [busy, nodes[5]!])
        bare.hear(id, { t: 'pulse', node: id, inc, job: bare.scheduler.map.job, ageMs: 0, gapMs: 0 });
      bare.tick(STEP_MS);
      hear();
    }
    const lost = new Set(others.map(({ id }) => id));
    expect(told.some((event) => lost.has((event as [string, number])[1]))).toBe(true);
  });
});
