/** A sink that the system refuses memory: another node takes its place, and no other shard notices. */
import { afterEach, expect, it, vi } from 'vitest';
import { KintsugiError } from '../../../src/common/errors.js';
import { PushStatus } from '../../../src/engine/native.js';
import { Cluster, native } from '../harness.js';

let cluster: Cluster;
afterEach(() => {
  vi.restoreAllMocks();
  cluster.close();
});

const sinkEntry = () => cluster.map.groups[0]!.sinks[0]!;

function pushToAll(): void {
  for (let m = 0; m < 2; m++) cluster.client.push({ [m]: [{ keys: [1, 2, 3] }] });
  cluster.settle();
}

function expectAllDone(pushes: number): void {
  expect(cluster.eventsNamed('sink.failed')).toHaveLength(1);
  expect(cluster.client.core.unacknowledged).toBe(0);
  for (let m = 0; m < 2; m++) expect(cluster.read(m, 2)).toBe(pushes);
  expect(cluster.checkParities()).toBeGreaterThan(0);
}

it('is replaced elsewhere when a delta does not fit', () => {
  cluster = new Cluster({ k: 2, r: 1, spares: 1 });
  pushToAll();
  const { node, sid } = sinkEntry();
  vi.spyOn(cluster.sink(0).native, 'apply').mockReturnValue(PushStatus.MEMORY_LIMIT);
  pushToAll();
  // A new map does not create the sink again: it would be empty and call itself complete.
  cluster.addNode();
  cluster.settle();
  expect(sinkEntry().sid).toBe(sid);
  expect(cluster.nodeById(node).node!.sinkAt(sid)).toBeUndefined();
  cluster.advance(30_000);
  expect(sinkEntry().node).not.toBe(node);
  expectAllDone(2);
});

it('is not created again when its group changes', () => {
  cluster = new Cluster({ k: 2, r: 2, spares: 2 });
  pushToAll();
  const { node, sid } = sinkEntry();
  vi.spyOn(cluster.sink(0).native, 'apply').mockReturnValue(PushStatus.MEMORY_LIMIT);
  pushToAll();
  const { version } = cluster.map.groups[0]!;
  cluster.crash(3);
  cluster.settle();
  expect(cluster.map.groups[0]!.version).toBeGreaterThan(version);
  expect(sinkEntry().sid).toBe(sid);
  expect(cluster.nodeById(node).node!.sinkAt(sid)).toBeUndefined();
  cluster.advance(30_000);
  expect(sinkEntry().node).not.toBe(node);
  expectAllDone(2);
});

it('is replaced elsewhere when the extents of a member do not fit', () => {
  cluster = new Cluster({ k: 2, r: 1, spares: 2 });
  pushToAll();
  const create = native.createSink.bind(native);
  vi.spyOn(native, 'createSink').mockImplementationOnce((...args) => {
    const sink = create(...args);
    vi.spyOn(sink, 'start').mockImplementation(() => {
      throw new KintsugiError('MEMORY_LIMIT', 'no more');
    });
    return sink;
  });
  cluster.crash(2);
  cluster.settle();
  pushToAll();
  cluster.advance(30_000);
  expectAllDone(2);
});

it('says that it knows nothing when a check does not fit, and is replaced', () => {
  cluster = new Cluster({ k: 2, r: 1, spares: 1 });
  pushToAll();
  const { node, sid } = sinkEntry();
  vi.spyOn(cluster.sink(0).native, 'check').mockImplementation(() => {
    throw new KintsugiError('MEMORY_LIMIT', 'no more');
  });
  const ticket = cluster.client.check(node, sid);
  pushToAll();
  cluster.advance(30_000);
  expect(ticket.answer).toMatchObject({ t: 'checked', unknown: true });
  expectAllDone(2);
});
