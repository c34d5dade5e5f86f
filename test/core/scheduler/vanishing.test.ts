/**
 * Machines that vanish (rule 33): whom the scheduler asks, what it makes of the answers, and who comes back.
 */
import { beforeEach, describe, expect, it } from 'vitest';
import { DEFAULT_SCHEDULER_POLICY } from '../../../src/core/scheduler/scheduler.js';
import type { Group } from '../../../src/protocol/map.js';
import type { Message, MessageOf } from '../../../src/protocol/messages.js';
import { BareScheduler, type Identity } from './bare.js';

const { vanishedMs, silentMs, reconnectMs } = DEFAULT_SCHEDULER_POLICY;
const STEP_MS = 50;

let bare: BareScheduler;
let nodes: Identity[];
beforeEach(() => {
  bare = new BareScheduler(3, 2, 6);
  nodes = Array.from({ length: 6 }, (_, i) => bare.join(`ps-${i}`, i === 5 ? { standby: true } : {}));
  for (const node of nodes) bare.complete(node);
  bare.tick(STEP_MS);
});

const lost = (): unknown[] =>
  bare.effects.flatMap((effect) =>
    effect.kind === 'event' && effect.name === 'node.lost'
      ? [[effect.fields.node, effect.fields.reason]]
      : [],
  );

interface Story {
  /** Nodes whose kernel acknowledges nothing to the scheduler. */
  silent: readonly Identity[];
  /** The answer of a witness about a node; undefined: it does not answer. */
  says?: (witness: Identity, node: number, ms: number) => { silentMs?: number } | undefined;
  /** The silent nodes still send, though nothing is acknowledged. */
  talking?: boolean;
}

/** Time passes until somebody is lost: after how long, who, and why. */
function untilLost({ silent, says = (_, __, ms) => ({ silentMs: ms }), talking }: Story, limitMs: number) {
  const asked: number[] = [];
  for (let ms = STEP_MS; ms <= limitMs; ms += STEP_MS) {
    for (const node of nodes) if (talking || !silent.includes(node)) bare.complete(node);
    bare.step({ kind: 'silent', links: silent.map(({ id, inc }) => ({ node: id, inc, ms })) });
    bare.tick(STEP_MS);
    if (lost().length > 0) return { ms, lost: lost(), asked };
    const questions = bare.effects.flatMap((effect) =>
      effect.kind === 'send' && effect.message.t === 'reach' ? [[effect.to, effect.message] as const] : [],
    );
    for (const [to, { node, inc }] of questions) {
      asked.push(to);
      const witness = nodes.find(({ id }) => id === to)!;
      const answer = silent.includes(witness) ? undefined : says(witness, node, ms);
      const message: Message = { t: 'reached', node, inc, ...answer };
      if (answer) bare.hear(to, message);
    }
  }
  return { ms: limitMs, lost: [], asked };
}

describe('a machine that vanishes', () => {
  it('is lost when its kernel acknowledges nothing to anybody', () => {
    const [gone] = nodes as [Identity];
    const story = untilLost({ silent: [gone] }, silentMs);
    expect(story.lost).toEqual([[gone.id, 'vanished']]);
    expect(story.ms).toBe(vanishedMs);
    expect(bare.effects).toContainEqual({ kind: 'abandon', node: gone.id, inc: gone.inc });
    expect(bare.groups.flatMap(({ data }) => data.map(({ node }) => node))).not.toContain(gone.id);
  });

  it('is not lost while somebody hears it: it is cut off from the scheduler only', () => {
    const [gone, friend] = nodes as [Identity, Identity];
    const says: Story['says'] = ({ id }, _, ms) => ({ silentMs: id === friend.id ? 0 : ms });
    const story = untilLost({ silent: [gone], says }, 2 * silentMs);
    expect(story.lost).toEqual([[gone.id, 'silent']]);
    expect(story.ms).toBeGreaterThan(silentMs - STEP_MS);
  });

  it('is not lost, and nobody is asked, while it acknowledges on the own link', () => {
    const story = untilLost({ silent: [] }, 2 * silentMs);
    expect(story).toMatchObject({ lost: [], asked: [] });
  });

  it('is not lost while its heartbeats arrive', () => {
    const story = untilLost({ silent: [nodes[0]!], talking: true }, 2 * silentMs);
    expect(story).toMatchObject({ lost: [], asked: [] });
  });

  it('is not lost as long as nobody has a link to it', () => {
    const says = () => ({});
    expect(untilLost({ silent: [nodes[0]!], says }, silentMs - STEP_MS).lost).toEqual([]);
  });

  it('is not lost as long as most do not answer', () => {
    const [gone, friend] = nodes as [Identity, Identity];
    const says: Story['says'] = ({ id }, _, ms) => (id === friend.id ? { silentMs: ms } : undefined);
    expect(untilLost({ silent: [gone], says }, silentMs - STEP_MS).lost).toEqual([]);
  });

  it('is not lost on the word of those who were asked long ago', () => {
    const says: Story['says'] = (_, __, ms) => (ms < vanishedMs / 2 ? { silentMs: ms } : undefined);
    expect(untilLost({ silent: [nodes[0]!], says }, silentMs - STEP_MS).lost).toEqual([]);
  });

  it('is lost together with another one, in one decision', () => {
    const two = [nodes[0]!, nodes[1]!];
    const story = untilLost({ silent: two }, silentMs);
    expect(story).toMatchObject({ ms: vanishedMs, lost: two.map(({ id }) => [id, 'vanished']) });
  });

  it('is not lost by this rule with more than the code restores: the scheduler may be cut off', () => {
    const story = untilLost({ silent: nodes.slice(0, 3) }, silentMs - STEP_MS);
    expect(story.lost).toEqual([]);
  });
});

describe('a sink that stalls while its machine has vanished', () => {
  let owner: Identity;
  let sinkAt: Identity;
  let other: Identity;
  const [g, m, sid] = [0, 0, 1];
  beforeEach(() => {
    bare = new BareScheduler(2, 1);
    nodes = Array.from({ length: 4 }, (_, i) => bare.join(`ps-${i}`, i === 3 ? { standby: true } : {}));
    for (const node of nodes) bare.complete(node);
    const [{ data, sinks }] = bare.groups as [Group];
    const at = (entry: { node: number }) => nodes.find(({ id }) => id === entry.node)!;
    [owner, other, sinkAt] = [at(data[m]!), at(data[1]!), at(sinks[0]!)];
    expect(sinks[0]!.sid).toBe(sid);
  });

  /** The owner says that the sink stalls: whether that is still there. */
  const isKept = (dead: readonly Identity[] = []): boolean => {
    const { gen } = bare.groups[g]!.data[m]!;
    bare.hear(owner.id, { t: 'stalled', g, m, sid, gen, v: bare.groups[g]!.version });
    bare.answerQuestions(dead.map(({ id }) => id));
    return bare.groups[g]!.sinks.some((sink) => sink.sid === sid);
  };

  it('is replaced when the rest of its group is there', () => {
    expect(untilLost({ silent: [] }, vanishedMs).lost).toEqual([]);
    expect(isKept()).toBe(false);
  });

  it('is kept until each other member has said that it lives: one may have died a moment ago', () => {
    expect(isKept([owner, other])).toBe(true);
    expect(isKept([other])).toBe(true);
    const { gen } = bare.groups[g]!.data[m]!;
    bare.hear(owner.id, { t: 'stalled', g, m, sid, gen, v: bare.groups[g]!.version });
    const [[to, { node, inc, round = 0 }], ...more] = [...bare.questions()] as [[number, MessageOf<'reach'>]];
    expect([to, more]).toEqual([other.id, []]);
    // The answer to an earlier question.
    bare.hear(to, { t: 'reached', node, inc, round: round - 1 });
    expect(bare.groups[g]!.sinks.some((sink) => sink.sid === sid)).toBe(true);
    bare.hear(to, { t: 'reached', node, inc, round });
    expect(bare.groups[g]!.sinks.some((sink) => sink.sid === sid)).toBe(false);
  });

  it('is replaced where nodes of an older program answer without the number of the question, too', () => {
    const { gen } = bare.groups[g]!.data[m]!;
    bare.hear(owner.id, { t: 'stalled', g, m, sid, gen, v: bare.groups[g]!.version });
    for (const [to, { node, inc }] of bare.questions()) bare.hear(to, { t: 'reached', node, inc });
    expect(bare.groups[g]!.sinks.some((sink) => sink.sid === sid)).toBe(false);
  });

  it('is kept while that of another member has vanished, too: it may be the only one to come back', () => {
    expect(untilLost({ silent: [sinkAt, other] }, vanishedMs).lost).toEqual([]);
    expect(isKept()).toBe(true);
    const back = untilLost({ silent: [other] }, vanishedMs);
    expect(back.lost).toEqual([[other.id, 'vanished']]);
  });

  it('is kept while another member is silent for reasons that nobody knows', () => {
    for (let ms = 0; ms <= reconnectMs; ms += STEP_MS) {
      for (const node of nodes) if (node !== other) bare.complete(node);
      bare.tick(STEP_MS);
    }
    expect(isKept()).toBe(true);
    bare.complete(other);
    expect(isKept()).toBe(false);
  });
});

describe('a scheduler that hears nobody', () => {
  const MOMENTS = 3 * (silentMs / STEP_MS);
  beforeEach(() => {
    expect(untilLost({ silent: nodes }, MOMENTS * STEP_MS).lost).toEqual([]);
  });

  it('is cut off itself: it gives up nobody while they come back one after the other', () => {
    for (let back = 1; back <= nodes.length; back++) {
      const story = untilLost({ silent: nodes.slice(back) }, silentMs / nodes.length / 2);
      expect(story.lost).toEqual([]);
    }
  });

  it('gives up one that does not come back with the others', () => {
    const [gone] = nodes as [Identity];
    const says: Story['says'] = () => ({});
    const story = untilLost({ silent: [gone], says }, silentMs);
    expect(story.lost).toEqual([[gone.id, 'silent']]);
  });
});

describe('a process that was given up and comes back', () => {
  const changes = (): string[] =>
    bare.scheduler.status().scaling.changes.map(({ kind, state }) => `${kind} ${state}`);

  it('gets shards as a new one does, when it joins again', () => {
    const [gone] = nodes as [Identity];
    untilLost({ silent: [gone] }, silentMs);
    expect(changes()).toEqual([]);
    bare.join('ps-0', { ...gone, job: bare.scheduler.map.job });
    expect(changes()).toEqual(['join running']);
  });

  it('gets shards likewise when it is heard again on the connection that it had', () => {
    const [gone] = nodes as [Identity];
    untilLost({ silent: [gone] }, silentMs);
    bare.complete(gone);
    expect(changes()).toEqual(['join running']);
  });
});
