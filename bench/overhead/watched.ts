/**
 * Everything that can look at a job, at once: an open page of the dashboard, what `kintsugi top` asks, a
 * follower of events, and somebody who reads the metrics of every process. They run in this process, so that
 * nothing is started while throughput is measured. TensorBoard's files are the worker's.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { type Dashboard, startDashboard } from '../../src/fleet/dashboard/server.js';
import { type Client, connect } from '../../src/library/client/client.js';
import { Observer } from '../../src/library/observe/observer.js';
import type { Look } from '../common/training/modes.js';

const CONNECT_MS = 60_000;
/** As often as Prometheus does where it is told to be quick. */
const SCRAPE_MS = 5000;
const SETTLE_MS = 1000;

export class JobWatchers {
  private readonly abort = new AbortController();
  private readonly running: Promise<void>[] = [];
  private failure: unknown;
  private timer: NodeJS.Timeout | undefined;

  private constructor(
    private readonly client: Client,
    private readonly dashboard: Dashboard | undefined,
    private readonly observer: Observer | undefined,
  ) {}

  /** `pages`: addresses of all that have metrics. */
  static async start(
    scheduler: string,
    pages: readonly string[],
    looks: readonly Look[],
  ): Promise<JobWatchers> {
    const client = await connect(scheduler, { connectTimeoutMs: CONNECT_MS });
    const dashboard = looks.includes('page')
      ? await startDashboard({ scheduler, port: 0, connectTimeoutMs: CONNECT_MS })
      : undefined;
    const observer = looks.includes('top') ? new Observer(client) : undefined;
    const watchers = new JobWatchers(client, dashboard, observer);
    observer?.start();
    if (dashboard) watchers.run(watchers.look(dashboard));
    if (looks.includes('events')) watchers.run(watchers.follow());
    // As in the middle of things: all know the job already, and a scrape comes every few seconds.
    await sleep(SETTLE_MS);
    if (looks.includes('metrics')) watchers.scrapeOften(pages);
    return watchers;
  }

  private scrapeOften(pages: readonly string[]): void {
    const scrape = () => this.run(this.scrape(pages));
    this.timer = setTimeout(() => {
      scrape();
      this.timer = setInterval(scrape, SCRAPE_MS);
    }, SCRAPE_MS / 2);
  }

  /** Notes the error of `looking`: a round without that look would make the job seem cheap. */
  private run(looking: Promise<void>): void {
    const noted = looking.catch((error: unknown) => {
      if (!this.abort.signal.aborted) this.failure ??= error;
    });
    this.running.push(noted);
  }

  /** A page that is open. */
  private async look({ url }: Dashboard): Promise<void> {
    const { body } = await fetch(`${url}live`, { signal: this.abort.signal });
    await body!.pipeTo(new WritableStream());
  }

  private async follow(): Promise<void> {
    const events = this.client.events({ follow: true, signal: this.abort.signal });
    while (!(await events.next()).done);
  }

  private async scrape(pages: readonly string[]): Promise<void> {
    const texts = pages.map((page) => fetch(`http://${page}/metrics`).then((answer) => answer.text()));
    await Promise.all(texts);
  }

  /** @throws what made one of them stop before */
  async stop(): Promise<void> {
    clearInterval(this.timer);
    this.abort.abort();
    await this.observer?.stop();
    await this.dashboard?.close();
    await this.client.close();
    await Promise.all(this.running);
    if (this.failure !== undefined) throw this.failure;
  }
}
