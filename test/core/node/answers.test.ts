// Answers are charged to their clients before they are gathered, and wait while there is no room for them.
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { AnswerBytes } from '../../../src/core/node/answer-bytes.js';
import { Cluster, type ClusterOptions, DIM, type Ticket } from '../harness.js';
import { type Hold, kind, type Match } from '../packets.js';

/** Bytes of one row, which is a pull in these tests. */
const ROW = DIM * 4;
/** Room for 64 answers with their headers: a share has 16. */
const LIMIT = 64 * (ROW + 64);
const SHARE = 16;
const STALL = 1000;

let cluster: Cluster;
const start = (options: Partial<ClusterOptions> = {}): Cluster => {
  cluster = new Cluster({
    ...{ k: 1, r: 1, clients: 6, ...options },
    policy: { maxAnswerBytes: LIMIT, answerStallMs: STALL, sinkStallMs: 60_000, ...options.policy },
    // Clients ask for nothing twice, unless a test says so.
    clientPolicy: { retryMs: 100_000, ...options.clientPolicy },
  });
  return cluster;
};
afterEach(() => cluster.close());

const node = () => cluster.nodeById(cluster.map.groups[0]!.data[0]!.node).node!;
const rowsTo = (index: number): Match => kind('rows', { to: cluster.clients[index]!.id });
const silence = (...indexes: number[]): Hold[] => indexes.map((index) => cluster.hold(rowsTo(index)));

/** Pulls of one row each, of different keys. */
function pulls(index: number, count: number, rows = 1): Ticket[] {
  const asked = Array.from({ length: count }, (_, i) =>
    cluster.clients[index]!.pull({
      0: [{ keys: Array.from({ length: rows }, (_, row) => 1000 * index + i * rows + row) }],
    }),
  );
  cluster.settle();
  return asked;
}
const done = (tickets: readonly Ticket[]): number =>
  tickets.filter((ticket) => ticket.done && ticket.error === undefined).length;
const answers = (hold: Hold | undefined): number => hold!.packets.length;

describe('the account of answers', () => {
  beforeEach(() => void start());

  it('is empty when sockets have taken everything', () => {
    expect(done(pulls(0, 200))).toBe(200);
    expect(node().answers.used).toBe(0);
    expect(node().telemetry(false).memory.partBytes.answers).toBe(0);
  });

  it('lets a client that does not read hold its share, and others are answered', () => {
    const [held] = silence(0);
    const asked = pulls(0, 50);
    expect(answers(held)).toBe(SHARE);
    expect(node().telemetry(false).memory.partBytes.answers).toBe(SHARE * ROW);
    expect(node().telemetry(false).parkedRequests).toBe(50 - SHARE);
    expect(done(pulls(1, 50))).toBe(50);
    held!.release();
    cluster.advance(300);
    expect(done(asked)).toBe(50);
    expect([node().answers.used, node().waiting.used]).toEqual([0, 0]);
  });

  it('counts the rows of the answer, before it is gathered', () => {
    const [held] = silence(0);
    pulls(0, 2, SHARE - 4);
    expect(answers(held)).toBe(1);
    expect(node().waiting.count).toBe(1);
  });

  it('has all of a pull of keys that were never pushed: the tables do not grow', () => {
    const { usedBytes } = node().telemetry(false).memory;
    const [held] = silence(0);
    pulls(0, 1, SHARE - 4);
    expect(answers(held)).toBe(1);
    expect(node().answers.used).toBe((SHARE - 4) * ROW);
    expect(node().telemetry(false).memory.usedBytes).toBe(usedBytes);
  });

  it('lets an answer through that is larger than a share or the limit, when nothing is in its way', () => {
    const [held] = silence(0);
    const large = pulls(0, 2, 2 * SHARE);
    expect(answers(held)).toBe(1);
    held!.release();
    cluster.advance(300);
    expect(done(large)).toBe(2);
    expect(done(pulls(1, 2, 100))).toBe(2);
  });

  it('keeps a quarter of the limit for clients that have little', () => {
    const held = silence(0, 1, 2, 3);
    for (const index of [0, 1, 2, 3]) pulls(index, 40);
    expect(held.map(answers)).toEqual([SHARE, SHARE, SHARE, 1]);
    expect(done(pulls(4, 40))).toBe(40);
  });

  it('keeps three quarters of the limit for clients that have much', () => {
    start({ clients: 24 });
    const few = Array.from({ length: 20 }, (_, index) => index + 1);
    const held = silence(...few);
    for (const index of few) pulls(index, 1);
    // The little room has 16 of them.
    expect(held.filter((hold) => answers(hold) === 1)).toHaveLength(16);
    expect(done(pulls(0, 3, SHARE))).toBe(3);
  });

  it('never exceeds its limit, whoever asks', () => {
    silence(0, 1, 2, 3, 4, 5);
    for (let round = 0; round < 5; round++) for (let index = 0; index < 6; index++) pulls(index, 10, 3);
    expect(node().answers.used).toBeLessThanOrEqual(LIMIT);
  });

  it('frees everything of a client whose link is closed', () => {
    const [held] = silence(0);
    pulls(0, 50);
    cluster.disconnect(cluster.nodes[0]!, cluster.clients[0]!.id);
    expect(answers(held)).toBe(0);
    expect([node().answers.used, node().waiting.used, node().waiting.count]).toEqual([0, 0, 0]);
    held!.release();
    cluster.peerUp(cluster.clients[0]!.id, 1);
    cluster.settle();
    expect(done([...cluster.clients[0]!.tickets.values()])).toBe(50);
  });
});

describe('the bytes of a client', () => {
  it('are those of its answers with a header each, until its link holds fewer', () => {
    start();
    const account = new AnswerBytes({ maxAnswerBytes: LIMIT, answerStallMs: STALL });
    account.charge(1, 1000, 0);
    account.charge(1, 500, 0);
    expect(account.heldBy(1)).toBe(1628);
    account.giveBack(1, 500);
    account.report([[1, 5000]], 0);
    expect([account.heldBy(1), account.used, account.needsReport]).toEqual([1064, 1064, false]);
    account.report([[1, 300]], 0);
    expect(account.used).toBe(300);
    account.report([[1, 0]], 0);
    expect([account.used, account.clients()]).toEqual([0, []]);
  });
});

describe('the share of a client', () => {
  it('is a quarter of a small limit, and 4 MiB of a large one', () => {
    const most = (maxAnswerBytes: number) => {
      const account = new AnswerBytes({ maxAnswerBytes, answerStallMs: STALL });
      const step = 64 << 10;
      let bytes = 0;
      for (; bytes < 64 << 20 && account.obstacle(1, step - 64, 0) === undefined; bytes += step)
        account.charge(1, step - 64, 0);
      return [bytes, account.obstacle(2, step - 64, 0)];
    };
    expect(most(4 << 20)).toEqual([1 << 20, undefined]);
    expect(most(128 << 20)).toEqual([4 << 20, undefined]);
  });
});

describe('a client goes on', () => {
  const account = () => {
    const bytes = new AnswerBytes({ maxAnswerBytes: 1 << 30, answerStallMs: STALL });
    const isStalled = (now: number) => bytes.mostStalled('little', now) === 1;
    return { bytes, isStalled };
  };

  it('when it has taken 64 KiB, by and by or at once', () => {
    const { bytes, isStalled } = account();
    bytes.charge(1, 1_000_000, 0);
    bytes.report([[1, 1_000_064]], 0);
    for (const ms of [300, 600, 900]) bytes.report([[1, 1_000_064 - 75 * ms]], ms);
    expect([isStalled(1899), isStalled(1900)]).toEqual([false, true]);
    bytes.report([[1, 800_000]], 1900);
    expect([isStalled(2899), isStalled(2900)]).toEqual([false, true]);
  });

  it('when it takes as much as it is given, between two reports', () => {
    const { bytes, isStalled } = account();
    bytes.charge(1, 100_000, 0);
    bytes.report([[1, 100_064]], 0);
    for (let ms = 100; ms <= 3000; ms += 100) {
      bytes.charge(1, 10_000, ms);
      bytes.report([[1, 100_064]], ms);
      expect(isStalled(ms)).toBe(false);
    }
  });

  it('when it has taken all that it held, and not when it gets more', () => {
    const { bytes, isStalled } = account();
    bytes.charge(1, 1000, 0);
    bytes.charge(1, 100_000, 0);
    bytes.report([[1, 101_128]], 0);
    bytes.report([[1, 100_000]], 900);
    expect([isStalled(1899), isStalled(1900)]).toEqual([false, true]);
    bytes.charge(1, 100_000, 1900);
    bytes.report([[1, 200_064]], 1900);
    bytes.report([[1, 200_000]], 1900);
    expect(isStalled(1900)).toBe(true);
  });
});

describe('a client with much', () => {
  it('stays among those with much until it holds nothing, so that it cannot fill the room of others', () => {
    start();
    const account = new AnswerBytes({ maxAnswerBytes: 64_000, answerStallMs: STALL });
    expect([account.roomWith(1, 900), account.roomWith(1, 1000)]).toEqual(['little', 'much']);
    account.charge(1, 900, 0);
    expect(account.roomWith(1, 0)).toBe('much');
    account.report([[1, 10]], 0);
    account.charge(1, 5000, 0);
    account.report([[1, 1]], 0);
    expect([account.used, account.roomWith(1, 0)]).toEqual([1, 'much']);
    account.report([[1, 0]], 0);
    expect([account.used, account.roomWith(1, 0)]).toEqual([0, 'little']);
  });
});

describe('pulls that wait for room', () => {
  it('are served in turns by bytes, so that large answers of one client leave room for small ones', () => {
    start();
    const held = silence(0, 1, 2, 3, 4);
    for (const index of [0, 1, 2]) pulls(index, SHARE);
    // The last quarter is open to client 4 while it has little.
    const large = pulls(3, 8, 4);
    const small = pulls(4, 32);
    expect([done(large), done(small), answers(held[3]), answers(held[4])]).toEqual([0, 0, 0, 1]);
    const before = cluster.history.length;
    for (const hold of held) hold.release();
    cluster.advance(300);
    expect([done(large), done(small)]).toEqual([8, 32]);
    const order = cluster.sent('rows', before).map(({ to, parts }) => [to, parts[0]!.byteLength / ROW]);
    const bytes = (index: number) =>
      order
        .slice(0, 10)
        .reduce((sum, [to, rows]) => sum + (to === cluster.clients[index]!.id ? rows! : 0), 0);
    expect(Math.abs(bytes(3) - bytes(4))).toBeLessThanOrEqual(4);
  });

  it('leave the room of small ones to them, also when a large one has waited for long', () => {
    start();
    const held = silence(0, 1, 2);
    for (const index of [0, 1, 2]) pulls(index, SHARE);
    const large = pulls(3, 1, 4);
    cluster.advance(STALL + 300);
    const [hungUp] = cluster.eventsNamed('client.hungUp');
    expect(hungUp).toBeDefined();
    expect(done(large)).toBe(1);
    for (const index of [0, 1, 2]) pulls(index, 40);
    pulls(3, 1, 4);
    cluster.advance(STALL);
    expect(done(pulls(4, 40))).toBe(40);
    for (const hold of held) hold.release();
  });

  it('are answered TIMEOUT after parkedPullMs', () => {
    start({ policy: { parkedPullMs: 500 } });
    silence(0);
    const asked = pulls(0, SHARE + 2);
    cluster.advance(900);
    expect(asked.map(({ error }) => error).filter((code) => code !== undefined)).toEqual([
      'TIMEOUT',
      'TIMEOUT',
    ]);
    expect(node().waiting.used).toBe(0);
  });

  it('are rejected with LIMIT beyond maxParkedBytes', () => {
    start({ policy: { maxParkedBytes: 100 } });
    silence(0);
    const asked = pulls(0, SHARE + 10);
    const refused = asked.filter(({ error }) => error === 'LIMIT').length;
    expect(refused).toBeGreaterThan(0);
    expect(refused).toBeLessThan(10);
  });

  it('wait once, however often their client repeats them', () => {
    start({ clientPolicy: { retryMs: 100 } });
    const [held] = silence(0);
    const asked = pulls(0, SHARE + 5);
    cluster.advance(3000);
    expect(node().waiting.count).toBeLessThanOrEqual(SHARE + 5);
    held!.release();
    cluster.advance(300);
    expect(done(asked)).toBe(SHARE + 5);
  });

  it('are all answered, also where a client asks for the same rows several times at once', () => {
    start();
    const [held] = silence(0);
    pulls(0, SHARE);
    const same = [1, 2, 3].map(() => cluster.clients[0]!.pull({ 0: [{ keys: [1] }] }));
    cluster.settle();
    held!.release();
    cluster.advance(300);
    expect(done(same)).toBe(3);
  });

  it('are rejected with LIMIT, and not gathered, when the answer is larger than maxRowsBytes', () => {
    start({ policy: { maxRowsBytes: 4 * ROW } });
    expect(pulls(0, 1, 5)[0]!.error).toBe('LIMIT');
    expect(done(pulls(0, 1, 4))).toBe(1);
    expect(node().answers.used).toBe(0);
  });
});

describe('a client that takes nothing', () => {
  it('is hung up when others wait for its room, and is answered when it asks again', () => {
    start({ clients: 8 });
    const held = silence(0, 1, 2, 3, 4, 5);
    for (const index of [0, 1, 2]) pulls(index, 40);
    for (const index of [3, 4, 5]) pulls(index, 1, 5);
    const asked = pulls(6, 1, 4);
    expect(done(asked)).toBe(0);
    cluster.advance(STALL - 300);
    expect(cluster.eventsNamed('client.hungUp')).toEqual([]);
    cluster.advance(600);
    expect(done(asked)).toBe(1);
    const hungUp = cluster.eventsNamed('client.hungUp').map(({ client }) => client);
    expect(hungUp).toHaveLength(1);
    expect(cluster.clients.slice(0, 3).map(({ id }) => id)).toContain(hungUp[0]);
    const index = cluster.clients.findIndex(({ id }) => id === hungUp[0]);
    expect(held.map((hold, i) => answers(hold) === 0 && i)).toContain(index);
    for (const hold of held) hold.release();
    cluster.peerUp(cluster.clients[index]!.id, 1);
    cluster.advance(600);
    expect(done([...cluster.clients[index]!.tickets.values()])).toBe(40);
  });

  it('is left alone while nobody else waits', () => {
    start();
    const [held] = silence(0);
    const asked = pulls(0, 40);
    cluster.advance(5 * STALL);
    expect(cluster.eventsNamed('client.hungUp')).toEqual([]);
    held!.release();
    cluster.advance(300);
    expect(done(asked)).toBe(40);
  });
});

describe('pulls that wait for lost rows', () => {
  it('hold no room, take room when the rows are there, and are dropped with their client', () => {
    start({ k: 2, r: 1, spares: 1 });
    const first = cluster.client.push({ 0: [{ keys: [1] }] });
    cluster.settle();
    expect(first.done).toBe(true);
    const late = cluster.hold(kind('openAck'));
    cluster.crash(0);
    cluster.settle();
    const asked = pulls(0, SHARE + 4);
    const gone = pulls(1, 4);
    expect([node().answers.used, node().waiting.count]).toEqual([0, SHARE + 8]);
    const actor = cluster.nodeById(cluster.map.groups[0]!.data[0]!.node);
    cluster.disconnect(actor, cluster.clients[1]!.id);
    expect(node().waiting.count).toBe(SHARE + 4);
    const [held] = silence(0);
    late.release();
    cluster.settle();
    cluster.advance(600);
    expect(answers(held)).toBeLessThanOrEqual(SHARE);
    expect(node().answers.used).toBeLessThanOrEqual(LIMIT / 4);
    expect(node().waiting.count).toBe(4);
    held!.release();
    cluster.advance(300);
    expect([done(asked), done(gone)]).toEqual([SHARE + 4, 0]);
    expect(node().waiting.used).toBe(0);
  });
});
