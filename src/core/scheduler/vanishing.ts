/**
 * Nodes whose machine has vanished (rule 33). A kernel acknowledges what it receives while its process is
 * stalled, stopped or starved; a machine without power or network acknowledges nothing. One link cannot tell
 * a vanished machine from a broken path. So a node is gone only when the scheduler's own link is
 * unacknowledged, and those who have links to it say the same, and nobody hears it.
 */
import type { Group, PeerId } from '../../protocol/map.js';
import type { MessageOf } from '../../protocol/messages.js';
import type { SchedulerPolicy } from '../shared/policy.js';

/** A node that has acknowledged nothing on the scheduler's link for `ms`. */
export interface Silence {
  node: PeerId;
  inc: number;
  ms: number;
}

interface Suspect extends Silence {
  /** Milliseconds of the last question to witnesses. */
  askedAt: number;
  /** The witnesses that were asked then. */
  asked: readonly PeerId[];
  /** Witness -> what its link says (undefined: it has none), and when it said so. */
  answers: Map<PeerId, { silentMs: number | undefined; at: number }>;
}

/** Parts of `vanishedMs` after which witnesses are asked about a silent node, and asked again. */
const ASK_AFTER = 1 / 4;
const ASK_AGAIN = 1 / 7;
/**
 * A witness pings its link only when it is asked, so its link has been silent for less time than the
 * scheduler's.
 */
const SILENT_FOR = 1 / 3;
/** Part of `vanishedMs` for which an answer counts: an older one says nothing of now. */
const FRESH_FOR = 1 / 2;
/**
 * From this part of `vanishedMs` on, an unheard suspect delays the loss of the others until it is lost, too:
 * machines that vanish together are lost in one decision.
 */
const SOON = 1 / 2;
const MAX_WITNESSES = 8;

export class Vanishing {
  /** Nodes whose link is unacknowledged, and that are not heard either. */
  private suspects = new Map<PeerId, Suspect>();

  constructor(private readonly policy: Pick<SchedulerPolicy, 'vanishedMs'>) {}

  /** All links that are unacknowledged now. */
  learn(silent: readonly Silence[]): void {
    const suspects = new Map<PeerId, Suspect>();
    for (const { node, inc, ms } of silent) {
      if (ms < this.policy.vanishedMs * ASK_AFTER) continue;
      const known = this.suspects.get(node);
      const same = known?.inc === inc ? known : undefined;
      const asked = same ?? { askedAt: Number.NEGATIVE_INFINITY, asked: [], answers: new Map() };
      suspects.set(node, { ...asked, node, inc, ms });
    }
    this.suspects = suspects;
  }

  isSuspect(node: PeerId): boolean {
    return this.suspects.has(node);
  }

  get all(): PeerId[] {
    return [...this.suspects.keys()];
  }

  answered(from: PeerId, { node, inc, silentMs }: MessageOf<'reached'>, now: number): void {
    const suspect = this.suspects.get(node);
    if (suspect?.inc === inc && suspect.asked.includes(from))
      suspect.answers.set(from, { silentMs, at: now });
  }

  /** Whom to ask now, and for which node. `witnessesOf`: those that may have a link to it. */
  ask(now: number, witnessesOf: (node: PeerId) => PeerId[]): [to: PeerId, question: MessageOf<'reach'>][] {
    const due = [...this.suspects.values()].filter(
      ({ askedAt }) => now - askedAt >= this.policy.vanishedMs * ASK_AGAIN,
    );
    return due.flatMap((suspect) => {
      const { node, inc } = suspect;
      suspect.askedAt = now;
      suspect.asked = witnessesOf(node)
        .filter((id) => id !== node && !this.isSuspect(id))
        .slice(0, MAX_WITNESSES);
      return suspect.asked.map((to): [PeerId, MessageOf<'reach'>] => [
        to,
        { t: 'reach', node, inc, round: 0 },
      ]);
    });
  }

  /** Nodes that are gone. None while another one will be soon. */
  gone(now: number): PeerId[] {
    const unheard = [...this.suspects.values()].filter((suspect) => this.isUnheard(suspect, now));
    const { vanishedMs } = this.policy;
    if (unheard.some(({ ms }) => ms >= vanishedMs * SOON && ms < vanishedMs)) return [];
    return unheard.filter(({ ms }) => ms >= vanishedMs).map(({ node }) => node);
  }

  /** Most of those that were asked have answered, somebody has a link, and all links say the same. */
  private isUnheard({ asked, answers }: Suspect, now: number): boolean {
    const { vanishedMs } = this.policy;
    const able = asked.filter((id) => !this.isSuspect(id));
    const fresh = able.flatMap((id) => {
      const answer = answers.get(id);
      return answer && now - answer.at <= vanishedMs * FRESH_FOR ? [answer.silentMs] : [];
    });
    if (2 * fresh.length <= able.length) return false;
    const links = fresh.filter((silentMs) => silentMs !== undefined);
    return links.length > 0 && links.every((silentMs) => silentMs >= vanishedMs * SILENT_FOR);
  }
}

/**
 * Nodes that hold parts of the groups `held` by the node, those with the most first. These nodes are the ones
 * most likely to have a link to it.
 */
export function neighbours(node: PeerId, held: readonly Group[]): PeerId[] {
  const common = new Map<PeerId, number>();
  for (const group of held) {
    const members = new Set([...group.data, ...group.sinks].map((entry) => entry.node));
    for (const other of members) common.set(other, (common.get(other) ?? 0) + 1);
  }
  common.delete(node);
  common.delete(0);
  return [...common].sort(([a, x], [b, y]) => y - x || a - b).map(([id]) => id);
}
