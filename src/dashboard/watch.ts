/**
 * Looks at a job for as long as the page's server runs, and makes a view of what it sees. A job that cannot
 * be reached is waited for: the page says so, and shows what was last known.
 */
import { type Client, type ConnectOptions, connect } from '../client/client.js';
import { Dataset } from '../client/dataset.js';
import type { JobSnapshot } from '../client/observe.js';
import { describe, KintsugiError } from '../errors.js';
import { Observer } from '../observe/observer.js';
import type { ClusterMap } from '../protocol/map.js';
import type { JobStatus } from '../protocol/messages.js';
import { statusIn } from '../tools/scaling.js';
import { Filling, hostsOf, jobOf, recoveriesOf, type Seen, WholeParities } from './cells.js';
import { Happened } from './happened.js';
import { hotShards, loadOf, nodeLoads, type RunView, runView, tablesOf } from './load.js';
import { type OutlookView, outlookOf } from './outlook.js';
import { Series } from './series.js';
import { type ActionView, type LinkView, MAX_REASONS, MAX_REPLICAS, type View } from './view.js';

/** Where a page's server has its view from. */
export interface Source {
  readonly series: Pick<Series, 'count' | 'since'>;
  view(actions: ActionView[]): View;
  /** @throws UNREACHABLE */
  connected(): Client;
  close(): Promise<void>;
}

export interface WatchOptions extends Pick<ConnectOptions, 'token' | 'tls'> {
  scheduler: string;
  connectTimeoutMs: number;
  /** A new view. */
  onView(): void;
  /** What is wrong will stay so: a wrong token, a bad address. */
  onHopeless(error: KintsugiError): void;
}

/**
 * Between two looks at the status while something is under way or was just told of, and otherwise. A large
 * job is always looked at less often.
 */
const LOOK_MS = 400;
const CALM_MS = 2000;
const LARGE_NODES = 100;
/** Between two looks at the counters, and how many are kept for rates. */
const COUNT_MS = 1000;
const KEPT_COUNTS = 16;
/** What changes slowly is asked for, or computed, at every so manieth look at the counters. */
const SLOW_EVERY = 5;
/** A scheduler that answers nothing for so long counts as away. */
const ANSWER_LIMIT_MS = 3000;
const RETRY_MS = 500;
const HOPELESS: ReadonlySet<string> = new Set(['UNAUTHORIZED', 'BAD_ARGUMENT', 'ADDON_NOT_LOADED']);

export class Watch implements Source {
  readonly series = new Series();
  private client: Client | undefined;
  private observer: Observer | undefined;
  private link: LinkView = { state: 'connecting', since: Date.now() };
  private seen: Seen | undefined;
  private parities = new WholeParities();
  private readonly filling = new Filling();
  private readonly happened = new Happened(() => this.stir());
  /** The client whose counters and events are followed. */
  private followed: Client | undefined;
  private runs: RunView[] = [];
  private outlook: OutlookView | undefined;
  private counts = 0;
  /** What the newest counters say: there are several views for each look at them. */
  private counted: Counted = {};
  private running = true;
  private wake: () => void = () => {};
  /** Something happened since the newest look. */
  private stirred = false;
  /** The next look comes at once when something happens. */
  private isCalm = false;
  private readonly over: Promise<void>;

  constructor(private readonly options: WatchOptions) {
    this.over = this.run();
  }

  connected(): Client {
    if (this.client && this.link.state === 'up') return this.client;
    throw new KintsugiError('UNREACHABLE', this.link.problem ?? 'the scheduler has not answered yet');
  }

  async close(): Promise<void> {
    this.running = false;
    this.wake();
    await this.over;
    await this.leave();
  }

  view(actions: ActionView[]): View {
    const { seen, link } = this;
    if (!seen) return { link, actions, hosts: [] };
    const { status } = seen;
    const hosts = hostsOf(seen, this.parities, this.filling);
    return {
      ...{ link, actions, hosts, runs: this.runs, outlook: this.outlook },
      job: jobOf(seen, hosts),
      recoveries: recoveriesOf(seen),
      events: this.happened.shown,
      changes: status.scaling.changes.toReversed(),
      saving: status.saving ?? [],
      restoring: status.restoring,
      lost: lostOf(seen),
      replicas: (status.replicas ?? []).slice(0, MAX_REPLICAS),
      ...this.counted,
    };
  }

  // ---- the status, and whether there is one

  private async run(): Promise<void> {
    while (this.running) {
      try {
        await this.look();
        await this.rest();
      } catch (error) {
        if (!this.running) return;
        if (error instanceof KintsugiError && HOPELESS.has(error.code)) return this.options.onHopeless(error);
        await this.away(error);
        await this.pause(RETRY_MS);
      }
    }
  }

  private async look(): Promise<void> {
    const client = this.client ?? (await this.join());
    const status = await statusIn(client, ANSWER_LIMIT_MS);
    this.seen = { status, map: client.clusterMap };
    this.parities.look(this.seen);
    if (this.followed !== client) this.follow(client, status);
    if (this.link.state !== 'up') this.link = { state: 'up', since: Date.now() };
    this.options.onView();
  }

  private async join(): Promise<Client> {
    const { scheduler, token, tls, connectTimeoutMs } = this.options;
    const client = await connect(scheduler, { token, tls, connectTimeoutMs, waitForJob: false });
    this.client = client;
    this.parities = new WholeParities();
    return client;
  }

  /** Counters and events, of a client that has answered once. What is new is drawn with the next look. */
  private follow(client: Client, { job, nodes }: JobStatus): void {
    this.followed = client;
    this.happened.follow(client, job);
    const intervalMs = nodes.length > LARGE_NODES ? CALM_MS : COUNT_MS;
    const observer = new Observer(client, { intervalMs, keep: KEPT_COUNTS, shards: true });
    observer.on((snapshot) => this.count(client, observer, snapshot));
    observer.start();
    this.observer = observer;
    this.counted = countedOf(observer.history, client.clusterMap);
  }

  private async away(error: unknown): Promise<void> {
    const problem = describe(error);
    const code = error instanceof KintsugiError ? error.code : 'INTERNAL';
    const { state, since } = this.link;
    this.link = {
      state: this.seen ? 'down' : 'connecting',
      problem,
      since: state === 'up' ? Date.now() : since,
    };
    this.options.onView();
    // The session is over; the next look opens another one.
    if (code !== 'UNREACHABLE') await this.leave();
  }

  private async leave(): Promise<void> {
    const { client, observer } = this;
    this.client = undefined;
    this.series.pause();
    this.happened.leave();
    await client?.close();
    await observer?.stop();
  }

  /** Until the next look. */
  private async rest(): Promise<void> {
    const { status } = this.seen!;
    const isLarge = status.nodes.length > LARGE_NODES;
    await this.pause(LOOK_MS);
    this.isCalm = !isLarge && !this.stirred && isQuiet(status);
    if (this.isCalm || isLarge) await this.pause(CALM_MS - LOOK_MS);
    this.isCalm = false;
    this.stirred = false;
  }

  private stir(): void {
    this.stirred = true;
    if (this.isCalm) this.wake();
  }

  private pause(ms: number): Promise<void> {
    return new Promise((resolve) => {
      if (!this.running) return resolve();
      const timer = setTimeout(resolve, ms);
      this.wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  // ---- the counters

  private count(client: Client, observer: Observer, snapshot: JobSnapshot): void {
    if (client !== this.client) return;
    this.series.look(snapshot, Date.now());
    this.filling.look(snapshot);
    this.counted = countedOf(observer.history, client.clusterMap);
    const isNew = snapshot.scheduler.runs.length !== this.runs.length;
    if (this.counts++ % SLOW_EVERY === 0 || isNew) {
      const [first] = observer.history;
      this.outlook = outlookOf(first!, snapshot, client.clusterMap);
      // What is asked while the scheduler is away is answered later, or when this client closes.
      this.askRuns(client, snapshot).catch(() => {});
    }
    this.options.onView();
  }

  private async askRuns(client: Client, { scheduler }: JobSnapshot): Promise<void> {
    const statuses = await Promise.all(scheduler.runs.map(({ run }) => Dataset.status(client, run)));
    this.runs = statuses.flatMap((status) => (status ? runView(status) : []));
  }
}

/** Nothing is under way that would change from one moment to the next. */
function isQuiet({ redundancy, scaling, saving, restoring }: JobStatus): boolean {
  const isMoving = scaling.changes.some(({ state }) => state === 'running');
  const isSaving = saving?.some(({ underWay }) => underWay) ?? false;
  return redundancy === 'full' && !isMoving && !isSaving && !restoring;
}

type Counted = Pick<View, 'load' | 'nodeLoads' | 'hot' | 'tables'>;

function countedOf(history: readonly JobSnapshot[], map: ClusterMap): Counted {
  return {
    load: loadOf(history),
    nodeLoads: nodeLoads(history),
    hot: hotShards(history, map),
    tables: tablesOf(history),
  };
}

function lostOf({ status, map }: Seen): NonNullable<View['lost']> {
  return status.unrecoverable.slice(0, MAX_REASONS).map(({ g, m, rows, checkpoint }) => {
    const pool = map.pools[map.groups[g]?.pool ?? -1];
    const where = { pool: pool?.name ?? '', group: g - (pool?.firstGroup ?? 0), index: m, rows };
    return checkpoint ? { ...where, saved: `${checkpoint.url}@${checkpoint.number}` } : where;
  });
}
