/** Maps and statuses that are made up: small ones to change by hand, and large ones. */
import type { ClusterMap, Group } from '../../../src/protocol/map.js';
import type { JobStatus, NodeStatus } from '../../../src/protocol/messages.js';

/** A job of one pool: `groups` groups of k+r on `nodes` nodes, of which `perHost` share a host. */
export function jobOf(nodes: number, groups: number, k: number, r: number, perHost = 1) {
  const ids = Array.from({ length: nodes }, (_, index) => index + 1);
  let sid = 1;
  const map: ClusterMap = {
    epoch: 5,
    job: 'job',
    pools: [{ name: 'embedding', k, r, firstGroup: 0, groups }],
    groups: Array.from({ length: groups }, (_, id): Group => {
      const seat = (place: number) => ((id + place) % nodes) + 1;
      return {
        id,
        pool: 0,
        version: 1,
        data: Array.from({ length: k }, (_, m) => ({ node: seat(m), inc: 1, gen: 1, init: true })),
        sinks: Array.from({ length: r }, (_, index) => ({
          sid: sid++,
          kind: 'P',
          index,
          node: seat(k + index),
          inc: 1,
          init: true,
          protects: true,
          acknowledges: true,
        })),
      };
    }),
    nodes: ids.map((id) => ({
      id,
      inc: 1,
      name: `ps-${id - 1}`,
      host: `host-${Math.floor((id - 1) / perHost)}`,
      address: `10.0.0.1:${id}`,
      standby: false,
    })),
    tables: [],
  };
  const status: JobStatus = {
    job: 'job',
    epoch: 5,
    redundancy: 'full',
    reasons: [],
    warnings: [],
    nodes: map.nodes.map(
      ({ id, name, host, address, inc }): NodeStatus => ({
        ...{ id, name, host, address, inc, alive: true, standby: false },
        ...{ life: 'turning', dataShards: 1, parityShards: 1, bytes: 1000, rows: 10 },
      }),
    ),
    pools: [{ name: 'embedding', code: `${k}+${r}`, groups, shards: groups * k }],
    tables: [],
    recoveries: [],
    unrecoverable: [],
    scaling: { wanted: nodes, serving: nodes, changes: [] },
  };
  return { map, status };
}
