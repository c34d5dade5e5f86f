/**
 * Nodes whose event loop is late while their process lives (rule 44). Such a node handles no message and no
 * tick for a time, and the kernel of its machine goes on. The thread of each node sends pulses on a
 * connection of its own, and some come very late, after the end of their process. All of it draws from
 * randomness of its own, so the schedules without it are the same.
 */

import type { PulseMessage } from '../protocol/liveness.js';
import type { PeerId } from '../protocol/map.js';
import type { NodeActor } from './actors.js';
import type { SimulatedCluster } from './cluster.js';
import { maxLacking } from './loss.js';
import { Random } from './random.js';
import { Violation } from './violation.js';

/** Chance per step that a node gets busy. */
const RATE = 0.002;
/** In retry times: longest time for which a node is busy, time between pulses, and delay of late ones. */
const BUSY_RETRIES = 40;
const PULSE_RETRIES = 1;
const LATE_RETRIES = 30;
/** Limits of the scheduler, in retry times. */
export const RECONNECT_RETRIES = 3;
export const SILENT_RETRIES = 20;
export const STOPPED_RETRIES = 25;

interface PulseUnderWay {
  message: PulseMessage;
  at: number;
}

export class Lives {
  private readonly random: Random;
  /** Pulses under way. */
  private pulses: PulseUnderWay[] = [];
  /** Time of the next pulses. */
  private nextAt = 0;
  /** Node -> its newest pulse that this scheduler has heard, and when, by the scheduler's clock. */
  private heard = new Map<PeerId, { inc: number; at: number; turnedAt: number }>();

  constructor(private readonly cluster: SimulatedCluster) {
    this.random = new Random(cluster.config.busy);
  }

  step(): void {
    const { cluster, random } = this;
    if (cluster.config.busy === 0) return;
    if (cluster.stormy && random.chance(RATE)) this.hold();
    if (cluster.faultsLeft <= 0) cluster.network.release();
    if (cluster.now >= this.nextAt) {
      this.nextAt = cluster.now + cluster.retry * PULSE_RETRIES;
      for (const [i, actor] of cluster.nodes.entries()) this.pulse(i + 1, actor);
    }
    const due = this.pulses.filter(({ at }) => at <= cluster.now);
    if (due.length === 0) return;
    this.pulses = this.pulses.filter(({ at }) => at > cluster.now);
    for (const { message } of due) this.deliver(message);
  }

  /** Another scheduler has heard nothing yet. */
  forget(): void {
    this.heard.clear();
  }

  private hold(): void {
    const { cluster, random } = this;
    const { config, network, now, retry } = cluster;
    const index = 1 + random.below(cluster.nodes.length);
    if (!cluster.nodes[index - 1]!.up || network.heldSince(index, now) !== undefined) return;
    if (config.guarded && maxLacking(cluster, index) > config.r) return;
    network.hold(index, now, now + random.below(retry * BUSY_RETRIES));
    cluster.count('busy');
    cluster.log(() => `** BUSY n${index}`);
  }

  private pulse(index: number, { up, identity }: NodeActor): void {
    const { cluster, random } = this;
    const { network, now, retry } = cluster;
    if (!up || !identity || !network.connected(0, index)) return;
    const { id: node, inc } = identity;
    const ageMs = now - (network.heldSince(index, now) ?? now);
    const late = random.chance(0.02) ? LATE_RETRIES : 1;
    const { job } = cluster.control.disk.map;
    const message: PulseMessage = { t: 'pulse', node, inc, job, ageMs, gapMs: ageMs };
    this.pulses.push({ message, at: now + random.below(retry * late) });
  }

  private deliver(message: PulseMessage): void {
    const { cluster } = this;
    const { control } = cluster;
    if (!control.running) return;
    const { node, inc, ageMs } = message;
    cluster.count('pulse');
    const passed = cluster.network.wire.passed(message);
    control.step({ kind: 'message', from: node, role: 'node', message: passed });
    const before = this.heard.get(node);
    if (before && before.inc > inc) return;
    const at = control.clock;
    const turnedAt = Math.max(at - ageMs, before?.inc === inc ? before.turnedAt : 0);
    this.heard.set(node, { inc, at, turnedAt });
  }

  /** Checks that a node that turns is not given up, unless nobody listens at its address. */
  checkLost({ node, inc, reason }: Readonly<Record<string, unknown>>): void {
    if (reason === 'refused' || reason === 'vanished') return;
    const heard = this.heard.get(node as PeerId);
    const { cluster } = this;
    if (!heard || heard.inc !== inc) return;
    const limit = cluster.retry * (reason === 'did not reconnect' ? RECONNECT_RETRIES : SILENT_RETRIES);
    const oldest = reason === 'stopped' ? heard.turnedAt : heard.at;
    if (reason === 'stopped') cluster.count('stopped');
    if (cluster.control.clock - oldest > limit) return;
    throw new Violation(
      `node ${String(node)} was given up (${String(reason)}) though its process sends pulses`,
    );
  }
}
