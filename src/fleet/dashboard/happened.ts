/** The newest events of the job, followed for as long as there is a client. */
import type { Client } from '../../library/client/client.js';
import type { JobEvent } from '../../protocol/events.js';
import type { PlanStatus } from '../../protocol/messages.js';

const KEPT = 300;

export class Happened {
  /** Newest first. */
  private list: JobEvent[] = [];
  private job = '';
  private completed: JobEvent | undefined;
  /** The newest end of a checkpoint, by its plan. */
  private readonly saved = new Map<string, JobEvent>();
  private known = false;
  private stop = new AbortController();

  /** `onEvent` is called after each new event. */
  constructor(private readonly onEvent: () => void = () => {}) {}

  get shown(): readonly JobEvent[] {
    return this.list;
  }

  /** True: those of before have been read. */
  get isKnown(): boolean {
    return this.known;
  }

  /** The newest end of a recovery, also when newer events have pushed it out of the list. */
  get lastRecovery(): JobEvent | undefined {
    return this.completed;
  }

  /** The newest checkpoint of a plan; a scheduler that took the job over does not name it in the status. */
  lastOf(plan: string): PlanStatus['last'] {
    const event = this.saved.get(plan);
    if (!event) return undefined;
    const [number, rows, bytes, tookMs] = ['number', 'rows', 'bytes', 'tookMs'].map((name) =>
      Number(event.fields[name]),
    ) as [number, number, number, number];
    return { number, rows, bytes, tookMs, agoMs: Math.max(0, Date.now() - event.at) };
  }

  /** Follows the events of a job: on from the newest known one, or anew for another job. */
  follow(client: Client, job: string): void {
    this.leave();
    if (job !== this.job) {
      this.list = [];
      this.completed = undefined;
      this.saved.clear();
      this.known = false;
    }
    this.job = job;
    const { signal } = this.stop;
    // A client that is closed ends this; `follow` goes on with the next one.
    this.read(client, signal).catch(() => {});
  }

  leave(): void {
    this.stop.abort();
    this.stop = new AbortController();
  }

  private async read(client: Client, signal: AbortSignal): Promise<void> {
    for await (const event of client.events({ since: this.newest, signal })) {
      if (signal.aborted) return;
      this.add(event);
    }
    if (signal.aborted) return;
    this.known = true;
    this.onEvent();
    for await (const event of client.events({ since: this.newest, follow: true, signal })) {
      if (signal.aborted) return;
      this.add(event);
    }
  }

  /** Number of the newest known one. */
  private get newest(): number {
    return this.list[0]?.number ?? 0;
  }

  private add(event: JobEvent): void {
    this.list = [event, ...this.list.slice(0, KEPT - 1)];
    if (event.kind === 'recovery.complete') this.completed = event;
    if (event.kind === 'checkpoint.done') this.saved.set(String(event.fields.plan), event);
    this.onEvent();
  }
}
