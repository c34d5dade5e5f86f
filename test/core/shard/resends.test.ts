// Deltas that a sink missed are resent once, however often the sink is asked for its position meanwhile.
import { afterEach, describe, expect, it } from 'vitest';
import { Cluster, kind } from '../harness.js';

let cluster: Cluster;
afterEach(() => cluster.close());

const PUSHES = 10;
const RETRIES = 5;

/** One owner, and one sink that stays silent for longer than any retry. */
function start(): Cluster {
  cluster = new Cluster({ k: 1, r: 1, spares: 1, policy: { sinkStallMs: 600_000 } });
  return cluster;
}

function push(count: number): void {
  for (let i = 0; i < count; i++) {
    cluster.client.push({ 0: [{ keys: [1] }] });
    cluster.settle();
  }
}

describe('a sink that stalls', () => {
  it('gets each delta that it missed once, after any number of Opens', () => {
    start();
    const found = cluster.lose(kind('delta'));
    push(PUSHES);
    found();
    const opens = cluster.hold(kind('open'));
    cluster.advance((RETRIES + 1) * (cluster.policy.retryMs + 50));
    expect(opens.packets.length).toBeGreaterThanOrEqual(RETRIES);
    const mark = cluster.history.length;
    opens.release();
    cluster.settle();
    expect(cluster.sent('delta', mark).map(({ message }) => message.seq)).toEqual(
      Array.from({ length: PUSHES }, (_, i) => i + 1),
    );
    expect(cluster.client.core.unacknowledged).toBe(0);
    expect(cluster.read(0, 1)).toBe(PUSHES);
  });

  it('is sent what it missed once more when that was lost, too', () => {
    start();
    const found = cluster.lose(kind('delta'));
    push(PUSHES);
    cluster.advance(2 * (cluster.policy.retryMs + 50));
    found();
    const mark = cluster.history.length;
    cluster.advance(2 * (cluster.policy.retryMs + 50));
    expect(cluster.sent('delta', mark).length).toBe(PUSHES);
    expect(cluster.client.core.unacknowledged).toBe(0);
    expect(cluster.read(0, 1)).toBe(PUSHES);
  });

  it('leaves what it did not take to its replacement, which gets it once', () => {
    start();
    const found = cluster.lose(kind('delta'));
    push(PUSHES);
    found();
    const mark = cluster.history.length;
    cluster.crash(1);
    cluster.settle();
    const sink = cluster.map.groups[0]!.sinks[0]!;
    const sent = cluster.sent('delta', mark).filter(({ message }) => message.sid === sink.sid);
    expect(sent.map(({ message }) => message.seq)).toEqual(Array.from({ length: PUSHES }, (_, i) => i + 1));
    cluster.advance(1000);
    expect(cluster.client.core.unacknowledged).toBe(0);
    expect(cluster.read(0, 1)).toBe(PUSHES);
    expect(cluster.checkParities()).toBeGreaterThan(0);
  });
});
