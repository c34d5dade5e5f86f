/** What the scheduler lends to scaler and moves. */
import type { Group, PeerId } from '../../../protocol/map.js';
import type { RecoveryStats } from '../../../protocol/messages.js';
import type { GroupIndex } from '../../placement/group-index.js';
import type { ClusterView } from '../../placement/health.js';
import type { SchedulerPolicy } from '../../shared/policy.js';
import type { Ledger } from '../ledger.js';
import type { Loads } from '../loads.js';
import type { Names } from '../names.js';

export interface ScalerHost {
  readonly ledger: Ledger;
  readonly policy: SchedulerPolicy;
  readonly names: Names;
  readonly loads: Loads;
  view(): ClusterView;
  /** Recoveries under way, by the newest reports. */
  recoveries(): Iterable<RecoveryStats>;
  /** What is known of the groups of the newest map. */
  index(): GroupIndex;
  /** No member of any group lacks anything by the latest reports, but for groups that are beyond repair. */
  settled(): boolean;
  /** Beyond repair: nothing of it can move, and nothing waits for it. */
  isLost(group: Group): boolean;
  /** Where shards may be placed has changed, so repair must look again. */
  unsettle(): void;
  /** The process was told to leave, and its name is no member any more. */
  forget(node: PeerId): void;
}
