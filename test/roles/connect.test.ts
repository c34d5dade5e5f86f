// How a client comes and goes: connecting, signals that end a wait, closing.
import { describe, expect, it, onTestFinished } from 'vitest';
import { listen } from '../../src/net/transport/index.js';
import { packItems } from '../../src/protocol/items.js';
import {
  begun,
  COUNTING,
  client,
  cluster,
  connected,
  firstKeys,
  keysOf,
  ps,
  rejection,
  scheduler,
} from './support.js';

describe('signals', () => {
  it('an aborted signal stops a connect, before and while it tries', async () => {
    const { address } = await scheduler();
    expect((await rejection(client(address, { signal: AbortSignal.abort() }))).code).toBe('ABORTED');
    // No PS will come: the job never forms, and only the signal ends the wait.
    const controller = new AbortController();
    const waiting = rejection(client(address, { signal: controller.signal }));
    const watcher = rejection(client(address, { connectTimeoutMs: 50 }));
    await watcher;
    controller.abort();
    expect((await waiting).code).toBe('ABORTED');
  });

  it('an abort ends a connect to a scheduler that takes the connection and says nothing', async () => {
    const controller = new AbortController();
    const mute = await listen({
      host: '127.0.0.1',
      port: 0,
      handlers: { onOpen: () => {}, onMessage: () => controller.abort(), onClose: () => {} },
    });
    const refusal = await rejection(client(`127.0.0.1:${mute.port}`, { signal: controller.signal }));
    expect(refusal.code).toBe('ABORTED');
    await mute.close();
  });

  it('a connect to a scheduler that says nothing ends at its time limit', async () => {
    const mute = await listen({
      host: '127.0.0.1',
      port: 0,
      handlers: { onOpen: () => {}, onMessage: () => {}, onClose: () => {} },
    });
    const refusal = await rejection(client(`127.0.0.1:${mute.port}`, { connectTimeoutMs: 100 }));
    expect(refusal.code).toBe('UNREACHABLE');
    await mute.close();
  });

  it('abort stops the waiting of a push, which is delivered all the same, once', async () => {
    const job = await connected();
    const table = await job.createTable({ name: 't', ...COUNTING });
    const controller = new AbortController();
    const { signal } = controller;
    const refusal = rejection(table.push(keysOf(1, 2, 3), new Float32Array(6).fill(1), { signal }));
    await begun(job);
    controller.abort();
    expect((await refusal).code).toBe('ABORTED');
    // Same shards, so these come after it in the same lines.
    await table.push(keysOf(1, 2, 3), new Float32Array(6).fill(10));
    expect(await table.pull(keysOf(1, 2, 3))).toEqual(new Float32Array(6).fill(11));
    expect((await rejection(table.push(keysOf(1), new Float32Array(2), { signal }))).code).toBe('ABORTED');
    await table.push(keysOf(1), new Float32Array(2));
    expect(await table.pull(keysOf(1))).toEqual(Float32Array.of(11, 11));
  });

  it('a push that nobody waits for holds its room until it is delivered', async () => {
    const job = await cluster({ code: '1+1', policy: { requireRedundancy: true } });
    const trainer = await client(job.address, { maxInFlightBytes: 1 });
    const table = await trainer.createTable({ name: 't', ...COUNTING });
    await job.kill(1);
    const controller = new AbortController();
    const first = rejection(table.push(keysOf(1), Float32Array.of(1, 1), { signal: controller.signal }));
    await begun(trainer);
    const second = table.push(keysOf(1), Float32Array.of(10, 10));
    controller.abort();
    expect((await first).code).toBe('ABORTED');
    for (let i = 0; i < 3; i++) await trainer.status();
    expect(trainer.pushCounts().map(({ sent }) => sent)).toEqual([1]);
    await job.restart(1);
    await second;
    expect(await table.pull(keysOf(1))).toEqual(Float32Array.of(11, 11));
  });

  it('abort ends a pull, and the next one works', async () => {
    const job = await connected();
    const table = await job.createTable({ name: 't', ...COUNTING });
    const controller = new AbortController();
    const refusal = rejection(table.pull(firstKeys(100), { signal: controller.signal }));
    controller.abort();
    expect((await refusal).code).toBe('ABORTED');
    expect(await table.pull(firstKeys(100))).toEqual(new Float32Array(200));
  });

  it('abort ends the wait for room even when no room is made', async () => {
    const job = await cluster({ code: '1+1', policy: { requireRedundancy: true } });
    const trainer = await client(job.address, { maxInFlightBytes: 1 });
    const table = await trainer.createTable({ name: 't', ...COUNTING });
    // With one of two nodes gone no redundancy is left, and that is refused here: the first push waits for a
    // node.
    await job.kill(1);
    const first = table.push(keysOf(1), Float32Array.of(1, 1));
    const controller = new AbortController();
    const second = rejection(table.push(keysOf(1), Float32Array.of(10, 10), { signal: controller.signal }));
    await begun(trainer);
    controller.abort();
    expect((await second).code).toBe('ABORTED');
    await job.restart(1);
    await first;
    expect(await table.pull(keysOf(1))).toEqual(Float32Array.of(1, 1));
  });
});

describe('an answer that cannot be read', () => {
  it('fails its request, closes its connection and disturbs nothing else', async () => {
    const pools = [{ name: 'embedding', k: 1, r: 0, firstGroup: 0, groups: 1 }];
    const data = [{ node: 1, inc: 1, gen: 1, init: true }];
    const groups = [{ id: 0, pool: 0, version: 1, data, sinks: [] }];
    const spec = { id: 1, name: 't', pool: 'embedding', dim: 2, seed: 0 };
    const tables = [{ ...spec, optimizer: { kind: 'sgd', lr: 1 }, initializer: { kind: 'zeros' } }];
    const closed: string[] = [];
    let hellos = 0;
    // Scheduler and node in one: its first answer to every pull is too short.
    const listener = await listen({
      host: '127.0.0.1',
      port: 0,
      handlers: {
        onOpen: () => {},
        onMessage: (link, header) => {
          const address = `127.0.0.1:${listener.port}`;
          const nodes = [{ id: 1, inc: 1, name: 'ps-0', host: '', address, standby: false }];
          const map = { epoch: 1, job: 'j', pools, groups, nodes, tables };
          if (header.t === 'attach') link.send({ t: 'welcome', id: 2, inc: 0, map });
          if (header.t === 'hello') hellos++;
          if (header.t !== 'pull') return;
          const row = new Uint8Array(hellos === 1 ? 3 : 8);
          link.send({ t: 'rows', id: header.id, items: packItems('rows', [[0, row.byteLength]]) }, [row]);
        },
        onClose: (_, reason) => closed.push(reason),
      },
    });
    onTestFinished(() => listener.close());
    const trainer = await client(`127.0.0.1:${listener.port}`);
    expect((await rejection(trainer.table('t').pull(keysOf(1)))).code).toBe('BAD_FRAME');
    expect(await trainer.table('t').pull(keysOf(1))).toEqual(new Float32Array(2));
    expect([hellos, closed.length]).toEqual([2, 1]);
  });
});

describe('the end', () => {
  it('everything fails with CLOSED after close, also what was waiting', async () => {
    const job = await connected({ maxInFlightBytes: 1 });
    const table = await job.createTable({ name: 't', ...COUNTING });
    const code = (promise: Promise<unknown>) => rejection(promise).then((refusal) => refusal.code);
    const waiting = [
      table.push(keysOf(1), new Float32Array(2)),
      table.push(keysOf(1), new Float32Array(2)),
      table.pull(keysOf(1)),
      job.status(),
    ].map(code);
    await job.close();
    await job.close();
    expect(await Promise.all(waiting)).toEqual(['CLOSED', 'CLOSED', 'CLOSED', 'CLOSED']);
    expect(await code(table.pull(keysOf(1)))).toBe('CLOSED');
    expect(await code(table.push(keysOf(1), new Float32Array(2)))).toBe('CLOSED');
    expect(await code(job.status())).toBe('CLOSED');
    expect(await code(job.createTable({ name: 'u', dim: 1 }))).toBe('CLOSED');
  });
});

describe('connecting', () => {
  it('says why a job has not started', async () => {
    const { address } = await scheduler({ nodes: 2, pools: [{ name: 'embedding', k: 1, r: 1, groups: 2 }] });
    await ps({ scheduler: address });
    const refusal = await rejection(client(address, { connectTimeoutMs: 200 }));
    expect(refusal.code).toBe('NOT_ENOUGH_NODES');
    expect(refusal.message).toContain('1 of 2 nodes have joined');
  });

  it('waits for a job that is starting', async () => {
    const { address } = await scheduler();
    const early = client(address);
    await rejection(client(address, { connectTimeoutMs: 50 }));
    await ps({ scheduler: address });
    expect((await (await early).status()).redundancy).not.toBe('forming');
  });

  it('fails with UNREACHABLE when nobody is there', async () => {
    const gone = await scheduler();
    await gone.close();
    expect((await rejection(client(gone.address, { connectTimeoutMs: 100 }))).code).toBe('UNREACHABLE');
  });

  it('needs the right token', async () => {
    const job = await cluster({ code: '1+1', token: 'a secret' });
    expect((await rejection(client(job.address))).code).toBe('UNAUTHORIZED');
    expect((await rejection(client(job.address, { token: 'another' }))).code).toBe('UNAUTHORIZED');
    const table = await (await client(job.address, { token: 'a secret' })).createTable({
      name: 't',
      ...COUNTING,
    });
    await table.push(keysOf(1), Float32Array.of(1, 2));
    expect(await table.pull(keysOf(1))).toEqual(Float32Array.of(1, 2));
    const open = await cluster({ code: '1+1' });
    expect((await rejection(client(open.address, { token: 'a secret' }))).code).toBe('UNAUTHORIZED');
  });
});
