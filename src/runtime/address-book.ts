/**
 * Addresses of the nodes of the newest map. They are parsed once per map, because every message that is sent
 * asks for one.
 */
import type { ClusterMap, PeerId } from '../protocol/map.js';
import { parseAddress } from './address.js';

export interface PeerAddress {
  host: string;
  port: number;
  inc: number;
}

export class AddressBook {
  private map: ClusterMap | undefined;
  private readonly addresses = new Map<PeerId, PeerAddress>();

  /** `current`: the map as it is now; a change of it is another object. */
  constructor(private readonly current: () => ClusterMap | undefined) {}

  /** undefined: the map does not have it, as it has no clients. */
  resolve(peer: PeerId): PeerAddress | undefined {
    const map = this.current();
    if (map !== this.map) {
      this.addresses.clear();
      this.map = map;
    }
    const known = this.addresses.get(peer);
    if (known) return known;
    const entry = map?.nodes.find(({ id }) => id === peer);
    if (!entry) return undefined;
    const address = { ...parseAddress(entry.address), inc: entry.inc };
    this.addresses.set(peer, address);
    return address;
  }
}
