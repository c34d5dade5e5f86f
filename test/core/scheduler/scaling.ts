/** A cluster whose nodes join, leave and move, and what is asked of its scheduler. */
import { expect } from 'vitest';
import { seatsOf } from '../../../src/core/placement/balance.js';
import type { Message, MessageOf } from '../../../src/protocol/messages.js';
import { Cluster, type ClusterOptions } from '../harness.js';

export let cluster: Cluster;
export const start = (options: Partial<ClusterOptions> = {}): Cluster => {
  cluster = new Cluster({ k: 2, r: 1, groups: 4, ...options });
  cluster.advance(600);
  return cluster;
};

type Ask = MessageOf<'scale'> | MessageOf<'drain'> | MessageOf<'rebalance'>;

/** Asks the scheduler as a client (or another peer) would; its answer. */
export function ask(message: Ask, from = cluster.client.id): MessageOf<'changeReply'> {
  const mark = cluster.history.length;
  cluster.stepScheduler({ kind: 'message', from, role: cluster.roleOf(from), message: message as Message });
  const answers = cluster.sent('changeReply', mark).map((packet) => packet.message);
  cluster.settle();
  expect(answers.length).toBe(1);
  return answers[0]!;
}
export const scale = (ps: number, timeoutMs = 0) => ask({ t: 'scale', id: 1, ps, timeoutMs });
export const drain = (node: string, timeoutMs = 0) => ask({ t: 'drain', id: 2, node, timeoutMs });
export const rebalance = (dryRun = false) => ask({ t: 'rebalance', id: 3, dryRun, timeoutMs: 0 });

export const scaling = () => cluster.scheduler!.status().scaling;
export const change = (id: number) => scaling().changes.find((entry) => entry.id === id)!;
export const held = (name: string): number => {
  const { id } = cluster.nodes.find((actor) => actor.name === name)!;
  return cluster.map.groups.flatMap(seatsOf).filter((seat) => seat.node === id).length;
};
export const counts = () => cluster.nodes.filter((actor) => actor.node).map((actor) => held(actor.name));
export const names = () => cluster.map.nodes.map((node) => node.name);
export const sinks = () => cluster.map.groups.map((group) => group.sinks.length);

/** Rows in every shard, so that there is something to move. */
export function fill(): void {
  for (let g = 0; g < 4; g++)
    for (let m = 0; m < 2; m++) cluster.client.push({ [m]: [{ keys: [1 + g] }] }, g);
  cluster.settle();
}
