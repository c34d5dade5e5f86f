/**
 * Addresses of the nodes of the newest map. They are parsed once per list of nodes, because every message
 * that is sent asks for one.
 */
import type { ClusterMap, NodeEntry, PeerId } from '../protocol/map.js';
import { parseAddress } from './address.js';

export interface PeerAddress {
  host: string;
  port: number;
  inc: number;
}

/** Nodes that hold a data shard or a sink in the map. */
function holdersOf({ groups }: ClusterMap): Set<PeerId> {
  const holders = new Set<PeerId>();
  for (const { data, sinks } of groups) {
    for (const { node } of data) holders.add(node);
    for (const { node } of sinks) holders.add(node);
  }
  return holders;
}

export class AddressBook {
  /** The list of nodes of the map when `resolve` was last called. */
  private nodes: readonly NodeEntry[] | undefined;
  /** Entries of `nodes` by id. */
  private readonly entries = new Map<PeerId, NodeEntry>();
  /** Parsed addresses of `nodes`, as far as they were asked for. */
  private readonly addresses = new Map<PeerId, PeerAddress>();
  private holders: { groups: ClusterMap['groups']; nodes: ReadonlySet<PeerId> } | undefined;

  /** `current`: the newest map. A map with other nodes has another list of them. */
  constructor(private readonly current: () => ClusterMap | undefined) {}

  /** Undefined for a peer that the map does not have: clients are in no map. */
  resolve(peer: PeerId): PeerAddress | undefined {
    const nodes = this.current()?.nodes;
    if (nodes !== this.nodes) this.follow(nodes);
    const known = this.addresses.get(peer);
    if (known) return known;
    const entry = this.entries.get(peer);
    if (!entry) return undefined;
    const address = { ...parseAddress(entry.address), inc: entry.inc };
    this.addresses.set(peer, address);
    return address;
  }

  /**
   * The node holds something. The map keeps nodes that are dead or have left and hold nothing, up to
   * `maxAbsentNodes`, so not every node that can be resolved is worth a connection.
   */
  holds(peer: PeerId): boolean {
    const map = this.current();
    if (!map) return false;
    if (this.holders?.groups !== map.groups) this.holders = { groups: map.groups, nodes: holdersOf(map) };
    return this.holders.nodes.has(peer);
  }

  private follow(nodes: readonly NodeEntry[] | undefined): void {
    this.nodes = nodes;
    this.addresses.clear();
    this.entries.clear();
    for (const node of nodes ?? []) this.entries.set(node.id, node);
  }
}
