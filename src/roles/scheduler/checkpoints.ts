/**
 * Checkpoints, as the process of a scheduler makes them: it writes manifests, looks up what a place has
 * before a plan for it is taken, and has a last checkpoint made before an orderly end.
 */
import { KintsugiError } from '../../common/errors.js';
import { within } from '../../common/waiting.js';
import type { PublishAnswer, SchedulerEffect, SchedulerInput } from '../../core/scheduler/ledger.js';
import type { Logger } from '../../net/log.js';
import { type PeerId, SCHEDULER } from '../../protocol/map.js';
import type { Message, MessageOf } from '../../protocol/messages.js';
import { CHECKPOINT_PLAN, isSamePlace, type SavePlan } from '../../protocol/saving.js';
import { maySend, type Role } from '../../protocol/senders.js';
import type { PlanStatus } from '../../protocol/status.js';
import { checkWritable, realPlace } from '../../stores/checkpoint/open.js';
import { failureOf } from '../places.js';
import { Publisher } from './publisher.js';
import { readRestorable } from './restored.js';

/** A place that does not answer for so long at the start is used without a look at its checkpoints. */
const LOOK_UP_MS = 5000;
/** The last checkpoint of an orderly end is waited for so long. */
const LAST_CHECKPOINT_MS = 20_000;
/** An idle job looks so often whether its newest export is still there. */
const LOOK_AGAIN_MS = 60_000;
/** So many questions are remembered: as many answers as the core keeps. */
const KEPT_QUESTIONS = 64;

export interface CheckpointsHost {
  readonly log: Logger;
  step(input: SchedulerInput): void;
  /** To a client that is connected. */
  send(to: PeerId, message: Message): void;
  /** Undefined: the job has never had a save plan. */
  plans(): PlanStatus[] | undefined;
}

export class Checkpoints {
  private readonly publisher: Publisher;
  /** Answers that this process waits for, as if it was a client. */
  private readonly waiting = new Map<number, (answer?: CheckpointAnswer) => void>();
  private nextId = 1;
  /** Questions of clients whose places are being looked up: client and question. */
  private readonly lookedUp = new Set<string>();
  /** When it was last looked whether the newest export of a plan is there, by the name of the plan. */
  private readonly lookedAt = new Map<string, number>();
  /** The newest questions for which a place was looked at: client and question. */
  private readonly lookedFor = new Set<string>();
  /** The newest number of an attempt, by the name of the plan. */
  private readonly newestBegun = new Map<string, number>();

  constructor(private readonly host: CheckpointsHost) {
    this.publisher = new Publisher(host.log, (answer: PublishAnswer) => host.step(answer));
  }

  publish(effect: SchedulerEffect & { kind: 'publish' }): void {
    this.publisher.publish(effect, this.emptyProblem(effect));
  }

  /** An export of no table would hide from its readers that all that it names are gone. */
  private emptyProblem({ url, draft }: SchedulerEffect & { kind: 'publish' }): KintsugiError | undefined {
    if (draft.kind !== 'export' || draft.tables.length > 0) return undefined;
    const names = this.host.plans()?.find((plan) => plan.url === url)?.tables;
    if (!names) return undefined;
    const text = `the job has none of the tables of these exports: ${names.join(', ')}`;
    return new KintsugiError('UNKNOWN_TABLE', text);
  }

  /** True: the message waits until it is known what its place has. */
  intercept(from: PeerId, role: Role, message: Message): boolean {
    const work = this.lookUpFor(from, role, message);
    if (!work) return false;
    const question = `${from}/${(message as { id: number }).id}`;
    if (this.lookedUp.has(question)) return true;
    this.lookedUp.add(question);
    void work().finally(() => this.lookedUp.delete(question));
    return true;
  }

  /** Undefined: it needs no look at a place. */
  private lookUpFor(from: PeerId, role: Role, message: Message): (() => Promise<void>) | undefined {
    // The core refuses what its sender has no right to send.
    if (!maySend(role, 'scheduler', message.t)) return undefined;
    if (message.t === 'restoreLost') return () => this.findLost(from, message);
    if (message.t === 'saveNow') return this.lookBefore(from, role, message);
    if (message.t !== 'setPlan' || !message.plan || message.next !== undefined) return undefined;
    const { plan } = message;
    return () => this.lookUp(from, role, { ...message, plan });
  }

  /** The checkpoint that somebody wants lost shards from. */
  private async findLost(from: PeerId, { id, url, number }: MessageOf<'restoreLost'>): Promise<void> {
    try {
      const checkpoint = await readRestorable({ url, number });
      const agoMs = Math.max(0, Date.now() - Date.parse(checkpoint.createdAt));
      this.host.step({ kind: 'restoreLost', from, id, url, agoMs, checkpoint });
    } catch (error) {
      const nothing = { number: number ?? 0, agoMs: 0, shards: [] };
      this.host.send(from, { t: 'restoreReply', id, ...nothing, ...failureOf(error) });
    }
  }

  private async lookUp(
    from: PeerId,
    role: Role,
    { plan, ...message }: MessageOf<'setPlan'> & { plan: SavePlan },
  ): Promise<void> {
    // A place that only is spelled in another way is that which the plan has.
    const known = this.host.plans()?.find(({ name }) => name === message.name);
    const url = known && isSamePlace(known.url, plan.url) ? known.url : plan.url;
    try {
      // A plan that is only changed keeps its place, also while that is away.
      const isNew = !this.host.plans()?.some((plan) => isSamePlace(plan.url, url));
      if (isNew) await this.checkAlone(message.name, url);
      if (isNew) await checkWritable(url, LOOK_UP_MS);
      const next = await this.publisher.next(url);
      this.host.step({ kind: 'message', from, role, message: { ...message, plan: { ...plan, url }, next } });
    } catch (error) {
      const { code, message: text } = failureOf(error);
      this.host.send(from, { t: 'planSet', id: message.id, code, message: text });
    }
  }

  /** Two plans with one place would remove each other's files, also where a link leads there. */
  private async checkAlone(name: string, url: string): Promise<void> {
    const realOf = (place: string) => within(LOOK_UP_MS, realPlace(place));
    const real = await realOf(url);
    for (const plan of this.host.plans() ?? []) {
      if (plan.name === name || real === undefined || (await realOf(plan.url)) !== real) continue;
      const text = `${url} is the place of "${plan.name}", ${plan.url}, by a link; take another one`;
      throw new KintsugiError('BAD_ARGUMENT', text);
    }
  }

  // ---- exports that are gone

  /** The plan of exports of this name that has made one, and makes none at the moment. */
  private exportOf(name: string): PlanStatus | undefined {
    const plan = this.host.plans()?.find((each) => each.name === name);
    return plan?.kind === 'export' && plan.last && !plan.underWay ? plan : undefined;
  }

  /** A client repeats its question until the answer comes, and the place is looked at for the first one. */
  private lookBefore(from: PeerId, role: Role, message: MessageOf<'saveNow'>) {
    const question = `${from}/${message.id}`;
    if (this.lookedFor.has(question) || !this.exportOf(message.name)) return undefined;
    return async () => {
      await this.beginAnew(message.name);
      this.lookedFor.add(question);
      const [oldest] = this.lookedFor;
      if (this.lookedFor.size > KEPT_QUESTIONS) this.lookedFor.delete(oldest!);
      this.host.step({ kind: 'message', from, role, message });
    };
  }

  /** Takes events of the core. A number is used once, also where the plan is set again. */
  heard(event: string, { plan, number }: Record<string, unknown>): void {
    if (event === 'checkpoint.begun') this.newestBegun.set(plan as string, number as number);
    else if (event === 'checkpoint.unchanged') this.unchanged(plan as string);
  }

  /** An attempt has found nothing to add to the newest export, which somebody may have removed. */
  private unchanged(name: string): void {
    const now = performance.now();
    if (now - (this.lookedAt.get(name) ?? Number.NEGATIVE_INFINITY) < LOOK_AGAIN_MS) return;
    this.lookedAt.set(name, now);
    void this.beginAnew(name);
  }

  /**
   * Where the newest export is gone, the next one is whole: it adds to nothing. The core adds to exports of
   * the same place only, and takes the same place in another spelling for another one. A place that does not
   * answer says nothing. An attempt under way finds out by itself.
   */
  private async beginAnew(name: string): Promise<void> {
    const before = this.exportOf(name);
    if (!before) return;
    const numbers = await within(LOOK_UP_MS, this.publisher.numbers(before.url)).catch(() => undefined);
    const plan = this.exportOf(name);
    if (plan?.url !== before.url || !numbers) return;
    const { underWay: _, last, failure, name: __, ...same } = plan;
    const newest = numbers.at(-1) ?? 0;
    if (newest >= last!.number) return;
    this.host.log.warn('checkpoint.gone', { plan: name, url: plan.url, number: last!.number });
    const url = plan.url.endsWith('/') ? plan.url.replace(/\/+$/, '') : `${plan.url}/`;
    const next = Math.max(last!.number, failure?.number ?? 0, this.newestBegun.get(name) ?? 0) + 1;
    await this.ask((id) => ({ t: 'setPlan', id, name, plan: { ...same, url }, next }));
  }

  // ---- questions of this process itself

  /** Takes answers of the core to this process. */
  receive(message: Message): void {
    if (message.t !== 'planSet' && message.t !== 'saveDone') return;
    this.waiting.get(message.id)?.(message);
    this.waiting.delete(message.id);
  }

  /** Undefined: this scheduler was closed before it was answered. */
  private ask(build: (id: number) => Message): Promise<CheckpointAnswer | undefined> {
    const id = this.nextId++;
    return new Promise((resolve) => {
      this.waiting.set(id, resolve);
      this.host.step({ kind: 'message', from: SCHEDULER, role: 'client', message: build(id) });
    });
  }

  /** The job gets this plan, unless it has had one. */
  async begin(plan: SavePlan): Promise<void> {
    if (this.host.plans() !== undefined) return;
    const found = await within(LOOK_UP_MS, this.publisher.next(plan.url)).catch((error: unknown) => {
      this.host.log.warn('checkpoint.place', { url: plan.url, ...failureOf(error) });
      return undefined;
    });
    const next = found ?? 1;
    await this.ask((id) => ({ t: 'setPlan', id, name: CHECKPOINT_PLAN, plan, next }));
  }

  /** Every plan that saves everything saves once more. Resolves when that is done, has failed, or is late. */
  async last(): Promise<void> {
    const plans = (this.host.plans() ?? []).filter(({ kind }) => kind === 'full job');
    const all = plans.map(({ name }) => this.ask((id) => ({ t: 'saveNow', id, name })));
    if ((await within(LAST_CHECKPOINT_MS, Promise.all(all))) || all.length === 0) return;
    this.host.log.warn('checkpoint.late', { afterMs: LAST_CHECKPOINT_MS });
  }

  // ---- metrics

  /** A number of each plan that has one, by its name. */
  metric(of: (plan: PlanStatus) => number | undefined): ReadonlyMap<string, number> {
    const numbers = (this.host.plans() ?? []).map((plan): [string, number | undefined] => [
      plan.name,
      of(plan),
    ]);
    return new Map(numbers.filter((each): each is [string, number] => each[1] !== undefined));
  }

  close(): Promise<void> {
    for (const give of this.waiting.values()) give();
    this.waiting.clear();
    return this.publisher.close();
  }
}

/**
 * A job that begins can write to its place of checkpoints. @throws PLACE_FAILED, BAD_ARGUMENT,
 * DEPENDENCY_MISSING
 */
export async function checkPlan({ url }: SavePlan, log: Logger): Promise<void> {
  if (await checkWritable(url, LOOK_UP_MS)) return;
  log.warn('checkpoint.place', { url, code: 'PLACE_FAILED', message: `no answer within ${LOOK_UP_MS} ms` });
}

type CheckpointAnswer = MessageOf<'planSet'> | MessageOf<'saveDone'>;
