/**
 * Looks at a job for as long as the page's server runs, and makes a view of what it sees. A job that cannot
 * be reached is waited for: the page says so, and shows what was last known.
 */

import { codeOf, describe, KintsugiError } from '../../common/errors.js';
import { type Client, type ConnectOptions, connect } from '../../library/client/client.js';
import { Dataset } from '../../library/client/dataset.js';
import type { JobSnapshot } from '../../library/client/observe.js';
import { Observer } from '../../library/observe/observer.js';
import { statusIn } from '../../library/tools/scaling.js';
import type { FrozenMap } from '../../protocol/map.js';
import type { JobStatus, PlanStatus } from '../../protocol/messages.js';
import { unfitProblem } from '../../protocol/saving.js';
import { Filling, hostsOf, jobOf, recoveriesOf, type SeenJob, WholeParities } from './cells.js';
import { Happened } from './happened.js';
import { hotShards, loadOf, nodeLoads, type RunView, runView } from './load.js';
import { type OutlookView, outlookOf } from './outlook.js';
import { Recovered } from './recovered.js';
import { Series } from './series.js';
import { Tables, tablesOf } from './tables.js';
import { type ActionView, type LinkView, MAX_REASONS, MAX_REPLICAS, type View } from './view.js';

/** Source of the views of a page's server. */
export interface SnapshotSource {
  readonly series: Pick<Series, 'count' | 'since'>;
  readonly tables: Pick<Tables, 'asked'>;
  view(actions: ActionView[]): View;
  /** @throws UNREACHABLE */
  connected(): Client;
  close(): Promise<void>;
}

export interface WatchOptions extends Pick<ConnectOptions, 'token' | 'tls'> {
  scheduler: string;
  connectTimeoutMs: number;
  /** Called when there is a new view. */
  onView(): void;
  /** Called for an error that no retry mends: a wrong token, a bad address. */
  onHopeless(error: KintsugiError): void;
}

/**
 * Milliseconds between two looks at the status: LOOK_MS while something is under way or has just happened,
 * else CALM_MS. A job with more than LARGE_NODES is always looked at every CALM_MS.
 */
const LOOK_MS = 400;
const CALM_MS = 2000;
const LARGE_NODES = 100;
/** Milliseconds between two looks at the counters, and the number of looks that are kept for rates. */
const COUNT_MS = 1000;
const KEPT_COUNTS = 16;
/** Runs and outlook change slowly: they are renewed at one look at the counters in so many. */
const SLOW_EVERY = 5;
/** A scheduler that answers nothing for so long counts as away. */
const ANSWER_LIMIT_MS = 3000;
const RETRY_MS = 500;
const HOPELESS: ReadonlySet<string> = new Set(['UNAUTHORIZED', 'BAD_ARGUMENT', 'ADDON_NOT_LOADED']);

export class PageWatch implements SnapshotSource {
  readonly series = new Series();
  readonly tables = new Tables();
  private client: Client | undefined;
  private observer: Observer | undefined;
  private link: LinkView = { state: 'connecting', since: Date.now() };
  private seen: SeenJob | undefined;
  private parities = new WholeParities();
  private readonly filling = new Filling();
  private readonly recovered = new Recovered();
  private readonly happened = new Happened(() => this.stir());
  /** The client whose counters and events are followed. */
  private followed: Client | undefined;
  private runs: RunView[] | undefined;
  private outlook: OutlookView | 'none' | undefined;
  private counts = 0;
  /** Load by the newest counters, kept because several views are made for each look at them. */
  private counted: Counted = {};
  private running = true;
  private wake: () => void = () => {};
  /** True: an event came since the newest look. */
  private stirred = false;
  /** True: the present pause ends as soon as an event comes. */
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
      ...this.told(),
      changes: status.scaling.changes.toReversed(),
      saving: (status.saving ?? []).map((plan) => this.withLast(plan)),
      restoring: status.restoring,
      lost: lostOf(seen),
      replicas: (status.replicas ?? []).slice(0, MAX_REPLICAS).map((replica) => {
        const unfit = unfitProblem(replica, status.tables);
        return { ...replica, ...(unfit !== undefined && { unfit }) };
      }),
      tables: this.tables.view,
      ...this.counted,
    };
  }

  /** Events and what follows from them; empty before the kept events have been read. */
  private told(): Pick<View, 'events' | 'lastRecovery'> {
    const { isKnown, shown, lastRecovery } = this.happened;
    if (!isKnown) return {};
    return { events: shown, lastRecovery: lastRecovery ? this.recovered.last(lastRecovery) : 'none' };
  }

  private withLast(plan: PlanStatus): PlanStatus {
    const last = plan.last ?? this.happened.lastOf(plan.name);
    return last ? { ...plan, last } : plan;
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
    this.recovered.look(this.seen);
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

  /** Follows counters and events of a client that has answered once. They are drawn with the next look. */
  private follow(client: Client, { job, nodes }: JobStatus): void {
    this.followed = client;
    this.happened.follow(client, job);
    const intervalMs = nodes.length > LARGE_NODES ? CALM_MS : COUNT_MS;
    const observer = new Observer(client, { intervalMs, keep: KEPT_COUNTS, shards: true });
    observer.on((snapshot) => this.count(client, observer, snapshot));
    observer.start();
    this.observer = observer;
    this.reckon(observer, client.clusterMap);
  }

  /** Makes the load by what the observer has seen. */
  private reckon({ history }: Observer, map: FrozenMap): void {
    this.counted = countedOf(history, map);
    this.tables.look(tablesOf(history));
  }

  private async away(error: unknown): Promise<void> {
    const problem = describe(error);
    const code = codeOf(error, 'INTERNAL');
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

  /** Waits until the next look. */
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
    this.reckon(observer, client.clusterMap);
    const isNew = snapshot.scheduler.runs.length !== this.runs?.length;
    if (this.counts++ % SLOW_EVERY === 0 || isNew) {
      const [first] = observer.history;
      this.outlook = outlookOf(first!, snapshot, client.clusterMap) ?? 'none';
      // While the scheduler is away the answer comes later, or the client closes and the question is dropped.
      this.askRuns(client, snapshot).catch(() => {});
    }
    this.options.onView();
  }

  private async askRuns(client: Client, { scheduler }: JobSnapshot): Promise<void> {
    const statuses = await Promise.all(scheduler.runs.map(({ run }) => Dataset.status(client, run)));
    this.runs = statuses.flatMap((status) => (status ? runView(status) : []));
  }
}

/** Whether nothing is under way that would change from one moment to the next. */
function isQuiet({ redundancy, scaling, saving, restoring }: JobStatus): boolean {
  const isMoving = scaling.changes.some(({ state }) => state === 'running');
  const isSaving = saving?.some(({ underWay }) => underWay) ?? false;
  return redundancy === 'full' && !isMoving && !isSaving && !restoring;
}

type Counted = Pick<View, 'load' | 'nodeLoads' | 'hot'>;

function countedOf(history: readonly JobSnapshot[], map: FrozenMap): Counted {
  return {
    load: loadOf(history),
    nodeLoads: nodeLoads(history),
    hot: hotShards(history, map),
  };
}

function lostOf({ status, map }: SeenJob): NonNullable<View['lost']> {
  return status.unrecoverable.slice(0, MAX_REASONS).map(({ g, m, rows, checkpoint }) => {
    const pool = map.pools[map.groups[g]?.pool ?? -1];
    const where = { pool: pool?.name ?? '', group: g - (pool?.firstGroup ?? 0), index: m, rows };
    return checkpoint ? { ...where, saved: `${checkpoint.url}@${checkpoint.number}` } : where;
  });
}
