/**
 * The scheduler's state in etcd, and which of several schedulers leads.
 *
 * The leader holds a key with a lease. Every transaction compares the revision at which that key was created,
 * so a scheduler that is not the leader any more cannot write, whatever it believes. A lease that ends
 * deletes the key; the next scheduler creates it anew and so with another revision.
 *
 * A transaction without an answer is sent again, and its first copy may be carried out at any time after
 * that. So every transaction also compares the key `sequence`, and puts a value there that no other
 * transaction puts: a copy that is late finds another value and changes nothing.
 *
 * Changes that fit into one transaction of etcd are one. Larger ones are logged first: their pieces, then
 * `commit`, at which they hold; then they are carried out. A scheduler that loads a state with `commit`
 * carries the log out (again). So a reader sees all of them or none.
 */
import { setTimeout as pause } from 'node:timers/promises';
import { KintsugiError } from '../../../common/errors.js';
import { apply, type Election, type ElectionEvents, type Entries, type StateStore } from '../index.js';
import { EtcdGateway, Unavailable } from './gateway.js';
import { type EtcdLocation, type EtcdOptions, parseEtcdUrl, withoutPassword } from './location.js';
import {
  base64,
  batches,
  EntryKeys,
  endOf,
  joined,
  type Operation,
  pieces,
  put,
  remove,
  removeRange,
} from './transactions.js';

export const DEFAULT_LEASE_MS = 3000;
const CALL_MS = 2000;
const AGAIN_MS = 100;
const PAGE = 500;
/**
 * Pauses between doubts about who leads, doubling. When the lease has ended another one leads soon; while
 * etcd is away for all, nobody does.
 */
const FIRST_DOUBT_MS = 1000;
const LAST_DOUBT_MS = 30_000;

interface KeyValue {
  key: string;
  value?: string;
  create_revision?: string;
  lease?: string;
}
interface RangeAnswer {
  header: { revision: string };
  kvs?: KeyValue[];
  more?: boolean;
}
interface TxnAnswer {
  header: { revision: string };
  succeeded?: boolean;
  /** The key `sequence`, in the answer to a transaction that did not succeed. */
  responses?: { response_range?: RangeAnswer }[];
}

/** Undefined: there is no such key. */
const textOf = (known: KeyValue | undefined): string | undefined =>
  known && Buffer.from(known.value ?? '', 'base64').toString();

/** A process knows this about its etcd, in all its terms. */
interface KnownEtcd {
  answered: boolean;
  hadEntries: boolean;
}

class EtcdStore implements StateStore, Election {
  private readonly gateway: EtcdGateway;
  private readonly keys: EntryKeys;
  private readonly prefix: string;
  private readonly leaseMs: number;
  private readonly stopped = new AbortController();
  private events: ElectionEvents | undefined;
  private lease: string | undefined;
  /** Revision at which the leader's key was created; undefined: this process does not lead. */
  private revision: string | undefined;
  /** Value of the key `sequence` since the newest transaction; undefined: the key does not exist. */
  private sequence: string | undefined;
  private transactions = 0;
  private deposed: KintsugiError | undefined;
  private problem: string | undefined;
  /** Refusals without an answer between them. */
  private refusals = 0;
  private writes: Promise<unknown> = Promise.resolve();
  private renewal: NodeJS.Timeout | undefined;
  /** When `onDoubt` is called next, unless the lease is renewed before, and the pause after that. */
  private doubtAt = 0;
  private doubtMs = 0;

  /** `known` is shared by the terms of this process. */
  constructor(
    private readonly url: string,
    private readonly options: EtcdOptions,
    private readonly location: EtcdLocation,
    private readonly known: KnownEtcd,
  ) {
    this.prefix = location.prefix;
    this.keys = new EntryKeys(`${location.prefix}entry/`);
    this.leaseMs = options.leaseMs ?? DEFAULT_LEASE_MS;
    this.gateway = new EtcdGateway(location);
  }

  get election(): Election {
    return this;
  }

  again(): StateStore {
    return new EtcdStore(this.url, this.options, this.locationNow(), this.known);
  }

  /** With certificates that were renewed meanwhile, unless their files cannot be read now. */
  private locationNow(): EtcdLocation {
    try {
      return parseEtcdUrl(this.url, this.options);
    } catch {
      return this.location;
    }
  }

  get hadEntries(): boolean {
    return this.known.hadEntries;
  }

  private get leaderKey(): string {
    return `${this.prefix}leader`;
  }

  private get sequenceKey(): string {
    return `${this.prefix}sequence`;
  }

  // ---- leadership

  async lead(address: string, events: ElectionEvents): Promise<void> {
    this.events = events;
    for (;;) {
      const [known] = (await this.range(this.leaderKey)).kvs ?? [];
      if (known && known.lease === this.lease && this.lease !== undefined) {
        this.revision = known.create_revision!;
        this.sequence = textOf((await this.range(this.sequenceKey)).kvs?.[0]);
        break;
      }
      events.onLeader(textOf(known));
      if (known) await this.lookForEntries();
      if (!known) await this.stand(address);
      else await this.pause(Math.min(AGAIN_MS * 2, this.leaseMs / 10));
    }
    this.renewed();
    this.renewal = setTimeout(() => void this.renew(), this.leaseMs / 3);
  }

  /** A scheduler that stands by learns here whether the job has begun. */
  private async lookForEntries(): Promise<void> {
    if (this.known.hadEntries) return;
    this.known.hadEntries = await this.hasInside('entry/');
  }

  /** Takes the leader's key if nobody has it. A later read tells whether that worked. */
  private async stand(address: string): Promise<void> {
    const seconds = Math.max(1, Math.ceil(this.leaseMs / 1000));
    this.lease = (await this.patiently<{ ID: string }>('/v3/lease/grant', { TTL: seconds }))!.ID;
    const key = base64(this.leaderKey);
    const taking = { key, value: base64(address), lease: this.lease };
    await this.patiently('/v3/kv/txn', {
      compare: [{ key, target: 'CREATE', result: 'EQUAL', create_revision: '0' }],
      success: [{ requestPut: taking }],
    });
  }

  private async renew(): Promise<void> {
    let waitMs = this.leaseMs / 3;
    try {
      type Answer = { result?: { TTL?: string } };
      const limitMs = Math.max(AGAIN_MS, Math.round(this.leaseMs / 3));
      const answer = await this.gateway.call<Answer>('/v3/lease/keepalive', { ID: this.lease }, limitMs);
      this.reached(undefined);
      if (Number(answer?.result?.TTL ?? 0) <= 0) this.depose('its lease has ended');
      this.renewed();
    } catch (error) {
      if (!(error instanceof Unavailable)) this.depose((error as Error).message);
      this.reached((error as Error).message);
      waitMs = AGAIN_MS;
      this.doubt();
    }
    if (this.stopped.signal.aborted || this.deposed) return;
    this.renewal = setTimeout(() => void this.renew(), waitMs);
  }

  private renewed(): void {
    this.doubtAt = performance.now() + this.leaseMs;
    this.doubtMs = FIRST_DOUBT_MS;
  }

  private doubt(): void {
    const now = performance.now();
    if (now < this.doubtAt) return;
    this.doubtAt = now + this.doubtMs;
    this.doubtMs = Math.min(LAST_DOUBT_MS, 2 * this.doubtMs);
    this.events?.onDoubt();
  }

  /** Ends the lead of this process: no decision of it holds any more. */
  private depose(reason: string): KintsugiError {
    const text = `this scheduler does not lead the job any more: ${reason}`;
    this.deposed ??= new KintsugiError('DEPOSED', text);
    clearTimeout(this.renewal);
    this.stopped.abort(this.deposed);
    this.events?.onDeposed(this.deposed);
    return this.deposed;
  }

  // ---- state

  async load(): Promise<Entries> {
    const read = await this.readAll(`${this.prefix}entry/`);
    const changes = await this.logged();
    const entries = this.keys.entries(read, changes);
    if (changes.size > 0) await this.carryOut(changes);
    apply(entries, changes);
    this.known.hadEntries ||= entries.size > 0;
    return entries;
  }

  /** Changes that the last leader had logged and could not finish. */
  private async logged(): Promise<Entries> {
    const commit = (await this.readAll(`${this.prefix}commit`)).get(`${this.prefix}commit`);
    if (commit === undefined) return new Map();
    const log = await this.readAll(`${this.prefix}log/`);
    const whole = joined(log, `${this.prefix}log/`, Number(commit.toString()));
    return new Map((JSON.parse(whole) as [string, unknown?][]).map(([key, value]) => [key, value] as const));
  }

  write(changes: Entries): Promise<void> {
    const done = this.writes
      .then(() => this.writeNext(changes))
      .then(() => {
        this.known.hadEntries = true;
      });
    this.writes = done.catch(() => {});
    return done;
  }

  private async writeNext(changes: Entries): Promise<void> {
    const split = batches(this.keys.operations(changes));
    if (split.length <= 1) return this.transact(split[0] ?? []);
    const logged = [...changes].map(([key, value]) => (value === undefined ? [key] : [key, value]));
    const parts = pieces(JSON.stringify(logged));
    for (const [i, part] of parts.entries()) await this.transact([put(`${this.prefix}log/${i}`, part)]);
    await this.transact([put(`${this.prefix}commit`, `${parts.length}`)]);
    await this.carryOut(changes, split);
  }

  /** A logged transaction. Doing it twice is doing it once. */
  private async carryOut(changes: Entries, split = batches(this.keys.operations(changes))): Promise<void> {
    for (const batch of split) await this.transact(batch);
    const log = `${this.prefix}log/`;
    await this.transact([remove(`${this.prefix}commit`), removeRange(log, endOf(log))]);
  }

  clearInside(name: string): Promise<void> {
    const first = `${this.prefix}${name}`;
    return this.writes.then(() => this.transact([removeRange(first, endOf(first))]));
  }

  async hasInside(name: string): Promise<boolean> {
    const from = `${this.prefix}${name}`;
    const body = { key: base64(from), range_end: base64(endOf(from)), limit: '1', keys_only: true };
    const { kvs = [] } = (await this.patiently<RangeAnswer>('/v3/kv/range', body))!;
    return kvs.length > 0;
  }

  clear(): Promise<void> {
    const parts = ['entry/', 'log/'].map((part) => `${this.prefix}${part}`);
    const all = [remove(`${this.prefix}commit`), ...parts.map((part) => removeRange(part, endOf(part)))];
    return this.writes.then(() => this.transact(all, 'last'));
  }

  /**
   * One transaction of etcd, which takes it once, and only while this process leads. The last one of all
   * leaves no key `sequence`.
   * @throws DEPOSED, STORE_FAILED
   */
  private async transact(operations: readonly Operation[], place?: 'last'): Promise<void> {
    const [leader, sequence] = [base64(this.leaderKey), base64(this.sequenceKey)];
    const before =
      this.sequence === undefined
        ? { key: sequence, target: 'VERSION', result: 'EQUAL', version: '0' }
        : { key: sequence, target: 'VALUE', result: 'EQUAL', value: base64(this.sequence) };
    // Nobody else has led at this revision.
    const own = place === 'last' ? undefined : `${this.revision}/${++this.transactions}`;
    const noted = own === undefined ? remove(this.sequenceKey) : put(this.sequenceKey, own);
    const body = {
      compare: [{ key: leader, target: 'CREATE', result: 'EQUAL', create_revision: this.revision }, before],
      success: [...operations, noted].map(({ request }) => request),
      failure: [{ requestRange: { key: sequence } }],
    };
    const answer = await this.patiently<TxnAnswer>('/v3/kv/txn', body);
    // This transaction's own value is there: an earlier copy of it was carried out.
    const isDone = answer!.succeeded || textOf(answer!.responses?.[0]?.response_range?.kvs?.[0]) === own;
    if (!isDone) throw this.depose('another one may have taken over');
    this.sequence = own;
  }

  private async readAll(prefix: string): Promise<Map<string, Buffer>> {
    const all = new Map<string, Buffer>();
    let from = prefix;
    for (;;) {
      const { kvs = [], more } = await this.range(from, endOf(prefix));
      for (const { key, value = '' } of kvs)
        all.set(Buffer.from(key, 'base64').toString(), Buffer.from(value, 'base64'));
      if (!more || kvs.length === 0) return all;
      from = `${Buffer.from(kvs.at(-1)!.key, 'base64').toString()}\0`;
    }
  }

  private async range(key: string, end?: string): Promise<RangeAnswer> {
    const body = { key: base64(key), ...(end !== undefined && { range_end: base64(end), limit: PAGE }) };
    return (await this.patiently<RangeAnswer>('/v3/kv/range', body))!;
  }

  // ---- patience

  /** Asks until etcd answers. @throws DEPOSED, STORE_FAILED, CLOSED */
  private async patiently<T>(path: string, body: object): Promise<T | undefined> {
    for (;;) {
      this.check();
      try {
        const answer = await this.gateway.call<T>(path, body, CALL_MS);
        this.check();
        this.reached(undefined);
        return answer;
      } catch (error) {
        if (!(error instanceof Unavailable)) throw error;
        this.check();
        this.checkRefused(error);
        this.reached(error.message);
        await this.pause(AGAIN_MS);
      }
    }
  }

  /**
   * A scheduler does not start if every endpoint refuses it: its certificate, its user or what it asks, or if
   * it accepts the certificate of none. A process that had an answer before goes on trying, as in an outage:
   * what refuses it may be mended. @throws STORE_FAILED
   */
  private checkRefused({ refused, message }: Unavailable): void {
    this.refusals = refused ? this.refusals + 1 : 0;
    if (!this.known.answered && this.refusals >= this.gateway.endpoints)
      throw new KintsugiError('STORE_FAILED', message);
  }

  /** Ends early when the store is closed. */
  private async pause(ms: number): Promise<void> {
    await pause(ms, undefined, { signal: this.stopped.signal }).catch(() => {});
  }

  private check(): void {
    if (this.deposed) throw this.deposed;
    if (this.stopped.signal.aborted) throw new KintsugiError('CLOSED', 'the store is closed');
  }

  /** `problem`: why etcd does not answer; undefined: it does. */
  private reached(problem: string | undefined): void {
    this.known.answered ||= problem === undefined;
    if (problem === undefined && this.problem === undefined) return;
    this.problem = problem;
    this.events?.onReach(problem);
  }

  async close(): Promise<void> {
    if (this.stopped.signal.aborted && !this.deposed) return;
    this.stopped.abort();
    clearTimeout(this.renewal);
    this.revision = undefined;
    // Gives up the lease, so that another scheduler leads at once, and not only when the lease ends.
    const { lease } = this;
    if (lease !== undefined && !this.deposed)
      await this.gateway.call('/v3/lease/revoke', { ID: lease }, AGAIN_MS * 5).catch(() => {});
    this.gateway.close();
  }

  toString(): string {
    return withoutPassword(this.url);
  }
}

/** @throws BAD_ARGUMENT for a URL or certificates that cannot be used */
export function openEtcdStore(url: string, options: EtcdOptions = {}): StateStore {
  return new EtcdStore(url, options, parseEtcdUrl(url, options), { answered: false, hadEntries: false });
}
