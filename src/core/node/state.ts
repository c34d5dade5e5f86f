/** The state of a node that is logged when it fails: positions, no bytes. */
import type { Owner } from '../shard/owner.js';
import type { Sink } from '../sink/sink.js';

/** The most owners, and the most sinks, that are logged: a log record has a limit. */
const MAX_ENTRIES = 64;

export function stateOf(owners: Iterable<Owner>, sinks: Iterable<Sink>): Record<string, unknown> {
  return {
    owners: [...owners].slice(0, MAX_ENTRIES).map((owner) => {
      const { group, member, gen, stream } = owner;
      return { g: group.id, v: group.version, m: member, gen, ...stream.state() };
    }),
    sinks: [...sinks].slice(0, MAX_ENTRIES).map((sink) => ({
      g: sink.groupId,
      v: sink.version,
      sid: sink.sid,
      members: sink.positions(),
    })),
  };
}
