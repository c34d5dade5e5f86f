// The session of a client: ends with a goodbye or when it stays away, and never goes on in another job.
import { describe, expect, it, onTestFinished } from 'vitest';
import type { KintsugiError } from '../../src/common/errors.js';
import { stateOf } from '../../src/core/scheduler/scheduler.js';
import type { Client } from '../../src/library/client/client.js';
import { type Link, listen } from '../../src/net/transport/index.js';
import type { Message, MessageOf } from '../../src/protocol/messages.js';
import { MemoryStore } from '../../src/stores/decisions/index.js';
import { RawClient } from '../net/transport/support.js';
import { begun, COUNTING, client, keysOf, ps, rejection, scheduler } from './support.js';

async function start() {
  const store = new MemoryStore();
  const running = await scheduler({ store, policy: { sessionMs: 20 } });
  const node = await ps({ scheduler: running.address, policy: { sessionCheckMs: 20 } });
  const observer = await client(running.address);
  const open = async () => [...stateOf(await store.load())!.state.sessions.keys()];
  /** Every attempt is a round trip to the scheduler. */
  const untilOpen = async (ids: number[]) => {
    for (let attempt = 0; `${await open()}` !== `${ids}`; attempt++) {
      expect(attempt).toBeLessThan(200_000);
      await observer.status();
    }
  };
  return { store, running, node, observer, untilOpen };
}

/** A client with a push that no node takes, and a question that nobody answers. */
async function withPending(address: string): Promise<{ trainer: Client; pending: Promise<string[]> }> {
  const trainer = await client(address);
  const pending = Promise.all(
    [
      trainer.push([{ table: 't', keys: keysOf(1), gradients: new Float32Array(2) }]),
      trainer.pull([{ table: 't', keys: keysOf(1) }]),
    ].map(async (promise) => (await rejection(promise)).code),
  );
  await begun(trainer);
  return { trainer, pending };
}

async function expectEnded(trainer: Client): Promise<void> {
  const { code, message } = await rejection(trainer.status());
  expect([code, message]).toEqual(['SESSION_EXPIRED', expect.stringContaining('another job')]);
}

describe('a session', () => {
  it('ends with the close of its client, and when a client is gone without a word', async () => {
    const { running, observer, untilOpen } = await start();
    const polite = await client(running.address);
    const rude = new RawClient(Number(running.address.split(':').at(-1)));
    await rude.prove();
    rude.send({ t: 'attach' });
    const { id } = (await rude.next()) as unknown as { id: number };
    await untilOpen([observer.id, polite.id, id]);
    await polite.close();
    await untilOpen([observer.id, id]);
    rude.ws.terminate();
    await untilOpen([observer.id]);
  });

  it('of a client that the scheduler does not know any more: everything fails, nothing hangs', async () => {
    const { store, running, node, observer } = await start();
    await observer.createTable({ name: 't', ...COUNTING });
    await node.close();
    const { trainer, pending } = await withPending(running.address);
    await running.close();
    const sessions = [...(await store.load()).keys()].filter((key) => key.startsWith('session/'));
    await store.write(new Map(sessions.map((key) => [key, undefined])));
    await scheduler({ store, listen: running.address });
    expect(await pending).toEqual(['SESSION_EXPIRED', 'SESSION_EXPIRED']);
    await expectEnded(trainer);
  });

  it('does not go on at a scheduler of another job, nor does a node', async () => {
    const { running, observer } = await start();
    await observer.createTable({ name: 't', ...COUNTING });
    let stop: (error: KintsugiError) => void = () => {};
    const stopped = new Promise<KintsugiError>((resolve) => {
      stop = resolve;
    });
    await ps({ scheduler: running.address, name: 'ps-1', onStale: stop });
    await running.close();
    const waiting = rejection(observer.createTable({ name: 'u', ...COUNTING }));
    const other = new MemoryStore();
    await scheduler({ store: other, listen: running.address, job: 'another-job' });
    expect((await waiting).code).toBe('SESSION_EXPIRED');
    await expectEnded(observer);
    expect((await stopped).code).toBe('STALE_NODE');
    expect(stateOf(await other.load())!.state.map.nodes).toEqual([]);
  });

  it('ends when a welcome comes with the map of another job', async () => {
    const links: Link[] = [];
    const pools = [{ name: 'embedding', k: 1, r: 0, firstGroup: 0, groups: 1 }];
    const group = { id: 0, pool: 0, version: 1, data: [], sinks: [] };
    const listener = await listen({
      host: '127.0.0.1',
      port: 0,
      handlers: {
        onOpen: (link) => links.push(link),
        onMessage: (link) => {
          const map = { epoch: 5, job: `job ${links.length}`, pools, groups: [group], nodes: [], tables: [] };
          link.send({ t: 'welcome', id: 3, inc: 0, map });
        },
        onClose: () => {},
      },
    });
    onTestFinished(() => listener.close());
    const trainer = await client(`127.0.0.1:${listener.port}`);
    const waiting = rejection(trainer.status());
    links[0]!.close();
    expect((await waiting).code).toBe('SESSION_EXPIRED');
    await expectEnded(trainer);
    expect(trainer.clusterMap.job).toBe('job 1');
  });
});

it('nodes hear at once which sessions have ended; clients hear nothing of it', async () => {
  const { address } = await scheduler({ policy: { sessionEndsMs: 0 } });
  const port = Number(address.split(':').at(-1));
  const [node, visitor] = [new RawClient(port), new RawClient(port)];
  for (const link of [node, visitor]) await link.prove();
  const join = { name: 'ps-1', host: 'h', address: '127.0.0.1:1', standby: false };
  node.send({ t: 'join', ...join });
  visitor.send({ t: 'attach' });
  const { id: stays } = await untilKind(visitor, 'welcome');
  const goes = await client(address, { waitForJob: false });
  await goes.close();
  const { ranges } = await untilKind(node, 'sessionsEnded');
  const within = (id: number) => ranges.some(([first, last]) => first <= id && id <= last);
  expect([within(stays), within(goes.id)]).toEqual([false, true]);
  visitor.send({ t: 'status', id: 1 });
  const heard: string[] = [];
  await untilKind(visitor, 'statusReply', heard);
  expect(heard).not.toContain('sessionsEnded');
});

/** The next message of this kind; those before it are named in `heard`. */
async function untilKind<T extends Message['t']>(
  link: RawClient,
  kind: T,
  heard: string[] = [],
): Promise<MessageOf<T>> {
  for (;;) {
    const message = (await link.next()) as unknown as Message;
    if (message.t === kind) return message as MessageOf<T>;
    heard.push(message.t);
  }
}

it('too many sessions: the next client is told so', async () => {
  const { address } = await scheduler({ policy: { maxSessions: 1 } });
  await client(address, { waitForJob: false });
  const refusal = await rejection(client(address, { waitForJob: false }));
  expect(refusal.code).toBe('LIMIT');
});
