/**
 * Terms of a scheduler: it leads, is deposed, and stands by again in the same process, at the same address.
 */
import { once } from 'node:events';
import { type AddressInfo, createServer, type Socket } from 'node:net';
import { expect, it, onTestFinished, vi } from 'vitest';
import { KintsugiError } from '../../../src/common/errors.js';
import { parseAddress } from '../../../src/net/address.js';
import { dial, type Link } from '../../../src/net/transport/index.js';
import type { RunningScheduler, SchedulerOptions } from '../../../src/roles/scheduler/scheduler.js';
import {
  type Election,
  type ElectionEvents,
  type Entries,
  MemoryStore,
  type StateStore,
} from '../../../src/stores/decisions/index.js';
import { client, EventLog, ps, redundant, scheduler, temporaryDirectory } from '../support.js';

/** A store whose elections the test decides. All terms share the entries. */
class Place {
  entries = new MemoryStore();
  hadEntries = false;
  /** Terms in order: each a store of its own. */
  readonly terms: Term[] = [];

  open(): StateStore {
    const term = new Term(this);
    this.terms.push(term);
    return term;
  }
}

class Term implements StateStore, Election {
  events: ElectionEvents | undefined;
  isOver = false;
  closed = false;
  /** Writes that came after the term was over: each was refused. */
  lateWrites = 0;
  /** Loading waits for this. */
  loads: Promise<unknown> = Promise.resolve();
  private grant = (): void => {};
  private readonly granted = new Promise<void>((resolve) => {
    this.grant = resolve;
  });

  constructor(private readonly place: Place) {}

  get election(): Election {
    return this;
  }
  get hadEntries(): boolean {
    return this.place.hadEntries;
  }
  again(): StateStore {
    return this.place.open();
  }
  clear(): Promise<void> {
    this.place.entries = new MemoryStore();
    return Promise.resolve();
  }
  lead(_: string, events: ElectionEvents): Promise<void> {
    this.events = events;
    return this.granted;
  }
  elect(): void {
    this.grant();
  }
  depose(): KintsugiError {
    this.isOver = true;
    const error = new KintsugiError('DEPOSED', 'another one leads');
    this.events?.onDeposed(error);
    return error;
  }
  async load(): Promise<Entries> {
    await this.loads;
    return this.place.entries.load();
  }
  async write(changes: Entries): Promise<void> {
    if (this.isOver) {
      this.lateWrites++;
      throw new KintsugiError('DEPOSED', 'another one leads');
    }
    await this.place.entries.write(changes);
    this.place.hadEntries = true;
  }
  async close(): Promise<void> {
    this.closed = true;
  }
}

/** The answer of the scheduler at an address to the first message of a link. */
async function answerOf(
  address: string,
  first: object = { t: 'status', id: 1 },
): Promise<{ answer: Record<string, unknown>; link: Link; ended: Promise<string> }> {
  let answered = (_: Record<string, unknown>): void => {};
  let end = (_: string): void => {};
  const answer = new Promise<Record<string, unknown>>((resolve) => {
    answered = resolve;
  });
  const ended = new Promise<string>((resolve) => {
    end = resolve;
  });
  const { host, port } = parseAddress(address);
  const link = await dial({
    ...{ host, port },
    handlers: {
      onOpen: () => {},
      onMessage: (_, header) => answered(header),
      onClose: (_, reason) => end(reason),
    },
  });
  link.send(first);
  const refused = ended.then((reason) => ({ t: 'none', reason }));
  return { answer: await Promise.race([answer, refused]), link, ended };
}

/** All that a leader takes as the first message of a link. */
const FIRST: readonly object[] = [
  { t: 'join', name: 'ps-0', host: 'a', address: 'a:1', standby: false },
  { t: 'attach' },
  { t: 'status', id: 1 },
  { t: 'events', id: 1, since: 0, follow: false },
  { t: 'pulse', node: 1, inc: 1, job: 'job', ageMs: 10, gapMs: 10 },
];

it('redirects whoever comes while it stands by, whatever the first message is', async () => {
  const place = new Place();
  const log = new EventLog();
  const stands = log.next('scheduler.standby');
  const { address } = await scheduler({ store: place.open(), log });
  await stands;
  for (const first of FIRST)
    expect((await answerOf(address, first)).answer).toMatchObject({ t: 'redirect', to: '' });
});

it('leads, steps down, stands by at the same address, and leads again', async () => {
  const place = new Place();
  const log = new EventLog();
  let fail = (_: KintsugiError): void => {};
  const failed = new Promise<never>((_, reject) => {
    fail = reject;
  });
  const stands = log.next('scheduler.standby');
  const running = await scheduler({ store: place.open(), log, onFailed: (error) => fail(error) });
  await stands;
  expect((await answerOf(running.address)).answer).toMatchObject({ t: 'redirect', to: '' });
  const leads = log.next('scheduler.ready');
  place.terms[0]!.elect();
  expect(await leads).toMatchObject({ address: running.address, resumed: false });
  const { answer, ended } = await answerOf(running.address);
  expect(answer).toMatchObject({ t: 'statusReply' });

  const [deposed, standsAgain] = [log.next('scheduler.deposed'), log.next('scheduler.standby')];
  const [first] = place.terms as [Term];
  first.depose();
  first.depose();
  expect(await Promise.race([deposed, failed])).toEqual({ message: 'another one leads' });
  expect(await Promise.race([standsAgain, failed])).toEqual({ address: running.address });
  // Nobody is left who takes it for the leader, and its term is over for good.
  await ended;
  expect([first.closed, first.lateWrites, place.terms.length]).toEqual([true, 0, 2]);
  expect((await answerOf(running.address)).answer).toMatchObject({ t: 'redirect', to: '' });

  const leadsAgain = log.next('scheduler.ready');
  place.terms[1]!.elect();
  expect(await Promise.race([leadsAgain, failed])).toMatchObject({ address: running.address, resumed: true });
  expect((await answerOf(running.address)).answer).toMatchObject({ t: 'statusReply' });
});

it('ends with its process for any other cause', async () => {
  const place = new Place();
  const failed = new Promise<KintsugiError>((resolve) => {
    void scheduler({ store: place.open(), onFailed: resolve }).then(() => {
      const [term] = place.terms as [Term];
      term.load = () => Promise.reject(new KintsugiError('STORE_FAILED', 'it cannot be read'));
      term.elect();
    });
  });
  expect(await failed).toMatchObject({ code: 'STORE_FAILED', message: 'it cannot be read' });
  expect(place.terms.length).toBe(1);
});

it('closed while it changes from one term to the next it stays closed', async () => {
  const place = new Place();
  const log = new EventLog();
  const leads = log.next('scheduler.ready');
  const running = await scheduler({ store: place.open(), log });
  place.terms[0]!.elect();
  await leads;
  place.terms[0]!.depose();
  await running.close();
  expect(place.terms.every(({ closed }) => closed)).toBe(true);
  expect(place.terms.length).toBe(1);
});

interface Run {
  place: Place;
  log: EventLog;
  running: RunningScheduler;
  failures: KintsugiError[];
  /** Resolves when the scheduler has ended by itself. */
  failed: Promise<KintsugiError>;
}

/** A scheduler in its first term, which it leads or is about to. */
async function begun(options: Partial<SchedulerOptions> = {}, leads = true): Promise<Run> {
  const place = new Place();
  const log = new EventLog();
  const failures: KintsugiError[] = [];
  let fail = (_: KintsugiError): void => {};
  const failed = new Promise<KintsugiError>((resolve) => {
    fail = resolve;
  });
  const onFailed = (error: KintsugiError) => {
    failures.push(error);
    fail(error);
  };
  const ready = log.next('scheduler.ready');
  const running = await scheduler({ store: place.open(), log, onFailed, ...options });
  if (leads) {
    place.terms[0]!.elect();
    await ready;
  }
  return { place, log, running, failures, failed };
}

/** Rejects when the scheduler has ended by itself. */
function orFailure<T>({ failed }: Run, promise: Promise<T>): Promise<T> {
  return Promise.race([promise, failed.then((error) => Promise.reject(error))]);
}

/** The terms of a process whose job is durable; the last one stands by. */
async function deposedOnce(run: Run): Promise<void> {
  await ps({ scheduler: run.running.address });
  await redundant(await client(run.running.address), 1);
  const stands = run.log.next('scheduler.standby');
  run.place.terms[0]!.depose();
  await orFailure(run, stands);
}

it.each([
  [
    'has no job any more',
    async (place: Place) => {
      place.entries = new MemoryStore();
    },
  ],
  [
    'has job other',
    async (place: Place) => {
      const text = JSON.stringify([...(await place.entries.load())]).replaceAll('job-under-test', 'other');
      place.entries = new MemoryStore();
      await place.entries.write(new Map(JSON.parse(text) as [string, unknown][]));
    },
  ],
])('ends when the store %s, and begins nothing', async (text, change) => {
  const run = await begun();
  await deposedOnce(run);
  await change(run.place);
  const before = new Map(await run.place.entries.load());
  const leads = run.log.next('scheduler.ready');
  run.place.terms[1]!.elect();
  expect(await Promise.race([run.failed, leads])).toMatchObject({
    code: 'STORE_FAILED',
    message: expect.stringMatching(new RegExp(`${text}.*What to do: .*snapshot`)),
  });
  expect(new Map(await run.place.entries.load())).toEqual(before);
  // The lease is given back.
  expect(run.place.terms[1]!.closed).toBe(true);
});

it('ends when it has only stood by while the store had a job, and the store has none', async () => {
  const run = await begun({}, false);
  run.place.hadEntries = true;
  const leads = run.log.next('scheduler.ready');
  run.place.terms[0]!.elect();
  expect(await Promise.race([run.failed, leads])).toMatchObject({ code: 'STORE_FAILED' });
});

it('deposed before anything was durable it begins whatever job is there', async () => {
  const run = await begun({}, false);
  const [first] = run.place.terms as [Term];
  first.write = () => new Promise(() => {});
  const ready = run.log.next('scheduler.ready');
  first.elect();
  await ready;
  const stands = run.log.next('scheduler.standby');
  first.depose();
  await orFailure(run, stands);
  const leads = run.log.next('scheduler.ready');
  run.place.terms[1]!.elect();
  expect(await Promise.race([run.failed, leads])).toMatchObject({ resumed: false });
});

it('deposed while its role is beginning, the next term waits for the end of it', async () => {
  const run = await begun({}, false);
  const [first] = run.place.terms as [Term];
  let load = (): void => {};
  first.loads = new Promise<void>((resolve) => {
    load = resolve;
  });
  let loading = (): void => {};
  const begins = new Promise<void>((resolve) => {
    loading = resolve;
  });
  const loads = first.load.bind(first);
  first.load = () => {
    loading();
    return loads();
  };
  const stands = run.log.next('scheduler.standby');
  first.elect();
  await begins;
  first.depose();
  load();
  expect(await Promise.race([stands, run.failed])).toEqual({ address: run.running.address });
  const leads = run.log.next('scheduler.ready');
  run.place.terms[1]!.elect();
  expect(await leads).toMatchObject({ address: run.running.address });
  expect(run.failures).toEqual([]);
  const isBad = ({ level, event }: { level: string; event: string }) =>
    level === 'error' || event === 'scheduler.waits';
  expect(run.log.events.filter(isBad)).toEqual([]);
});

it('deposed as it begins to listen as the leader, it does not meet its own port', async () => {
  const run = await begun({}, false);
  const [first] = run.place.terms as [Term];
  const info = run.log.info.bind(run.log);
  run.log.info = (event, fields) => {
    info(event, fields);
    if (event === 'scheduler.ready' && !first.isOver) first.depose();
  };
  const stands = run.log.next('scheduler.standby');
  first.elect();
  expect(await Promise.race([stands, run.failed])).toEqual({ address: run.running.address });
  expect(run.log.events.filter(({ event }) => event === 'scheduler.waits')).toEqual([]);
  expect(run.failures).toEqual([]);
});

it('deposed while it reads the checkpoint that its job begins with, it stands by at once', async () => {
  const server = createServer(() => {}).listen(0, '127.0.0.1');
  onTestFinished(() => void server.close());
  await once(server, 'listening');
  const reads = once(server, 'connection');
  const { port } = server.address() as AddressInfo;
  vi.stubEnv('KINTSUGI_S3_ENDPOINT', `http://127.0.0.1:${port}`);
  vi.stubEnv('AWS_ACCESS_KEY_ID', 'a');
  vi.stubEnv('AWS_SECRET_ACCESS_KEY', 'b');
  onTestFinished(() => void vi.unstubAllEnvs());
  const run = await begun({ restore: { url: 's3://hangs/x' } }, false);
  const stands = run.log.next('scheduler.standby');
  run.place.terms[0]!.elect();
  const [socket] = (await reads) as [Socket];
  onTestFinished(() => void socket.destroy());
  run.place.terms[0]!.depose();
  expect(await orFailure(run, stands)).toEqual({ address: run.running.address });
  expect(run.failures).toEqual([]);
});

it('waits, and says so, while another process has its port', async () => {
  const run = await begun();
  const { host, port } = parseAddress(run.running.address);
  const thief = createServer();
  onTestFinished(() => void thief.close());
  const [term] = run.place.terms as [Term];
  // Between two terms nobody listens at the address.
  term.close = async () => {
    if (thief.listening) return;
    thief.listen(port, host);
    await once(thief, 'listening');
  };
  const waits = run.log.next('scheduler.waits');
  term.depose();
  expect(await Promise.race([waits, run.failed])).toMatchObject({
    address: run.running.address,
    message: expect.stringContaining(`port ${port}`),
  });
  const stands = run.log.next('scheduler.standby');
  thief.close();
  expect(await Promise.race([stands, run.failed])).toEqual({ address: run.running.address });
});

it('deposed while it waits for the last checkpoint of an orderly end, it ends without it', async () => {
  const checkpoint = { url: temporaryDirectory(), everyMs: 0, keep: 3, rate: 0, kind: 'full job' as const };
  const run = await begun({ checkpoint });
  await deposedOnce(run);
  const leads = run.log.next('scheduler.ready');
  run.place.terms[1]!.elect();
  await leads;
  await redundant(await client(run.running.address), 1);
  // The checkpoint is not made: its manifest waits for a decision that is never durable.
  const [, second] = run.place.terms as [Term, Term];
  const held = new Promise<void>((resolve) => {
    second.write = () => {
      resolve();
      return new Promise(() => {});
    };
  });
  const finished = run.running.finish();
  await held;
  const stands = run.log.next('scheduler.standby');
  second.depose();
  await Promise.all([finished, orFailure(run, stands)]);
  expect(run.log.events.filter(({ event }) => event === 'checkpoint.late')).toEqual([]);
});

it('says at once why the store cannot be reached, and then seldom', async () => {
  let now = 0;
  const run = await begun({}, false);
  vi.spyOn(process.hrtime, 'bigint').mockImplementation(() => BigInt(now) * 1_000_000n);
  onTestFinished(() => void vi.restoreAllMocks());
  const { events } = run.place.terms[0]!;
  const said = () =>
    run.log.events
      .filter(({ event }) => event.startsWith('store.'))
      .map(({ event, fields }) => [event, fields.message, fields.repeated]);
  for (; now < 120_000; now += 100) events!.onReach('it is away');
  events!.onReach('it shuts this scheduler out');
  events!.onReach(undefined);
  events!.onReach('it is away');
  expect(said()).toEqual([
    ['store.unreachable', 'it is away', undefined],
    ['store.unreachable', 'it is away', 600],
    ['store.unreachable', 'it shuts this scheduler out', undefined],
    ['store.reached', undefined, undefined],
    ['store.unreachable', 'it is away', undefined],
  ]);
});
