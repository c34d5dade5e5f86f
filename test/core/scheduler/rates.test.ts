/** Learning rates that are set: which pushes have them, when the client is told, and who may change them. */
import { afterEach, describe, expect, it } from 'vitest';
import type { OptimizerSpec } from '../../../src/engine/native.js';
import { optimizerOf } from '../../../src/engine/optimizers.js';
import { SCHEDULER } from '../../../src/protocol/map.js';
import type { Message } from '../../../src/protocol/messages.js';
import { MAX_EARLIER } from '../../../src/protocol/settings.js';
import type { AskedTable } from '../../../src/protocol/tables.js';
import { Cluster, type ClusterOptions, tableSpec } from '../harness.js';
import { mapsTo } from '../packets.js';

let cluster: Cluster;
afterEach(() => cluster.close());

/** Rows of table t count: with the rate -n a push adds n. */
function start(options: Partial<ClusterOptions> = {}): void {
  cluster = new Cluster({ k: 2, r: 1, clients: 2, ...options });
}

const ask = (message: Message, from = cluster.client.id) => {
  cluster.stepScheduler({ kind: 'message', from, role: 'client', message });
  cluster.settle();
};
const set = (id: number, lr: number, name = 't', from?: number) => ask({ t: 'setTable', id, name, lr }, from);
const answers = (id: number) => cluster.sent('tableSet').filter(({ message }) => message.id === id);
const table = (name = 't') => cluster.map.tables.find((each) => each.name === name)!;
const rates = (name?: string) => [table(name).optimizer.lr, ...(table(name).earlierRates ?? [])];
const push = (...members: number[]) => {
  const ticket = cluster.client.push(Object.fromEntries(members.map((m) => [m, [{ keys: [1] }]])));
  cluster.settle();
  return ticket;
};

describe('a learning rate that is set', () => {
  it('holds for the pushes that begin when the client is told, on every shard', () => {
    start();
    push(0, 1);
    set(1, -3);
    expect(answers(1)).toEqual([]);
    cluster.advance(600);
    expect(answers(1).map(({ to, message }) => [to, message.code])).toEqual([[cluster.client.id, undefined]]);
    push(0, 1);
    expect([cluster.read(0, 1), cluster.read(1, 1)]).toEqual([4, 4]);
    expect(cluster.checkParities()).toBeGreaterThan(0);
    expect(cluster.eventsNamed('table.set')).toEqual([{ table: 't', lr: -3, was: -1 }]);
  });

  it('is told when the last owner has it; until then each shard decides for itself', () => {
    start();
    const held = cluster.hold(mapsTo(cluster, 1));
    set(1, -3);
    cluster.advance(3000);
    expect(answers(1)).toEqual([]);
    push(0, 1);
    expect([cluster.read(0, 1), cluster.read(1, 1)]).toEqual([3, 1]);
    held.release();
    cluster.advance(600);
    expect(answers(1)).toHaveLength(1);
    push(0, 1);
    expect([cluster.read(0, 1), cluster.read(1, 1)]).toEqual([6, 4]);
    expect(cluster.checkParities()).toBeGreaterThan(0);
  });

  it('is that of a new owner, when the old one died before it had it', () => {
    start({ spares: 1 });
    push(0, 1);
    const held = cluster.hold(mapsTo(cluster, 1));
    set(1, -3);
    cluster.advance(600);
    push(1);
    expect([answers(1), cluster.read(1, 1)]).toEqual([[], 2]);
    cluster.crash(1);
    held.release();
    cluster.advance(1500);
    expect(answers(1)).toHaveLength(1);
    push(0, 1);
    expect([cluster.read(0, 1), cluster.read(1, 1)]).toEqual([4, 5]);
  });

  it('is not waited for by a shard that is lost', () => {
    start({ spares: 0 });
    push(0, 1);
    cluster.crash(0);
    cluster.crash(1);
    cluster.advance(8000);
    set(1, -3);
    cluster.advance(600);
    const { unrecoverable } = cluster.scheduler!.status();
    expect([unrecoverable.length > 0, answers(1).length]).toEqual([true, 1]);
  });

  it('is durable before anyone has it, also for a scheduler that is started again', () => {
    start();
    const held = cluster.hold(({ to, message }) => to === SCHEDULER && message.t === 'heartbeat');
    set(1, -3);
    cluster.advance(300);
    cluster.crashScheduler();
    held.drop();
    cluster.restartScheduler();
    expect([rates(), answers(1)]).toEqual([[-3, -1], []]);
    set(1, -3);
    set(1, -3);
    cluster.advance(600);
    expect([rates(), answers(1).length]).toEqual([[-3, -1], 1]);
  });

  it('is set once by a question that comes again, although another client has set another rate since', () => {
    start();
    set(1, -3);
    cluster.advance(600);
    set(1, -5, 't', cluster.clients[1]!.id);
    cluster.advance(600);
    set(1, -3);
    cluster.advance(600);
    expect([rates(), answers(1).length]).toEqual([[-5, -1, -3], 3]);
    set(2, -3);
    cluster.advance(600);
    expect([rates(), answers(2).length]).toEqual([[-3, -1, -3, -5], 1]);
  });

  it('that it has already changes nothing, and is answered', () => {
    start();
    const { epoch } = cluster.map;
    set(1, -1);
    cluster.advance(600);
    expect([cluster.map.epoch, answers(1).length]).toEqual([epoch, 1]);
  });

  it('is refused where it cannot be', () => {
    start({
      tables: [tableSpec(), tableSpec('f', optimizerOf('ftrl', 0.5)), tableSpec('a', optimizerOf('adam', 1))],
    });
    const refused = (name: string, lr: number) => {
      set(7, lr, name);
      const { code, message } = answers(7).at(-1)!.message;
      return [code, message];
    };
    expect(refused('x', 1)).toEqual(['UNKNOWN_TABLE', 'no table "x" exists in this job']);
    const [code, message] = refused('f', 0.25);
    expect(code).toBe('BAD_ARGUMENT');
    expect(message).toContain('table "f": optimizer ftrl: lr stays 0.5 and cannot become 0.25: ');
    expect(refused('a', -1)[1]).toMatch(/^table "a": optimizer adam: lr must be a number in \[0, /);
    ask({ t: 'setTable', id: 8, name: 'a' });
    expect(answers(8)[0]!.message.message).toContain('nothing is to change: it takes lr, clipNorm, schedule');
    expect([rates('f'), rates('a')]).toEqual([[0.5], [1]]);
  });
});

describe('a worker that resumes a job', () => {
  const wanted = (lr: number, rate?: 'keep' | 'set', kind: OptimizerSpec['kind'] = 'sgd'): AskedTable => ({
    ...tableSpec('t', optimizerOf(kind, lr)),
    ...(rate && { set: rate === 'set' ? ['lr'] : [] }),
  });
  let number = 100;
  const resume = (...specs: AskedTable[]) => {
    const id = number++;
    ask({ t: 'createTables', id, specs });
    cluster.advance(600);
    const [answer] = cluster.sent('tablesCreated').filter(({ message }) => message.id === id);
    const { code, message, tables } = answer!.message;
    return code ? [code, message] : tables.map(({ optimizer }) => optimizer.lr);
  };

  it('sets a new rate, once: the flags of workers from before change nothing', () => {
    start();
    expect(resume(wanted(-1, 'set'))).toEqual([-1]);
    expect(resume(wanted(-2, 'set'))).toEqual([-2]);
    push(0);
    expect(cluster.read(0, 1)).toBe(2);
    set(1, -3);
    for (const old of [-1, -2, -3]) expect(resume(wanted(old, 'set'))).toEqual([-3]);
    expect(rates()).toEqual([-3, -1, -2]);
  });

  it('is told when all owners have its rate', () => {
    start();
    const held = cluster.hold(mapsTo(cluster, 1));
    ask({ t: 'createTables', id: 50, specs: [wanted(-2, 'set')] });
    const told = () => cluster.sent('tablesCreated').some(({ message }) => message.id === 50);
    cluster.advance(2000);
    expect(told()).toBe(false);
    held.release();
    cluster.advance(600);
    expect(told()).toBe(true);
  });

  it('keeps the rate of the job where nobody asked for one', () => {
    start();
    set(1, -3);
    expect(resume(wanted(-7, 'keep'))).toEqual([-3]);
    expect(rates()).toEqual([-3, -1]);
  });

  it('or program that says nothing of rates may have an earlier one, and no other', () => {
    start();
    set(1, -3);
    expect([resume(wanted(-1)), resume(wanted(-3))]).toEqual([[-3], [-3]]);
    expect(resume(wanted(-2))).toEqual(['TABLE_EXISTS', 'table "t" exists with optimizer.lr -3, not -2']);
  });

  it('is refused with what may not change, and then nothing changes', () => {
    start({ tables: [tableSpec(), tableSpec('f', optimizerOf('ftrl', 0.5))] });
    const other = { ...wanted(-2, 'set'), seed: 4 };
    expect(resume(wanted(-2, 'set'), other)).toEqual(['TABLE_EXISTS', 'table "t" exists with seed 0, not 4']);
    expect(resume(wanted(2, 'set', 'momentum'))).toEqual([
      'TABLE_EXISTS',
      'table "t" exists with optimizer sgd, not momentum',
    ]);
    const ftrl = (set: AskedTable['set']) => ({
      ...tableSpec('f', optimizerOf('ftrl', 0.25)),
      ...(set && { set }),
    });
    const text = 'table "f" exists with optimizer.lr 0.5, not 0.25';
    expect([resume(ftrl(['lr'])), resume(ftrl(undefined))]).toEqual([
      ['TABLE_EXISTS', text],
      ['TABLE_EXISTS', text],
    ]);
    expect(resume(ftrl([]))).toEqual([0.5]);
    expect([rates(), rates('f')]).toEqual([[-1], [0.5]]);
  });

  it('sets no rate of a table that may have forgotten some', () => {
    start();
    for (let i = 0; i <= MAX_EARLIER; i++) set(i, -2 - i);
    expect(rates()).toHaveLength(1 + MAX_EARLIER);
    const [now] = rates();
    expect(resume(wanted(-1000, 'set'))).toEqual([now]);
    set(99, -1000);
    cluster.advance(600);
    expect(rates()[0]).toBe(-1000);
  });
});
