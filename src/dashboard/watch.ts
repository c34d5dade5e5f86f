/**
 * Looks at a job for as long as the page's server runs, and makes a view of what it sees. A job that cannot
 * be reached is waited for: the page says so, and shows what was last known.
 */
import { type Client, type ConnectOptions, connect } from '../client/client.js';
import { describe, KintsugiError } from '../errors.js';
import { statusIn } from '../tools/scaling.js';
import { hostsOf, jobOf, recoveriesOf, type Seen, WholeParities } from './cells.js';
import type { ActionView, LinkView, View } from './view.js';

export interface WatchOptions extends Pick<ConnectOptions, 'token' | 'tls'> {
  scheduler: string;
  connectTimeoutMs: number;
  /** A new view. */
  onView(): void;
  /** What is wrong will stay so: a wrong token, a bad address. */
  onHopeless(error: KintsugiError): void;
}

/** Between two looks; a large job is looked at less often. */
const LOOK_MS = 400;
const LOOK_LARGE_MS = 2000;
const LARGE_NODES = 100;
/** A scheduler that answers nothing for so long counts as away. */
const ANSWER_LIMIT_MS = 3000;
const RETRY_MS = 500;
const HOPELESS: ReadonlySet<string> = new Set(['UNAUTHORIZED', 'BAD_ARGUMENT', 'ADDON_NOT_LOADED']);

export class Watch {
  private client: Client | undefined;
  private link: LinkView = { state: 'connecting', since: Date.now() };
  private seen: Seen | undefined;
  private parities = new WholeParities();
  private running = true;
  private wake: () => void = () => {};
  private readonly over: Promise<void>;

  constructor(private readonly options: WatchOptions) {
    this.over = this.run();
  }

  /** @throws UNREACHABLE */
  connected(): Client {
    if (this.client && this.link.state === 'up') return this.client;
    throw new KintsugiError('UNREACHABLE', this.link.problem ?? 'the scheduler has not answered yet');
  }

  async close(): Promise<void> {
    this.running = false;
    this.wake();
    await this.over;
    await this.client?.close();
  }

  view(actions: ActionView[]): View {
    const { seen, link } = this;
    if (!seen) return { link, actions, hosts: [] };
    const { status, map } = seen;
    const hosts = hostsOf(seen, this.parities);
    const names = new Map(map.groups.map((group) => [group.id, map.pools[group.pool]!]));
    return {
      link,
      actions,
      hosts,
      job: jobOf(seen, hosts),
      recoveries: recoveriesOf(seen),
      changes: status.scaling.changes.toReversed(),
      saving: status.saving ?? [],
      restoring: status.restoring,
      tables: status.tables,
      lost: status.unrecoverable.map(({ g, m, rows, checkpoint }) => {
        const pool = names.get(g);
        const saved = checkpoint && `${checkpoint.url}@${checkpoint.number}`;
        const where = { pool: pool?.name ?? '', group: g - (pool?.firstGroup ?? 0), index: m, rows };
        return saved === undefined ? where : { ...where, saved };
      }),
    };
  }

  private async run(): Promise<void> {
    while (this.running) {
      const large = (this.seen?.status.nodes.length ?? 0) > LARGE_NODES;
      try {
        await this.look();
        await this.pause(large ? LOOK_LARGE_MS : LOOK_MS);
      } catch (error) {
        if (!this.running) return;
        if (error instanceof KintsugiError && HOPELESS.has(error.code)) return this.options.onHopeless(error);
        this.away(error);
        await this.pause(RETRY_MS);
      }
    }
  }

  private async look(): Promise<void> {
    const { scheduler, token, tls, connectTimeoutMs } = this.options;
    if (!this.client) {
      const client = await connect(scheduler, { token, tls, connectTimeoutMs, waitForJob: false });
      this.parities = new WholeParities();
      this.client = client;
    }
    const status = await statusIn(this.client, ANSWER_LIMIT_MS);
    this.seen = { status, map: this.client.clusterMap };
    this.parities.look(this.seen);
    if (this.link.state !== 'up') this.link = { state: 'up', since: Date.now() };
    this.options.onView();
  }

  private away(error: unknown): void {
    const problem = describe(error);
    const code = error instanceof KintsugiError ? error.code : 'INTERNAL';
    // The session is over; the next look opens another one.
    if (code !== 'UNREACHABLE') {
      void this.client?.close();
      this.client = undefined;
    }
    const { state, since } = this.link;
    const before = state === 'up' ? Date.now() : since;
    this.link = { state: this.seen ? 'down' : 'connecting', problem, since: before };
    this.options.onView();
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
}
