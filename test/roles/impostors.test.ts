// A client with a valid token that says it is somebody else is refused, counted and logged once. Nothing
// changes.
import { expect, it, onTestFinished } from 'vitest';
import { Dataset } from '../../src/library/client/dataset.js';
import { PushSequence } from '../../src/library/client/sequence.js';
import { packItems } from '../../src/protocol/items.js';
import { SCHEDULER } from '../../src/protocol/map.js';
import { startPs } from '../../src/roles/ps/ps.js';
import { attached, closing, FORBIDDEN, type Guarded, guarded, NODE_TOKEN, proven, TOKEN } from './secrets.js';
import { client, EventLog, firstKeys, redundant, rejection, silent } from './support.js';

/** Pushes to all shards: everything must be as it was, plus one. */
async function works({ trainer, table }: Guarded): Promise<void> {
  const before = await table.pull(firstKeys(100));
  await table.push(firstKeys(100), new Float32Array(200).fill(1));
  expect(await table.pull(firstKeys(100))).toEqual(before.map((value) => value + 1));
  const { nodes } = await redundant(trainer, 3);
  expect(nodes.map(({ name, alive }) => [name, alive])).toEqual(
    ['ps-0', 'ps-1', 'ps-2'].map((name) => [name, true]),
  );
}

const nodeOf = ({ trainer }: Guarded, index: number) => trainer.clusterMap.nodes[index]!;

it.each([
  ['the scheduler', () => ({ peer: SCHEDULER, inc: 0 })],
  ['the scheduler, as a node', () => ({ peer: SCHEDULER, inc: 1 })],
  ['a live node', (of: Guarded) => ({ peer: nodeOf(of, 1).id, inc: nodeOf(of, 1).inc })],
  ['a newer process of a live node', (of: Guarded) => ({ peer: nodeOf(of, 1).id, inc: 99 })],
  ['a live node without an incarnation', (of: Guarded) => ({ peer: nodeOf(of, 1).id, inc: 0 })],
  ['the node that it calls', (of: Guarded) => ({ peer: nodeOf(of, 0).id, inc: 0 })],
  ['a node that is none', () => ({ peer: 4242, inc: 1 })],
  ['another client without its proof', (of: Guarded) => ({ peer: of.trainer.id, inc: 0 })],
  ['another client with a proof of its own', (of: Guarded) => ({ peer: of.trainer.id, inc: 0, proof: true })],
])('a hello as %s', async (_, said) => {
  const log = new EventLog();
  const all = await guarded({ log });
  await works(all);
  const { welcome } = await attached(all.job.address);
  const { proof, ...fields } = said(all) as { peer: number; inc: number; proof?: boolean };
  for (let time = 0; time < 3; time++) {
    const peer = await proven(all.job.nodes[0]!.address, TOKEN);
    const job = all.trainer.clusterMap.job;
    peer.send({ t: 'hello', ...fields, job, ...(proof && { proof: welcome.proof }) });
    peer.send({ t: 'push', epoch: 0, items: [] });
    expect((await peer.closed).code).toBe(FORBIDDEN);
  }
  await works(all);
  const told = log.events.filter(({ event }) => event === 'sender.refused');
  expect(told.map(({ fields }) => fields.kind)).toEqual(['hello']);
});

it('a hello as another client with the proof that it was given is that client', async () => {
  const all = await guarded();
  const { welcome } = await attached(all.job.address);
  const { id, proof } = welcome;
  const peer = await proven(all.job.nodes[0]!.address, TOKEN);
  peer.send({ t: 'hello', peer: id, inc: 0, job: all.trainer.clusterMap.job, proof });
  expect(await closing(peer)).toBeUndefined();
});

it('a client joins under no name, and one that is taken is not taken over', async () => {
  const log = new EventLog();
  const all = await guarded({ log });
  const node = nodeOf(all, 1);
  const join = { t: 'join', host: '', address: '127.0.0.1:9', standby: false };
  for (const fields of [
    { name: 'ps-9' },
    { name: node.name },
    { name: node.name, id: node.id, inc: node.inc, job: all.trainer.clusterMap.job },
  ]) {
    const peer = await proven(all.job.address, TOKEN);
    peer.send({ ...join, ...fields });
    expect(await peer.closed).toEqual({ code: FORBIDDEN, reason: 'a node with the token of a client' });
  }
  await works(all);
  expect(nodeOf(all, 1)).toEqual(node);
  expect(log.events.filter(({ event }) => event === 'sender.refused').length).toBe(1);
});

it('a PS with the token of clients says so at once', async () => {
  const { job } = await guarded();
  const started = startPs({ scheduler: job.address, name: 'ps-9', token: TOKEN, log: silent });
  expect(await rejection(started)).toEqual({
    code: 'FORBIDDEN',
    message: expect.stringContaining('a node with the token of a client'),
  });
});

it('a PS that is started again at once under its name is taken back', async () => {
  const all = await guarded();
  await all.job.kill(1);
  await all.job.restart(1);
  await works(all);
  expect(nodeOf(all, 1).inc).toBe(2);
});

it('the token of nodes makes no client', async () => {
  const { job } = await guarded();
  expect((await rejection(client(job.address, { token: NODE_TOKEN }))).code).toBe('FORBIDDEN');
});

it('nobody comes back as another client, or says goodbye for it', async () => {
  const all = await guarded();
  const { welcome } = await attached(all.job.address);
  const { id, clusterMap } = all.trainer;
  for (const proof of [undefined, welcome.proof, new Uint8Array(16)]) {
    const peer = await proven(all.job.address, TOKEN);
    peer.send({ t: 'attach', id, job: clusterMap.job, ...(proof && { proof }) });
    peer.send({ t: 'detach' });
    expect((await peer.closed).code).toBe(FORBIDDEN);
  }
  const back = await proven(all.job.address, TOKEN);
  back.send({ t: 'attach', id: welcome.id, job: clusterMap.job, proof: welcome.proof });
  expect(await back.next()).toMatchObject({ t: 'welcome', id: welcome.id });
  await works(all);
});

it('nobody pushes as another client, or for a range that was not leased to it', async () => {
  const all = await guarded();
  await works(all);
  const spec = {
    files: [{ name: 'f', size: 100, rangeBytes: 100 }],
    ...{ batch: 4, epochs: 1, seed: 1, shuffle: false, staleness: 100 },
  };
  const dataset = await Dataset.open(all.trainer, 'd', spec);
  const range = (await dataset.acquire(0))!;
  const { welcome } = await attached(all.job.address);
  const group = all.trainer.clusterMap.groups[0]!;
  const { address } = all.trainer.clusterMap.nodes.find(({ id }) => id === group.data[0]!.node)!;
  for (const session of [all.trainer.id, range.session]) {
    for (const proof of [undefined, welcome.proof]) {
      const peer = await proven(address, TOKEN);
      const { id, map } = welcome;
      peer.send({ t: 'hello', peer: id, inc: 0, job: map.job, proof: welcome.proof });
      const push = { t: 'push', epoch: 0, client: session, items: packItems('push', [[0, 0, 1, 0]]) };
      peer.send({ ...push, ...(proof && { proof }) }, [new Uint8Array(0)]);
      expect((await peer.closed).code).toBe(FORBIDDEN);
    }
  }
  const release = { t: 'release', id: 9, name: 'd', number: 0, lease: range.id, session: range.session };
  const thief = await attached(all.job.address);
  const counts = { outcome: 'finished', done: 1, begun: 1, samples: 1, redone: 0 };
  thief.send({ ...release, ...counts, proof: thief.welcome.proof });
  expect((await thief.closed).code).toBe(FORBIDDEN);
  expect(await Dataset.status(all.trainer, 'd')).toMatchObject({ finished: 0, open: 1 });
  // The worker that has the range takes its first number.
  const sequence = new PushSequence(all.trainer, range.session);
  await sequence.push([{ table: 't', keys: firstKeys(100), gradients: new Float32Array(200).fill(1) }]);
  await dataset.release(range, { outcome: 'finished', done: 1, begun: 1, samples: 4, redone: 0 });
  expect(await Dataset.status(all.trainer, 'd')).toMatchObject({ finished: 1, open: 0 });
  expect(sequence.counts().every(({ acknowledged, refused }) => acknowledged === 1 && refused === 0)).toBe(
    true,
  );
  await works(all);
});

it('what is refused is counted by kind', async () => {
  const { job } = await guarded();
  for (const sent of [{ t: 'sessions' }, { t: 'sessions' }, { t: 'leave', inc: 1 }]) {
    const peer = await attached(job.address);
    peer.send(sent);
    expect((await peer.closed).code).toBe(FORBIDDEN);
  }
  const metrics = await (await fetch(`http://${job.address}/metrics`)).text();
  expect(metrics).toMatch(/^kintsugi_refused_messages_total\{[^}]*kind="sessions"[^}]*\} 2$/m);
  expect(metrics).toMatch(/^kintsugi_refused_messages_total\{[^}]*kind="leave"[^}]*\} 1$/m);
});

it('with one token, a connection is what it introduces itself as, and stays that', async () => {
  const log = new EventLog();
  const all = await guarded({ nodeToken: undefined, log });
  const peer = await attached(all.job.address);
  peer.send({ t: 'join', name: 'ps-9', host: '', address: '127.0.0.1:9', standby: false });
  expect((await peer.closed).code).toBe(FORBIDDEN);
  const caller = await proven(all.job.nodes[0]!.address, TOKEN);
  caller.send({ t: 'hello', peer: all.trainer.id, inc: 0, job: all.trainer.clusterMap.job });
  expect((await caller.closed).code).toBe(FORBIDDEN);
  await works(all);
  onTestFinished(() => expect(log.events.filter(({ event }) => event === 'ps.failed')).toEqual([]));
});
