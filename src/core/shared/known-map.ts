/** The newest map that a client or a replica knows, and the question for a newer one. */
import { type ClusterMap, EMPTY_MAP, type Group } from '../../protocol/map.js';
import { changeBy } from '../../protocol/map-diff.js';
import type { MessageOf } from '../../protocol/messages.js';
import { Retry } from './retry.js';

export interface KnownChange {
  /** The map before the change. */
  before: ClusterMap;
  /** The groups that changed. */
  groups: readonly Group[];
}

export class KnownMap {
  /** Epochs only rise. */
  newest: ClusterMap = EMPTY_MAP;
  private readonly asking: Retry;

  constructor(
    /** A question without an answer is repeated after so many milliseconds. */
    waitMs: number,
    private readonly send: (message: MessageOf<'mapRequest'>) => void,
  ) {
    this.asking = new Retry({ waitMs });
  }

  /** Takes a newer map; undefined: nothing is new. After a gap in the changes a whole map is asked for. */
  take(message: MessageOf<'map'> | MessageOf<'mapDiff'>, now: number): KnownChange | undefined {
    const change = changeBy(this.newest, message);
    if (change === 'gap') this.ask(now);
    if (typeof change === 'string') return undefined;
    const before = this.newest;
    this.newest = change.map;
    this.asking.answered(now);
    return { before, groups: change.groups };
  }

  /** Changes of the map were lost, or an answer is overdue, which a newer map would explain. */
  ask(now: number): void {
    if (!this.asking.overdue(now)) return;
    this.asking.asked(now);
    this.send({ t: 'mapRequest', epoch: this.newest.epoch });
  }
}
