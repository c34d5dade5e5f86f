/**
 * Transactions whose answer does not come: they are sent again, to another member of etcd, and the first copy
 * is carried out before that or any time later. Each must hold once.
 */
import { createServer, request } from 'node:http';
import type { AddressInfo } from 'node:net';
import { describe, expect, it, onTestFinished } from 'vitest';
import { openEtcdStore } from '../../../src/stores/decisions/etcd/store.js';
import type { StateStore } from '../../../src/stores/decisions/index.js';
import { Etcd, hasEtcd } from './etcd-server.js';

const EVENTS = { onLeader() {}, onReach() {}, onDoubt() {}, onDeposed() {} };
/** So long that it does not end while requests wait for their limit. */
const leaseMs = 20_000;
const key = (path: string): string => Buffer.from(`jobs/test/${path}`).toString('base64');

/** Fate of a request: it is answered, kept until `release`, or carried out and not answered. */
type Fate = 'answered' | 'kept' | 'unanswered';

/** A member of etcd that others reach well, and the scheduler does not always. */
class Member {
  fate: (body: string) => Fate = () => 'answered';
  private readonly kept: (() => Promise<void>)[] = [];

  private constructor(readonly port: number) {}

  static async before(etcd: Etcd): Promise<Member> {
    const server = createServer((asked, answer) => {
      const parts: Buffer[] = [];
      asked.on('data', (part: Buffer) => parts.push(part));
      asked.on('end', () => {
        const body = Buffer.concat(parts);
        const fate = member.fate(body.toString());
        const forward = () =>
          new Promise<void>((resolve, reject) => {
            const to = { host: '127.0.0.1', port: etcd.port, path: asked.url, method: 'POST' };
            const passed = request(to, (said) => {
              said.on('end', resolve);
              if (fate !== 'answered') return said.resume();
              answer.writeHead(said.statusCode ?? 0);
              return said.pipe(answer);
            });
            passed.on('error', reject).end(body);
          });
        if (fate === 'kept') member.kept.push(forward);
        else void forward();
      });
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    onTestFinished(() => {
      server.closeAllConnections();
      server.close();
    });
    const member = new Member((server.address() as AddressInfo).port);
    return member;
  }

  get keeps(): number {
    return this.kept.length;
  }

  /** Carries out what was kept. */
  async release(): Promise<void> {
    for (const forward of this.kept.splice(0)) await forward();
  }
}

async function leading(...ports: number[]): Promise<StateStore> {
  const hosts = ports.map((port) => `127.0.0.1:${port}`).join(',');
  const store = openEtcdStore(`etcd://${hosts}/jobs/test`, { leaseMs });
  onTestFinished(() => store.close());
  await store.election!.lead('a:1', EVENTS);
  return store;
}

const map = async (store: StateStore): Promise<unknown> => (await store.load()).get('map');

describe.skipIf(!hasEtcd)('a transaction without an answer', () => {
  it('is not carried out when its first copy arrives after later ones', async () => {
    const etcd = await Etcd.start();
    const member = await Member.before(etcd);
    const store = await leading(member.port, etcd.port);
    member.fate = (body) => (body.includes(key('entry/map')) ? 'kept' : 'answered');
    await store.write(new Map([['map', { epoch: 1 }]]));
    await store.write(new Map([['map', { epoch: 2 }]]));
    expect(member.keeps).toBe(1);
    await member.release();
    expect(await map(store)).toEqual({ epoch: 2 });
    await store.write(new Map([['map', { epoch: 3 }]]));
    expect(await map(store)).toEqual({ epoch: 3 });
  });

  it('is done when its first copy was carried out', async () => {
    const etcd = await Etcd.start();
    const member = await Member.before(etcd);
    const store = await leading(member.port, etcd.port);
    member.fate = (body) => (body.includes(key('entry/map')) ? 'unanswered' : 'answered');
    await store.write(new Map([['map', { epoch: 1 }]]));
    await store.write(new Map([['map', { epoch: 2 }]]));
    expect(await map(store)).toEqual({ epoch: 2 });
  });

  it('that was to commit a large change leaves a state that the next scheduler can load', async () => {
    const etcd = await Etcd.start();
    const member = await Member.before(etcd);
    const store = await leading(member.port, etcd.port);
    const large = 'x'.repeat(1_500_000);
    member.fate = (body) =>
      member.keeps === 0 && body.includes(`"requestPut":{"key":"${key('commit')}"`) ? 'kept' : 'answered';
    await store.write(new Map([['map', large]]));
    expect(member.keeps).toBe(1);
    await member.release();
    await store.close();
    expect(await map(await leading(etcd.port))).toBe(large);
  });
});
