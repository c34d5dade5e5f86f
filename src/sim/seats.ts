/**
 * Seats of a group that arrive at other nodes, compared with rule 48: none arrives beside another one, unless
 * the holder that it leaves is lost, has stalled or is a parity of which nobody has said that it is complete.
 */
import { type DataEntry, type Group, isInUse, parities, type SinkEntry } from '../protocol/map.js';
import { Violation } from './violation.js';

/**
 * Checks a decision about a group, and counts what arrived. `isLost`: the scheduler takes this holder for
 * dead or stalled, or has not heard that this parity is complete.
 */
export function checkSeats(
  before: Group,
  after: Group,
  isLost: (holder: DataEntry | SinkEntry) => boolean,
  count: (name: string) => void,
): void {
  const seatNodes = [...after.data, ...parities(after)].map(({ node }) => node);
  for (const target of before.sinks) {
    if (target.movesMember === undefined) continue;
    const { kind, index, sid } = target;
    const from =
      kind === 'M'
        ? before.data[index]!
        : before.sinks.find((sink) => isInUse(sink) && sink.index === index && sink.sid !== sid);
    if (after.sinks.find((sink) => sink.sid === sid)?.movesMember !== undefined) continue;
    const to = kind === 'M' ? after.data[index] : after.sinks.find((sink) => sink.sid === sid);
    if (to?.node !== target.node || !from || from.node === target.node) continue;
    const arrivesBeside = seatNodes.filter((node) => node === to.node).length > 1;
    if (arrivesBeside && !isLost(from))
      throw new Violation(`sink ${sid} of group ${before.id} arrives where another seat of the group is`);
    if (kind === 'M') count('promotion');
    else if (seatNodes.includes(from.node)) count('swap');
  }
}
