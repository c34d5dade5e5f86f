/** What happened to the job: its newest events, followed for as long as there is a client. */
import type { Client } from '../client/client.js';
import type { JobEvent } from '../protocol/events.js';

const KEPT = 300;

export class Happened {
  /** Newest first. */
  private list: JobEvent[] = [];
  private job = '';
  private stop = new AbortController();

  /** `onEvent`: there is another one. */
  constructor(private readonly onEvent: () => void = () => {}) {}

  get shown(): readonly JobEvent[] {
    return this.list;
  }

  /** Goes on where it was, or begins anew with another job. */
  follow(client: Client, job: string): void {
    this.leave();
    if (job !== this.job) this.list = [];
    this.job = job;
    const { signal } = this.stop;
    // A client that is closed ends it; the next one goes on.
    this.read(client, signal).catch(() => {});
  }

  leave(): void {
    this.stop.abort();
    this.stop = new AbortController();
  }

  private async read(client: Client, signal: AbortSignal): Promise<void> {
    const since = this.list[0]?.number ?? 0;
    for await (const event of client.events({ since, follow: true, signal })) {
      if (signal.aborted) return;
      this.list = [event, ...this.list.slice(0, KEPT - 1)];
      this.onEvent();
    }
  }
}
