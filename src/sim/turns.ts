/**
 * The turns of the event loops of nodes. In a part of the schedules a turn has room for few rows and bytes,
 * so that requests wait for the next one. What proves that a node lives never waits with them: no request is
 * served in the step of a tick, which has the heartbeat, or in that of a message of the scheduler or of a
 * node, and a probe is answered in its own step.
 *
 * Turns draw from randomness of their own.
 */
import type { Effect } from '../core/shared/outbox.js';
import { DEFAULT_POLICY, type Policy } from '../core/shared/policy.js';
import { Turn, type Work } from '../core/shared/turn.js';
import type { Message } from '../protocol/messages.js';
import type { NodeActor } from './actors.js';
import { Random } from './random.js';
import { Violation } from './violation.js';

/** Chance that the event loop of a node comes round after a step. */
const RATE = 0.3;
/** The same where turns are small: an answer takes a turn for each of its rows, and clients ask again. */
const SMALL_RATE = 0.9;
/** Messages of clients in whose steps rows may be read. */
const REQUESTS: ReadonlySet<Message['t']> = new Set(['pull', 'push', 'skipTo']);

export class Turns {
  private readonly random: Random;

  /**
   * `seed`: `SimConfig.turns`. `others`: randomness of the schedule, for turns that only read for a
   * checkpoint. `onBehind` is called when requests wait for a turn after a step.
   */
  constructor(
    private readonly seed: number,
    private readonly others: Random,
    private readonly onBehind: () => void,
  ) {
    this.random = new Random(seed + 0x7112);
  }

  /** True: the event loop of a node comes round now. */
  come({ node }: NodeActor): boolean {
    if (!node?.needsTurn) return false;
    return this.seed > 0 ? this.random.chance(SMALL_RATE) : this.others.chance(RATE);
  }

  /** The effects of a step. With the default room, requests do not wait for a turn. */
  with({ node }: NodeActor, effects: Effect[]): Effect[] {
    if (this.seed > 0 || !node?.hasRequests) return effects;
    const all = [...effects];
    while (node.hasRequests) all.push(...node.step({ kind: 'turn' }));
    return all;
  }

  /** Looks at the effects of the step of a tick (`message` is undefined), or of a message. */
  checked({ name, node }: NodeActor, message: Message | undefined, effects: Effect[]): Effect[] {
    if (node?.isBehind) this.onBehind();
    if (message && REQUESTS.has(message.t)) return effects;
    const sends = (t: Message['t']) =>
      effects.some((effect) => effect.kind === 'send' && effect.message.t === t);
    if (sends('rows')) throw new Violation(`${name} served a pull in the step of a ${message?.t ?? 'tick'}`);
    if (message?.t === 'reach' && !sends('reached')) throw new Violation(`${name} let a probe wait`);
    return effects;
  }
}

/** Room for one row or for some more in a turn; 0 = the defaults. */
export function turnLimits(seed: number): Partial<Policy> {
  if (seed === 0) return {};
  const random = new Random(seed);
  return { maxTurnRows: random.pick([1, 2, 6]), maxTurnBytes: random.pick([40, 200, 1000]) };
}

/** True: an answer of a shard is larger than a turn, so its rows may be of several moments. */
export function isSliced(seed: number, answer: Work): boolean {
  return seed > 0 && new Turn({ ...DEFAULT_POLICY, ...turnLimits(seed) }).isLarge(answer);
}
