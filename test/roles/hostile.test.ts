// Peers that break every rule: their connection closes or they are not heard, and the role goes on serving
// the others.
import { describe, expect, it, onTestFinished } from 'vitest';
import type { Client, Table } from '../../src/library/client/client.js';
import { listen } from '../../src/net/transport/index.js';
import { packItems } from '../../src/protocol/items.js';
import { SCHEDULER } from '../../src/protocol/map.js';
import type { MessageOf } from '../../src/protocol/messages.js';
import type { LocalCluster } from '../../src/roles/cluster.js';
import { RawClient } from '../net/transport/support.js';
import { COUNTING, client, cluster, firstKeys, redundant, rejection } from './support.js';

const portOf = (address: string): number => Number(address.split(':').at(-1));

/** A connection that has proved itself and has said nothing else. */
async function raw(address: string): Promise<RawClient> {
  const peer = new RawClient(portOf(address));
  onTestFinished(() => peer.ws.terminate());
  return peer.prove();
}

const STRANGER = 4242;
const hello = (job: string) => ({ t: 'hello', peer: STRANGER, inc: 0, job });
const nodeHello = (job: string, inc = 1) => ({ ...hello(job), inc });

interface Job {
  job: LocalCluster;
  trainer: Client;
  table: Table;
  /** Pushes and pulls all shards: everything must be as it was, plus one. */
  works(): Promise<void>;
}

async function start(): Promise<Job> {
  const job = await cluster({ code: '2+1' });
  const trainer = await client(job.address);
  const table = await trainer.createTable({ name: 't', ...COUNTING });
  let pushed = 0;
  const works = async () => {
    await table.push(firstKeys(100), new Float32Array(200).fill(1));
    pushed++;
    expect(await table.pull(firstKeys(100))).toEqual(new Float32Array(200).fill(pushed));
  };
  await works();
  await redundant(trainer, 3);
  return { job, trainer, table, works };
}

const garbage = (length: number): Uint8Array => Uint8Array.from({ length }, (_, i) => (i * 151 + 37) & 255);

/** Push `cseq` to shard 0/0, with a section of so many bytes. */
const push = (cseq: number, bytes: number): Uint8Array => packItems('push', [[0, 0, cseq, bytes]]);
const IMPOSSIBLE = push(1, 8).fill(255, 12, 16);
/** Their sum is 8 where words overflow. */
const OVERFLOWING = packItems('push', [
  [0, 0, 1, 2 ** 31],
  [0, 0, 2, 2 ** 31 + 8],
]);

/** Frames that no role can take; each on a connection of its own. */
const CHANGES = { t: 'mapDiff', from: 0, to: 1e6, nodes: [], removed: [], tables: [] };
const FRAMES: [string, (peer: RawClient) => void][] = [
  ['an unknown kind', (peer) => peer.send({ t: 'nonsense' })],
  ['a kind of the prototype', (peer) => peer.send({ t: 'constructor' })],
  ['a kind of the handshake', (peer) => peer.send({ t: 'proof', nonce: new Uint8Array(32) })],
  ['no kind', (peer) => peer.ws.send(garbage(64))],
  ['an empty frame', (peer) => peer.ws.send(new Uint8Array(0))],
  ['a truncated frame', (peer) => peer.ws.send(Uint8Array.of(200, 0, 0, 0, 0x91, 0x81))],
  ['a text message', (peer) => peer.ws.send('hello')],
  ['a field of a wrong type', (peer) => peer.send({ t: 'push', epoch: '1', items: [] })],
  ['a list that is not packed', (peer) => peer.send({ t: 'push', epoch: 0, items: [[0, 0, 1]] })],
  ['half an item', (peer) => peer.send({ t: 'push', epoch: 0, items: garbage(19) }, [garbage(8)])],
  ['an impossible number', (peer) => peer.send({ t: 'push', epoch: 0, items: IMPOSSIBLE }, [garbage(8)])],
  ['sizes that do not fit', (peer) => peer.send({ t: 'push', epoch: 0, items: push(1, 9) }, [garbage(8)])],
  ['sizes beyond a word', (peer) => peer.send({ t: 'push', epoch: 0, items: OVERFLOWING }, [garbage(8)])],
  ['rows instead of sections', (peer) => peer.send({ t: 'pull', epoch: 0, id: 1, items: push(1, 8) })],
  ['a missing field', (peer) => peer.send({ t: 'delta', g: 0, m: 0 })],
  ['a join without a name', (peer) => peer.send({ t: 'join', host: '', address: '', standby: false })],
  ['a map that is none', (peer) => peer.send({ t: 'map', map: { epoch: 1e6 } })],
  ['groups that are none', (peer) => peer.send({ ...CHANGES, groups: garbage(64) })],
];

describe('a PS', () => {
  it.each(FRAMES)('closes on %s, before and after a hello', async (_, send) => {
    const { job, trainer, works } = await start();
    const node = job.nodes[0]!;
    const rude = await raw(node.address);
    send(rude);
    await rude.closed;
    const polite = await raw(node.address);
    polite.send(hello(trainer.clusterMap.job));
    send(polite);
    await polite.closed;
    await works();
  });

  it('closes on a frame that is too large', async () => {
    const { job, works } = await start();
    const peer = await raw(job.nodes[0]!.address);
    peer.ws.send(new Uint8Array((64 << 20) + 1));
    await peer.closed;
    await works();
  });

  it('wants a hello first, of its own job and of the newest process', async () => {
    const { job, trainer, works } = await start();
    const { address } = job.nodes[0]!;
    const silent = await raw(address);
    silent.send({ t: 'push', epoch: 0, items: push(1, 0) }, [garbage(0)]);
    expect((await silent.closed).reason).toBe('BAD_FRAME');
    const lost = await raw(address);
    lost.send(hello('another job'));
    expect((await lost.closed).reason).toBe('another job');
    const { job: name } = trainer.clusterMap;
    const newest = await raw(address);
    newest.send(nodeHello(name, 5));
    await newest.heard();
    const stale = await raw(address);
    stale.send(nodeHello(name, 4));
    expect((await stale.closed).reason).toBe('STALE_NODE');
    await works();
  });

  it('is told of maps by its own connection to the scheduler only', async () => {
    const { job, trainer, works } = await start();
    const peer = await raw(job.nodes[0]!.address);
    peer.send({ ...hello(trainer.clusterMap.job), peer: SCHEDULER });
    const map = { ...trainer.clusterMap, epoch: 1e6, groups: [], tables: [] };
    peer.send({ t: 'map', map });
    expect(await peer.closed).toEqual({ code: 4403, reason: 'a hello of the scheduler' });
    for (const wrong of [
      { t: 'map', map },
      { ...CHANGES, from: trainer.clusterMap.epoch, groups: trainer.clusterMap.groups.slice(0, 1) },
    ]) {
      const other = await raw(job.nodes[0]!.address);
      other.send(hello(trainer.clusterMap.job));
      other.send(wrong);
      expect((await other.closed).code).toBe(4403);
    }
    await works();
    await redundant(trainer, 3);
  });

  it('answers a push with a bad section by refusing it, and numbers go on', async () => {
    const { job, trainer, works } = await start();
    const group = trainer.clusterMap.groups[0]!;
    const owner = job.nodes.find((node) => node.id === group.data[0]!.node)!;
    const peer = await raw(owner.address);
    peer.send(hello(trainer.clusterMap.job));
    const sections = [new Uint8Array(0), garbage(7), garbage(64), new Uint8Array(8).fill(255), garbage(4096)];
    for (const [i, section] of sections.entries()) {
      peer.send({ t: 'push', epoch: 0, items: push(i + 1, section.byteLength) }, [section]);
      // An empty section is how a client withdraws a push.
      const code = section.byteLength === 0 ? 'ABORTED' : 'BAD_FRAME';
      const items = packItems('pushAck', [[0, 0, i + 1]]);
      expect(await peer.next()).toEqual({ t: 'pushAck', items, refused: [[0, code]] });
    }
    peer.send({ t: 'pull', epoch: 0, id: 9, items: packItems('pull', [[0, 0, 64]]) }, [garbage(64)]);
    expect(await peer.next()).toEqual({ t: 'reject', id: 9, items: [[0, 'BAD_FRAME']] });
    peer.send({ t: 'push', epoch: 0, items: push(99, 8) }, [garbage(8)]);
    expect(await peer.next()).toEqual({ t: 'gap', g: 0, m: 0, expected: sections.length + 1 });
    // Items without sections are no request at all.
    peer.send({ t: 'pull', epoch: 0, id: 10, items: packItems('pull', [[0, 0, 64]]) });
    await peer.closed;
    await works();
  });

  it.each(['delta', 'content', 'lacking', 'recover', 'want', 'equation', 'install', 'start'])(
    'survives %s with a fitting header and garbage for a payload',
    async (kind) => {
      const { job, trainer, works } = await start();
      const { clusterMap } = trainer;
      const group = clusterMap.groups[0]!;
      const [sink, entry] = [group.sinks[0]!, group.data[0]!];
      const { id: g, version: v } = group;
      const extents = [[1, 16, 40]];
      const header: Record<string, unknown> = { t: kind, g, m: 0, sid: sink.sid, gen: entry.gen, v, extents };
      Object.assign(header, { ids: [], committed: 0, index: 0, lacking: [[0, entry.gen]], ok: true });
      // The generation is over: otherwise garbage that fits could not be told from what it imitates.
      if (kind === 'start') Object.assign(header, { base: 0, dedup: [], gen: 0 });
      const toOwner = ['want', 'equation', 'install'].includes(kind);
      const target = job.nodes.find((node) => node.id === (toOwner ? entry : sink).node)!;
      for (const part of [
        new Uint8Array(0),
        garbage(3),
        garbage(64),
        new Uint8Array(64).fill(255),
        garbage(5000),
      ]) {
        for (let seq = 0; seq < 4; seq++) {
          const peer = await raw(target.address);
          peer.send(nodeHello(clusterMap.job));
          peer.send({ ...header, seq }, [part, part]);
          // A node asks for no rows: this closes the connection if the garbage has not.
          const question = packItems('pull', [[9999, 0, 0]]);
          peer.send({ t: 'pull', epoch: 0, id: 7, items: question }, [new Uint8Array(0)]);
          await peer.closed;
        }
      }
      await works();
      await redundant(trainer, 3);
    },
  );
});

describe('an owner or a sink', () => {
  it.each([
    ['applied', 'what was never sent', { applied: 1e6 }],
    ['openAck', 'what was never sent', { applied: 1e6, none: false, sgen: 'gen', attempt: 1e6 }],
    ['delta', 'a member that is not followed', { m: 9, seq: 1, ids: [], committed: 0 }],
    ['committed', 'a member that is not followed', { m: 9, committed: 0 }],
    ['start', 'a base that is not there yet', { base: 1e6, dedup: [], extents: [], gen: 1e6 }],
  ])('closes on %s of %s, and serves the others', async (t, _, fields) => {
    const { job, trainer, works } = await start();
    const group = trainer.clusterMap.groups[0]!;
    const [sink, entry] = [group.sinks[0]!, group.data[0]!];
    const toOwner = ['applied', 'openAck'].includes(t);
    const target = job.nodes.find((node) => node.id === (toOwner ? entry : sink).node)!;
    const peer = await raw(target.address);
    peer.send(nodeHello(trainer.clusterMap.job));
    const header = { t, g: group.id, m: 0, sid: sink.sid, gen: entry.gen, v: group.version, ...fields };
    peer.send('sgen' in header ? { ...header, sgen: entry.gen } : header, [garbage(8)]);
    expect((await peer.closed).reason).toBe('BAD_FRAME');
    await works();
    await redundant(trainer, 3);
  });
});

describe('a scheduler', () => {
  it.each(FRAMES)('closes on %s, before and after an attach', async (_, send) => {
    const { job, trainer, works } = await start();
    const rude = await raw(job.address);
    send(rude);
    await rude.closed;
    const polite = await raw(job.address);
    polite.send({ t: 'attach' });
    expect(await polite.next()).toMatchObject({ t: 'welcome' });
    send(polite);
    await polite.closed;
    await works();
    await redundant(trainer, 3);
  });

  it('wants a join or an attach first, of whoever does more than look', async () => {
    const { job, works } = await start();
    const peer = await raw(job.address);
    peer.send({ t: 'status', id: 1 });
    expect(await peer.next()).toMatchObject({ t: 'statusReply', id: 1 });
    peer.send({ t: 'rebalance', id: 2, timeoutMs: 0, dryRun: false });
    expect((await peer.closed).reason).toBe('BAD_FRAME');
    await works();
  });

  const JOIN = { t: 'join', name: 'ps-7', host: '', address: '127.0.0.1:7', standby: false };
  it.each([
    ['an address without a port', { address: 'nowhere' }],
    ['a port that is none', { address: '127.0.0.1:99999' }],
    ['an empty address', { address: '' }],
    ['an empty name', { name: '' }],
    ['a name with a space', { name: 'ps 7' }],
    ['a name that is too long', { name: 'p'.repeat(129) }],
  ])('closes on a join with %s, which no map ever lists', async (_, wrong) => {
    const { job, trainer, works } = await start();
    const peer = await raw(job.address);
    peer.send({ ...JOIN, ...wrong });
    expect((await peer.closed).reason).toBe('BAD_FRAME');
    await works();
    expect((await trainer.status()).nodes.map(({ name }) => name)).toEqual(['ps-0', 'ps-1', 'ps-2']);
  });

  it('tells a process that comes back with an identity that is over', async () => {
    const { job, trainer, works } = await start();
    const [node] = (await trainer.status()).nodes;
    const peer = await raw(job.address);
    const { id, name, host, address } = node!;
    peer.send({ t: 'join', name, host, address, standby: false, id, inc: node!.inc - 1 });
    expect(await peer.next()).toEqual({ t: 'stale', code: 'STALE_NODE' });
    await works();
  });

  const TABLE = { ...{ name: 't', pool: 'embedding', seed: 0 }, ...COUNTING };
  const NO_TEXT = { toString: 1, valueOf: 1 };
  it.each([
    ['a parameter that float32 cannot hold', { optimizer: { kind: 'sgd', lr: 1e39 } }],
    ['a kind that is no text', { optimizer: { kind: NO_TEXT, lr: 1 } }],
    ['an initializer whose kind is no text', { initializer: { kind: NO_TEXT } }],
    ['a field of 64 bits that no table has', { optimizer: { kind: 'sgd', lr: -1, more: 2n ** 63n } }],
  ])('answers to tables with %s, and serves the others', async (_, wrong) => {
    const { job, works } = await start();
    const peer = await raw(job.address);
    peer.send({ t: 'attach' });
    await peer.next();
    const specs = ['t', 'another'].map((name) => [{ ...TABLE, name, ...wrong }]);
    for (const [id, each] of specs.entries()) {
      peer.send({ t: 'createTables', id, specs: each });
      let answer = await Promise.race([peer.next(), peer.closed]);
      while ('t' in answer && answer.t === 'mapDiff') answer = await Promise.race([peer.next(), peer.closed]);
      expect(answer).toMatchObject({ t: 'tablesCreated', id });
    }
    await works();
  });

  it('does not let heartbeats and reports of nobody count', async () => {
    const { job, trainer, works } = await start();
    const [group] = trainer.clusterMap.groups;
    const [entry] = group!.data;
    const { gen, inc } = entry!;
    const heartbeat = {
      t: 'heartbeat',
      epoch: 0,
      completeSinks: group!.sinks.map(({ sid }) => sid),
      completeShards: [[0, 0, gen]],
      recoveries: [{ g: 0, m: 0, gen, blocksLost: 9, blocksPresent: 0, blocksOnDemand: 0 }],
      owned: [[0, 0, 1e9]],
      bytes: 1,
      rows: 1e9,
    };
    const ids: unknown[] = [];
    for (const wrong of [
      // As itself, and as the process that owns the shard.
      { ...heartbeat, inc: 0 },
      { ...heartbeat, inc },
      { t: 'unrecoverable', g: 0, m: 0, gen, v: group!.version, blocks: 1 },
      { t: 'stalled', g: 0, m: 0, sid: group!.sinks[0]!.sid, gen, v: group!.version },
    ]) {
      const peer = await raw(job.address);
      peer.send({ t: 'attach' });
      ids.push(((await peer.next()) as unknown as MessageOf<'welcome'>).id);
      peer.send(wrong);
      expect((await peer.closed).code).toBe(4403);
    }
    const status = await trainer.status();
    expect(status).toMatchObject({ redundancy: 'full', unrecoverable: [], recoveries: [] });
    await works();
    const { nodes } = await trainer.status();
    expect(nodes.length).toBe(3);
    expect(nodes.filter((node) => ids.includes(node.id) || node.rows >= 1e9)).toEqual([]);
  });
});

describe('a client', () => {
  it('gives up on a scheduler that talks nonsense', async () => {
    const liar = await listen({
      host: '127.0.0.1',
      port: 0,
      handlers: {
        onOpen: () => {},
        onMessage: (link) => link.send({ t: 'welcome', id: 'one', inc: 0, map: null }),
        onClose: () => {},
      },
    });
    onTestFinished(() => liar.close());
    const refusal = await rejection(client(`127.0.0.1:${liar.port}`, { connectTimeoutMs: 200 }));
    expect(refusal.code).toBe('UNREACHABLE');
  });
});
