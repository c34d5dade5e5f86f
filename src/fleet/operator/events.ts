/** Events of jobs, which `kubectl describe` shows. */
import { randomBytes } from 'node:crypto';
import { describe } from '../../common/errors.js';
import type { Logger } from '../../net/log.js';
import { type Api, hasStatus } from './api/api.js';
import type { KubeObject } from './objects.js';
import { timeOf } from './reconcile/time.js';
import type { TrainingJob } from './types.js';

/** Pause until a repeated event is written again, with its count. It doubles each time. */
const FIRST_PAUSE_MS = 30_000;
const MAX_PAUSE_MS = 30 * 60_000;
/** The API server forgets events after an hour by default: then the next one is a new one. */
const FORGOTTEN_MS = 60 * 60_000;
/** Different texts that a job has events for at the same time. Further ones share an event. */
const MOST_TEXTS = 16;
const LONGEST_MESSAGE = 1000;

export interface EventText {
  type: 'Normal' | 'Warning';
  reason: string;
  message: string;
}

type EventObject = KubeObject & Record<string, unknown> & { count: number };

/** An event that may be told again. */
interface Repeated {
  written: EventObject;
  count: number;
  at: number;
  /** When it may be written again. */
  nextAt: number;
  pauseMs: number;
}

export interface JobEventsOptions {
  api: Api;
  log: Logger;
  /** Milliseconds since 1970. */
  now(): number;
}

export class JobEvents {
  /** By job, and by what is the same each time. */
  private readonly repeated = new Map<string, { uid: string; texts: Map<string, Repeated> }>();

  constructor(private readonly options: JobEventsOptions) {}

  /** Writes an event. A pass goes on without one that cannot be written. */
  async tell(job: TrainingJob, text: EventText): Promise<void> {
    await this.write(job, text).catch((error: unknown) => this.failed(error));
  }

  /**
   * Tells of what may go on for long. The first time an event is written. Later ones count in it, and the
   * count is written in ever longer pauses, from 30 s to 30 min. `same`: what is told again has the same.
   */
  async tellAgain(job: TrainingJob, text: EventText, same: string): Promise<void> {
    const now = this.options.now();
    const texts = this.textsOf(job, now);
    const key = texts.has(same) || texts.size < MOST_TEXTS ? same : '';
    const before = texts.get(key);
    if (before) {
      before.count++;
      before.at = now;
      if (now < before.nextAt) return;
    }
    const pauseMs = before ? Math.min(MAX_PAUSE_MS, 2 * before.pauseMs) : FIRST_PAUSE_MS;
    try {
      const written = before
        ? await this.countAgain(job, text, before)
        : ((await this.write(job, text)) as EventObject);
      texts.set(key, { written, count: before?.count ?? 1, at: now, nextAt: now + pauseMs, pauseMs });
    } catch (error) {
      this.failed(error);
    }
  }

  /** The job is gone. */
  forget(namespace: string, name: string): void {
    this.repeated.delete(`${namespace}/${name}`);
  }

  private textsOf({ metadata }: TrainingJob, now: number): Map<string, Repeated> {
    const { namespace = '', name, uid = '' } = metadata;
    const key = `${namespace}/${name}`;
    const before = this.repeated.get(key);
    const texts = before?.uid === uid ? before.texts : new Map<string, Repeated>();
    if (before?.texts !== texts) this.repeated.set(key, { uid, texts });
    for (const [same, { at }] of texts) if (now - at > FORGOTTEN_MS) texts.delete(same);
    return texts;
  }

  private async countAgain(job: TrainingJob, text: EventText, { written, count }: Repeated) {
    const lastTimestamp = timeOf(this.options.now());
    const message = text.message.slice(0, LONGEST_MESSAGE);
    try {
      const next = { ...written, count, lastTimestamp, message };
      return await this.options.api.replace<EventObject>('Event', next);
    } catch (error) {
      // The server has forgotten it, or somebody else has changed it.
      if (!hasStatus(error, 404) && !hasStatus(error, 409)) throw error;
      return (await this.write(job, text, count)) as EventObject;
    }
  }

  private write(job: TrainingJob, { type, reason, message }: EventText, count = 1): Promise<KubeObject> {
    const { name, namespace = '', uid = '' } = job.metadata;
    const { apiVersion, kind } = job;
    const time = timeOf(this.options.now());
    return this.options.api.create('Event', {
      ...{ apiVersion: 'v1', kind: 'Event' },
      metadata: { name: `${name}.${randomBytes(6).toString('hex')}`, namespace },
      involvedObject: { apiVersion, kind, name, namespace, uid },
      ...{ type, reason, message: message.slice(0, LONGEST_MESSAGE), count },
      ...{ firstTimestamp: time, lastTimestamp: time },
      source: { component: 'kintsugi-operator' },
    });
  }

  private failed(error: unknown): void {
    this.options.log.warn('operator.event', { message: describe(error) });
  }
}
