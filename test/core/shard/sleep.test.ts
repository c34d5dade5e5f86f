/**
 * A process that was stopped or swapped out, and runs again, must not take its own sleep for silence of its
 * peers.
 */
import { afterEach, expect, it } from 'vitest';
import { Cluster, kind } from '../harness.js';

let cluster: Cluster;
afterEach(() => cluster.close());

it('a scheduler that slept gives up nobody', () => {
  cluster = new Cluster({ k: 2, r: 1, spares: 1 });
  cluster.advance(600);
  const { epoch } = cluster.map;
  cluster.stepScheduler({ kind: 'closed', peer: cluster.nodes[0]!.id, inc: 1 });
  cluster.now += 60_000;
  cluster.stepScheduler({ kind: 'tick', now: cluster.now });
  expect(cluster.eventsNamed('node.lost')).toEqual([]);
  expect(cluster.eventsNamed('node.suspected')).toEqual([]);
  cluster.advance(600);
  expect([cluster.map.epoch, cluster.scheduler!.status().redundancy]).toEqual([epoch, 'full']);
});

it('an owner that slept does not report its sinks, and still reports one that stays silent', () => {
  cluster = new Cluster({ k: 2, r: 1, spares: 1 });
  const [client] = cluster.clients;
  cluster.advance(600);
  const held = [cluster.hold(kind('applied')), cluster.hold(kind('openAck'))];
  client!.push({ 0: [{ keys: [1] }] });
  cluster.settle();
  cluster.now += 60_000;
  cluster.advance(600);
  expect(cluster.eventsNamed('sink.stalled')).toEqual([]);
  cluster.advance(3900);
  expect(cluster.eventsNamed('sink.stalled')).not.toEqual([]);
  for (const answers of held) answers.release();
});
