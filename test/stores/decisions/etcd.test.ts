// The store in etcd, with real servers: transactions of any size, one leader, outages, TLS and users.
import { once } from 'node:events';
import { createServer, request } from 'node:http';
import { describe, expect, it, onTestFinished } from 'vitest';
import type { KintsugiError } from '../../../src/common/errors.js';
import { EtcdGateway } from '../../../src/stores/decisions/etcd/gateway.js';
import { parseEtcdUrl, withoutPassword } from '../../../src/stores/decisions/etcd/location.js';
import { openEtcdStore } from '../../../src/stores/decisions/etcd/store.js';
import { batches, put } from '../../../src/stores/decisions/etcd/transactions.js';
import type { StateStore } from '../../../src/stores/decisions/index.js';
import { makeCertificates } from '../../net/transport/certificates.js';
import { Etcd, hasEtcd } from './etcd-server.js';

/** Transactions of etcd for the largest write of these tests, at least. */
const CUTS = 9;

const map = (entries: Record<string, unknown>) => new Map(Object.entries(entries));

/** A store, and what it tells while it leads. */
class Candidate {
  readonly store: StateStore;
  readonly leaders: (string | undefined)[] = [];
  readonly problems: (string | undefined)[] = [];
  readonly deposed: Promise<KintsugiError>;
  private readonly waiting: (() => void)[] = [];
  private depose: (error: KintsugiError) => void = () => {};

  constructor(at: string | StateStore, options: Parameters<typeof openEtcdStore>[1] = {}) {
    this.store = typeof at === 'string' ? openEtcdStore(at, options) : at;
    this.deposed = new Promise((resolve) => {
      this.depose = resolve;
    });
    onTestFinished(() => this.store.close());
  }

  async lead(address = 'a:1'): Promise<this> {
    await this.store.election!.lead(address, {
      onLeader: (leader) => this.leaders.push(leader),
      onReach: (problem) => {
        // Each attempt that fails says why.
        if (this.problems.length > 0 && this.problems.at(-1) === problem) return;
        this.problems.push(problem);
        for (const wake of this.waiting.splice(0)) wake();
      },
      onDoubt: () => {},
      onDeposed: (error) => this.depose(error),
    });
    return this;
  }

  /**
   * Waits for the first problem from now on that `matches`, or for the word that it is reached. Others may
   * come before it: the end of an earlier one, a connection that breaks.
   */
  async until(matches: RegExp | 'reached'): Promise<void> {
    const is = (problem: string | undefined) =>
      problem === undefined ? matches === 'reached' : matches !== 'reached' && matches.test(problem);
    for (let seen = this.problems.length; ; ) {
      await new Promise<void>((resolve) => this.waiting.push(resolve));
      for (; seen < this.problems.length; seen++) if (is(this.problems[seen])) return;
    }
  }
}

const leading = (url: string, options = {}): Promise<Candidate> => new Candidate(url, options).lead();

describe('the URL', () => {
  it('names servers, a prefix, perhaps a user', () => {
    expect(parseEtcdUrl('etcd://a:1,b,[::1]:3/jobs/one/')).toEqual({
      endpoints: [
        { host: 'a', port: 1 },
        { host: 'b', port: 2379 },
        { host: '::1', port: 3 },
      ],
      prefix: 'jobs/one/',
    });
    const secret = 'etcds://me:p%40ss@a/x';
    expect(parseEtcdUrl(secret)).toMatchObject({ user: { name: 'me', password: 'p@ss' }, tls: {} });
    expect(withoutPassword(secret)).toBe('etcds://me:***@a/x');
    // The password is hidden in URLs that are refused, too.
    for (const wrong of ['etcd://me:pa/ss@a/x', 'etcd://me:pa@ss@a/x', 'etcd://me:pa/s@s/@a:1'])
      expect(() => parseEtcdUrl(wrong)).toThrow(/^"etcd:\/\/me:\*\*\*@a/);
  });

  it.each([
    'etcd://a:1',
    'etcd://a:1/',
    'etcd:///x',
    'etcd://a:0/x',
    'etcd://a:1,/x',
    'etcd://me@a/x',
    'etcd://me:%@a/x',
    'http://a/x',
    'etcd://a b/x',
  ])('"%s" is refused', (url) => {
    expect(() => parseEtcdUrl(url)).toThrow(expect.objectContaining({ code: 'BAD_ARGUMENT' }));
  });

  it('certificates need TLS, come in pairs, and can be read', () => {
    for (const [url, options] of [
      ['etcd://a/x', { caFile: '/f' }],
      ['etcds://a/x', { certFile: '/f' }],
      ['etcds://a/x', { caFile: '/there/is/none' }],
    ] as const)
      expect(() => parseEtcdUrl(url, options)).toThrow(expect.objectContaining({ code: 'BAD_ARGUMENT' }));
  });
});

it('operations go together as far as etcd takes them', () => {
  const sizes = (count: number, bytes: number) =>
    batches(Array.from({ length: count }, () => put('k', 'x'.repeat(bytes)))).map((batch) => batch.length);
  expect(sizes(0, 1)).toEqual([]);
  expect(sizes(250, 1)).toEqual([100, 100, 50]);
  expect(sizes(5, 400_000)).toEqual([2, 2, 1]);
});

describe('of several servers', () => {
  it('the next one is asked when one does not answer, however many requests wait for it', async () => {
    const silent = createServer(() => {}).listen(0, '127.0.0.1');
    const answers = createServer((_, answer) => answer.end('{"kvs":[]}')).listen(0, '127.0.0.1');
    const ports = await Promise.all(
      [silent, answers].map(async (server) => {
        await once(server, 'listening');
        onTestFinished(() => void server.close());
        return (server.address() as { port: number }).port;
      }),
    );
    const gateway = new EtcdGateway(
      parseEtcdUrl(`etcd://${ports.map((port) => `127.0.0.1:${port}`).join()}/x`),
    );
    onTestFinished(() => gateway.close());
    const range = () => gateway.call('/v3/kv/range', {}, 100);
    for (const { status } of await Promise.allSettled([range(), range()])) expect(status).toBe('rejected');
    expect(await range()).toEqual({ kvs: [] });
  });
});

describe.skipIf(!hasEtcd)('etcd', () => {
  it('gives entries back to the next leader, whatever their number and size', async () => {
    const etcd = await Etcd.start();
    const first = await leading(etcd.url());
    expect(await first.store.load()).toEqual(new Map());
    await first.store.write(map({ a: 1, b: { c: 'ä' }, 'name/x': null }));
    const many = Array.from({ length: 400 }, (_, i): [string, unknown] => [`group/${i}`, { i }]);
    await first.store.write(new Map([...many, ['b', undefined]]));
    const large = 'ö'.repeat(900_000);
    await first.store.write(map({ large, 'group/7': undefined }));
    const expected = new Map([...many, ['a', 1], ['name/x', null], ['large', large]] as [string, unknown][]);
    expected.delete('group/7');
    expect(await first.store.load()).toEqual(expected);
    await first.store.close();

    const second = await leading(etcd.url());
    expect(await second.store.load()).toEqual(expected);
    for (const next of ['ü'.repeat(1_300_000), 'ü'.repeat(300_000), 'small']) {
      await second.store.write(map({ large: next }));
      expect((await second.store.load()).get('large')).toBe(next);
    }
    expect(await (await leading(etcd.url('jobs/other'))).store.load()).toEqual(new Map());
    // No piece of a value and no log is left.
    const range = { key: Buffer.from('jobs/test/').toString('base64'), range_end: '' };
    range.range_end = Buffer.from('jobs/test0').toString('base64');
    const { count } = await etcd.ask('/v3/kv/range', { ...range, count_only: true });
    // Two more keys: who leads, and the number of the newest transaction.
    expect(Number(count)).toBe(expected.size + 2);
  });

  it('a large transaction that is cut off anywhere is there whole or not at all', async () => {
    const etcd = await Etcd.start();
    const some = (first: number, count: number, value?: string) =>
      Object.fromEntries(Array.from({ length: count }, (_, i) => [`k/${first + i}`, value]));
    // Entries that are in pieces, before or after.
    const [small, large] = ['s', 'l'.repeat(530_000)];
    const before = { ...some(0, 150, 'before'), grows: small, shrinks: large };
    const after = { ...some(50, 150, 'after'), grows: large, shrinks: small };
    const removed = some(0, 50);
    const seen = new Set<string>();
    for (let cut = 0; cut <= CUTS; cut++) {
      const prefix = `cut/${cut}`;
      const writer = await leading(etcd.url(prefix));
      await writer.store.write(map(before));
      await writer.store.close();

      // Takes so many transactions: one that makes it the leader, and `cut` of the write.
      let left = 1 + cut;
      const proxy = createServer((incoming, outgoing) => {
        if (incoming.url === '/v3/kv/txn' && left-- <= 0) return void incoming.socket.destroy();
        const { url, method, headers } = incoming;
        const onward = request({ port: etcd.port, path: url, method, headers }, (answer) => {
          outgoing.writeHead(answer.statusCode!);
          answer.pipe(outgoing);
        });
        incoming.pipe(onward);
      });
      await new Promise<void>((resolve) => proxy.listen(0, '127.0.0.1', resolve));
      onTestFinished(() => void proxy.close());
      const { port } = proxy.address() as { port: number };
      const cutOff = await leading(`etcd://127.0.0.1:${port}/${prefix}`);
      const unreachable = cutOff.until(/./);
      const writing = cutOff.store.write(map({ ...after, ...removed }));
      writing.catch(() => {});
      await Promise.race([writing, unreachable]);
      await etcd.dropLeader(prefix);

      const next = await leading(etcd.url(prefix));
      const found = Object.fromEntries(await next.store.load());
      const whole = JSON.stringify(Object.entries(found).sort());
      const choices = { before: Object.entries(before).sort(), after: Object.entries(after).sort() };
      const which = Object.entries(choices).find(([, each]) => JSON.stringify(each) === whole)?.[0];
      expect(which, `cut after ${cut} transactions`).toBeDefined();
      seen.add(which!);
      // And it stays so.
      expect(Object.fromEntries(await next.store.load())).toEqual(found);
      await next.store.close();
      await cutOff.store.close();
    }
    expect([...seen]).toEqual(['before', 'after']);
  }, 120_000);

  it('one leads, the others know who, and another leads when it is closed', async () => {
    const etcd = await Etcd.start();
    const first = await new Candidate(etcd.url()).lead('first:1');
    const second = new Candidate(etcd.url());
    const led = second.lead('second:2');
    await expect.poll(() => second.leaders).toContain('first:1');
    await first.store.write(map({ a: 1 }));
    await first.store.close();
    await led;
    expect(await second.store.load()).toEqual(map({ a: 1 }));
  });

  it('who does not lead any more cannot write, whatever it believes', async () => {
    const etcd = await Etcd.start();
    const first = await leading(etcd.url());
    await first.store.write(map({ a: 1 }));
    await etcd.dropLeader();
    const second = await leading(etcd.url());
    await expect(first.store.write(map({ a: 2 }))).rejects.toMatchObject({ code: 'DEPOSED' });
    expect((await first.deposed).code).toBe('DEPOSED');
    await expect(first.store.write(map({ a: 3 }))).rejects.toMatchObject({ code: 'DEPOSED' });
    expect(await second.store.load()).toEqual(map({ a: 1 }));
  });

  it('who leads again writes nothing that it decided before', async () => {
    const etcd = await Etcd.start();
    const first = await leading(etcd.url());
    await first.store.write(map({ a: 1 }));
    await etcd.dropLeader();
    await expect(first.store.write(map({ a: 2 }))).rejects.toMatchObject({ code: 'DEPOSED' });
    const again = await new Candidate(first.store.election!.again()).lead();
    await expect(first.store.write(map({ a: 3 }))).rejects.toMatchObject({ code: 'DEPOSED' });
    await first.store.close();
    expect(await again.store.load()).toEqual(map({ a: 1 }));
    await again.store.write(map({ a: 4 }));
    expect(await again.store.load()).toEqual(map({ a: 4 }));
  });

  it('who has seen entries remembers that, in later terms and where it only stood by', async () => {
    const etcd = await Etcd.start();
    const first = await leading(etcd.url());
    const second = new Candidate(etcd.url());
    const led = second.lead();
    const had = () => [first, second].map(({ store }) => store.election!.hadEntries);
    await expect.poll(() => second.leaders).toContain('a:1');
    expect(had()).toEqual([false, false]);
    await first.store.write(map({ a: 1 }));
    await expect.poll(had).toEqual([true, true]);
    await etcd.kill();
    etcd.loseData();
    await etcd.start();
    await led;
    expect([...(await second.store.load())]).toEqual([]);
    expect(had()).toEqual([true, true]);
    expect(first.store.election!.again().election!.hadEntries).toBe(true);
  });

  it('who had an answer waits when it is shut out, also in a later term; a newcomer is told', async () => {
    const etcd = await Etcd.start();
    for (const role of ['root', 'me']) {
      await etcd.ask('/v3/auth/user/add', { name: role, password: 'p' });
      await etcd.ask('/v3/auth/role/add', { name: role });
      await etcd.ask('/v3/auth/user/grant', { user: role, role });
    }
    const perm = { permType: 'READWRITE', key: 'AA==', range_end: 'AA==' };
    await etcd.ask('/v3/auth/role/grant', { name: 'me', perm });
    await etcd.ask('/v3/auth/enable', {});
    const url = etcd.url('x', 'me:p@');
    const leader = await leading(url, { leaseMs: 60_000 });
    await leader.store.write(map({ a: 1 }));
    const { token } = await etcd.ask('/v3/auth/authenticate', { name: 'root', password: 'p' });
    const asRoot = (path: string, body: object) => etcd.ask(`/v3/auth/${path}`, body, token as string);

    const denied = leader.until(/does not let this scheduler in: .*permission denied/);
    await asRoot('role/revoke', { role: 'me', key: perm.key, range_end: perm.range_end });
    const writing = leader.store.write(map({ a: 2 }));
    await denied;
    await expect(leading(url)).rejects.toMatchObject({ code: 'STORE_FAILED' });
    const again = new Candidate(leader.store.election!.again());
    const shutOut = again.until(/permission denied/);
    const led = again.lead('again:1');
    await shutOut;
    await asRoot('role/grant', { name: 'me', perm });
    await writing;
    expect(await leader.store.load()).toEqual(map({ a: 2 }));

    // A password that is changed under it is refused as an invalid request.
    const refused = again.until(/invalid user ID or password/);
    await asRoot('user/changepw', { name: 'me', password: 'q' });
    await refused;
    await expect(leading(url)).rejects.toMatchObject({ code: 'STORE_FAILED' });
    const letIn = again.until('reached');
    await asRoot('user/changepw', { name: 'me', password: 'p' });
    await letIn;
    await leader.store.close();
    await led;
  });

  it('waits while etcd is away, and says so', async () => {
    const etcd = await Etcd.start();
    const leader = await leading(etcd.url());
    const away = leader.until(/^etcd at 127\.0\.0\.1:\d+: ./);
    await etcd.kill();
    const writing = leader.store.write(map({ a: 1 }));
    await away;
    const back = leader.until('reached');
    await etcd.start();
    await writing;
    await back;
    expect(await leader.store.load()).toEqual(map({ a: 1 }));
  });

  it('speaks TLS with a certificate of its own, and with a user', async () => {
    const { tls, otherCa, remove } = makeCertificates();
    onTestFinished(remove);
    const plain = await Etcd.start();
    await plain.ask('/v3/auth/user/add', { name: 'root', password: 'p@ss' });
    await plain.ask('/v3/auth/role/add', { name: 'root' });
    await plain.ask('/v3/auth/user/grant', { user: 'root', role: 'root' });
    await plain.ask('/v3/auth/enable', {});
    const known = await leading(plain.url('x', 'root:p%40ss@'));
    await known.store.write(map({ a: 1 }));
    expect(await known.store.load()).toEqual(map({ a: 1 }));
    for (const credentials of ['root:wrong@', 'nobody:p@', ''])
      await expect(leading(plain.url('x', credentials)), credentials).rejects.toMatchObject({
        code: 'STORE_FAILED',
      });

    const secured = await Etcd.start(tls);
    const leader = await leading(secured.url(), tls);
    await leader.store.write(map({ b: 2 }));
    expect(await leader.store.load()).toEqual(map({ b: 2 }));
    // Neither is worth another attempt: etcd wants a certificate, or its own is of an unknown authority.
    for (const options of [{ caFile: tls.caFile }, { ...tls, caFile: otherCa }])
      await expect(leading(secured.url(), options)).rejects.toMatchObject({
        code: 'STORE_FAILED',
        message: expect.stringMatching(/certificate|alert/),
      });
    // A scheduler that was let in before waits: its certificate may be accepted again.
    const patient = await leading(secured.url('y'), { ...tls, leaseMs: 60_000 });
    await secured.kill();
    const writing = patient.store.write(map({ c: 3 }));
    const refused = secured.says('rejected connection');
    await secured.start({ ...tls, caFile: otherCa });
    await refused;
    await secured.kill();
    await secured.start();
    await writing;
  });
});
