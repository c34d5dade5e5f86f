/** Looks whether the processes of nodes whose connections have closed are gone. */
import { setTimeout as pause } from 'node:timers/promises';
import type { SchedulerInput } from '../../core/scheduler/scheduler.js';
import { parseAddress } from '../../net/address.js';
import { monotonicMs } from '../../net/log.js';
import { pauseAfter, probe } from '../../net/probe.js';
import type { PeerId } from '../../protocol/map.js';

/** So long is looked whether a node's process is gone. */
const PROBE_LIMIT_MS = 10_000;

export interface ProbingHost {
  readonly reconnectMs: number;
  /** Nodes of the newest map. */
  nodes(): readonly { id: PeerId }[];
  isConnected(node: PeerId): boolean;
  step(input: SchedulerInput): void;
}

export class Probing {
  /** Where the connections of nodes came from. */
  private readonly calledFrom = new Map<PeerId, string>();
  /** Nodes that are being probed. */
  private probed = 0;
  private closed = false;

  constructor(private readonly host: ProbingHost) {}

  /** Where a node calls from; forgotten with the node. */
  remember(node: PeerId, host: string): void {
    this.calledFrom.set(node, host);
    const nodes = this.host.nodes();
    if (this.calledFrom.size <= 2 * nodes.length) return;
    const named = new Set(nodes.map(({ id }) => id));
    for (const id of this.calledFrom.keys()) if (!named.has(id)) this.calledFrom.delete(id);
  }

  /** Probes the node until it is gone for certain, is back, or the time is over. */
  async probe(node: PeerId, inc: number, address: string): Promise<void> {
    const until = monotonicMs() + PROBE_LIMIT_MS;
    this.probed++;
    for (;;) {
      const finding = await probe(parseAddress(address), this.calledFrom.get(node));
      if (this.closed || this.host.isConnected(node)) break;
      if (finding === 'gone') this.host.step({ kind: 'refused', node, inc });
      if (finding === 'gone' || monotonicMs() > until) break;
      // An unclear finding is left to the timers of the core.
      if (finding === 'listening') this.host.step({ kind: 'listening', node, inc });
      await pause(pauseAfter(finding, this.probed, this.host.reconnectMs), undefined, { ref: false });
    }
    this.probed--;
  }

  close(): void {
    this.closed = true;
  }
}
