// The table of who sends what, over real sockets: every kind of message from every role that can connect.
import { describe, expect, it, onTestFinished } from 'vitest';
import { type Link, type Listener, listen } from '../../src/net/transport/index.js';
import { CAPABILITIES, type ClusterMap } from '../../src/protocol/map.js';
import type { Message } from '../../src/protocol/messages.js';
import { maySend } from '../../src/protocol/senders.js';
import { startPs } from '../../src/roles/ps/ps.js';
import { SAMPLES } from '../fuzz/frames.js';
import { attached, closing, FORBIDDEN, guarded, NODE_TOKEN, proven, SECRETS, TOKEN } from './secrets.js';
import { COUNTING, client, firstKeys, rejection, silent } from './support.js';

/** Answers are to questions that nobody has asked. */
const KINDS = (SAMPLES as readonly Message[]).map((sample) =>
  'id' in sample ? { ...sample, id: 9999 } : sample,
) as readonly Message[];
/** First messages of a connection; a second one is refused, whoever sends it. */
const INTRODUCTIONS: readonly Message['t'][] = ['join', 'attach', 'hello'];
const OTHERS = KINDS.filter(({ t }) => !INTRODUCTIONS.includes(t));

const refusalOf = (kind: Message['t']): string => `may not send "${kind}"`;

it('there is a sample of every kind', () => expect(new Set(KINDS.map(({ t }) => t)).size).toBe(KINDS.length));

describe('over sockets', () => {
  it.each(['client', 'node'] as const)('a scheduler asks the table about a %s', async (role) => {
    const { job, trainer, table } = await guarded();
    const join = { t: 'join', name: 'ps-x', host: 'x', address: '127.0.0.1:9', standby: true };
    for (const sample of OTHERS) {
      const peer = role === 'client' ? await attached(job.address) : await proven(job.address, NODE_TOKEN);
      if (role === 'node') {
        peer.send(join);
        await peer.next();
      }
      peer.send(sample);
      const refused = (await closing(peer))?.reason.includes(refusalOf(sample.t)) ?? false;
      expect([sample.t, refused]).toEqual([sample.t, !maySend(role, 'scheduler', sample.t)]);
      peer.ws.terminate();
    }
    await table.push(firstKeys(10), new Float32Array(20).fill(1));
    expect(await table.pull(firstKeys(10))).toEqual(new Float32Array(20).fill(1));
    expect(trainer.clusterMap.tables.map(({ name }) => name)).toContain('t');
  });

  it.each(['client', 'node'] as const)('a PS asks the table about a %s', async (role) => {
    const { job, trainer, table } = await guarded();
    const { welcome } = await attached(job.address);
    const { job: name } = trainer.clusterMap;
    for (const [i, sample] of OTHERS.entries()) {
      const peer = await proven(job.nodes[0]!.address, role === 'client' ? TOKEN : NODE_TOKEN);
      if (role === 'node') peer.send({ t: 'hello', peer: 4242, inc: i + 1, job: name });
      else peer.send({ t: 'hello', peer: welcome.id, inc: 0, job: name, proof: welcome.proof });
      peer.send(sample);
      const refused = (await closing(peer))?.reason.includes(refusalOf(sample.t)) ?? false;
      expect([sample.t, refused]).toEqual([sample.t, !maySend(role, 'node', sample.t)]);
      peer.ws.terminate();
    }
    await table.push(firstKeys(10), new Float32Array(20).fill(1));
    expect(await table.pull(firstKeys(10))).toEqual(new Float32Array(20).fill(1));
  });

  it.each(INTRODUCTIONS)('a second introduction, %s, is refused', async (t) => {
    const { job, trainer } = await guarded();
    const sample = KINDS.find((each) => each.t === t)!;
    const peer = await attached(job.address);
    peer.send(sample);
    expect((await peer.closed).code).toBe(FORBIDDEN);
    const caller = await proven(job.nodes[0]!.address, NODE_TOKEN);
    caller.send({ t: 'hello', peer: 4242, inc: 1, job: trainer.clusterMap.job });
    caller.send(sample);
    // One more hello is one from a node, which may say it, but not twice.
    expect((await caller.closed).reason).toBe(
      t === 'hello' ? 'BAD_FRAME' : `a node ${refusalOf(t)} to a node`,
    );
  });
});

/** A side that is what the test says, and answers each connection with messages of its choice. */
async function fake(onMessage: (link: Link, header: Record<string, unknown>) => void) {
  const closings: ((reason: string) => void)[] = [];
  const listener: Listener = await listen({
    ...{ host: '127.0.0.1', port: 0 },
    ...SECRETS,
    handlers: { onOpen: () => {}, onMessage, onClose: (_, reason) => closings.shift()?.(reason) },
  });
  onTestFinished(() => listener.close());
  const closed = () => new Promise<string>((resolve) => closings.push(resolve));
  return { address: `127.0.0.1:${listener.port}`, closed };
}

const mapOf = (address: string): ClusterMap => ({
  epoch: 2,
  job: 'a-job',
  pools: [{ name: 'embedding', k: 1, r: 1, firstGroup: 0, groups: 1 }],
  groups: [
    {
      ...{ id: 0, pool: 0, version: 2 },
      data: [{ node: 11, inc: 1, gen: 1, init: true }],
      sinks: [{ sid: 1, kind: 'P', index: 0, node: 11, inc: 1, init: true, ...CAPABILITIES.P }],
    },
  ],
  nodes: [{ id: 11, inc: 1, name: 'ps-0', host: 'a', address, standby: false }],
  tables: [{ id: 1, name: 't', pool: 'embedding', seed: 0, ...COUNTING }],
});

/** Kinds after which a process ends, for another reason than that they were refused. */
const ENDINGS: readonly Message['t'][] = ['stale'];

describe('from a scheduler', () => {
  it('a PS takes what a scheduler may send, and nothing else', async () => {
    for (const sample of KINDS) {
      const scheduler = await fake((link, header) => {
        if (header.t !== 'join') return;
        link.send({ t: 'welcome', id: 5, inc: 1, map: { ...mapOf('127.0.0.1:9'), groups: [] } });
        link.send(sample);
        link.send({ t: 'status', id: 1 });
      });
      let refused = (_: Error) => {};
      const end = new Promise<Error>((resolve) => (refused = resolve));
      const ps = await startPs({
        ...{ scheduler: scheduler.address, name: 'ps-0', log: silent, onStale: refused, ...SECRETS },
      });
      const kind = maySend('scheduler', 'node', sample.t) ? 'status' : sample.t;
      const { message } = await end;
      if (!ENDINGS.includes(sample.t))
        expect([sample.t, message]).toEqual([sample.t, expect.stringContaining(refusalOf(kind))]);
      await ps.close();
    }
  });

  it('a client takes what a scheduler may send, and nothing else', async () => {
    for (const sample of KINDS) {
      const scheduler = await fake((link, header) => {
        if (header.t === 'attach') link.send({ t: 'welcome', id: 5, inc: 0, map: mapOf('127.0.0.1:9') });
        if (header.t !== 'createTables') return;
        link.send(sample);
        link.send(KINDS.find(({ t }) => t === 'heartbeat')!);
      });
      const trainer = await client(scheduler.address, { token: TOKEN, waitForJob: false });
      const kind = maySend('scheduler', 'client', sample.t) ? 'heartbeat' : sample.t;
      // Something to ask for, until the connection is closed.
      const { message } = await rejection(trainer.createTable({ name: 'never', ...COUNTING }));
      if (!ENDINGS.includes(sample.t))
        expect([sample.t, message]).toEqual([sample.t, expect.stringContaining(refusalOf(kind))]);
      await trainer.close();
    }
  });
});

it('a client takes from a node what a node may send, and nothing else', async () => {
  for (const sample of KINDS) {
    const node = await fake((link, header) => {
      if (header.t !== 'hello') return;
      link.send(sample);
      link.send(KINDS.find(({ t }) => t === 'map')!);
    });
    const scheduler = await fake((link, header) => {
      if (header.t === 'attach') link.send({ t: 'welcome', id: 5, inc: 0, map: mapOf(node.address) });
    });
    const trainer = await client(scheduler.address, { token: TOKEN });
    const closed = node.closed();
    const pulled = rejection(trainer.table('t').pull(firstKeys(3)));
    const kind = maySend('node', 'client', sample.t) ? 'map' : sample.t;
    expect([sample.t, await closed]).toEqual([sample.t, expect.stringContaining(refusalOf(kind))]);
    await trainer.close();
    expect((await pulled).code).toBe('CLOSED');
  }
});
