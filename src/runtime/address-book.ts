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

export class AddressBook {
  private nodes: readonly NodeEntry[] | undefined;
  private readonly entries = new Map<PeerId, NodeEntry>();
  private readonly addresses = new Map<PeerId, PeerAddress>();

  /** `current`: the map as it is now; when its nodes change they are another list. */
  constructor(private readonly current: () => ClusterMap | undefined) {}

  /** undefined: the map does not have it, as it has no clients. */
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

  private follow(nodes: readonly NodeEntry[] | undefined): void {
    this.nodes = nodes;
    this.addresses.clear();
    this.entries.clear();
    for (const node of nodes ?? []) this.entries.set(node.id, node);
  }
}
