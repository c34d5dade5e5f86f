/**
 * Carries out save plans, which make checkpoints and exports, by attempts. One attempt is under way at a
 * time. Plans are durable. Attempts are not: a scheduler that is started again begins another one, with
 * another number and other names of files.
 *
 * The order of an attempt is what makes it whole (rules 34 to 36): the queue of samples first, from when on
 * no session of a range ends; then the shards, each with its de-duplication state; then the manifest, when
 * all files are stored.
 */
import type { ErrorCode } from '../../../common/errors.js';
import { limitText } from '../../../protocol/limits.js';
import type { PeerId } from '../../../protocol/map.js';
import type { Message, MessageOf } from '../../../protocol/messages.js';
import { addsTo, CHECKPOINT_PLAN, isSamePlace, isSamePlan, type SavePlan } from '../../../protocol/saving.js';
import type { PlanStatus, SavedCopy } from '../../../protocol/status.js';
import type { SchedulerPolicy } from '../../shared/policy.js';
import { planKey, SAVING_KEY } from '../entries.js';
import type { Ledger, PublishAnswer } from '../ledger.js';
import type { Reports } from '../reports.js';
import type { Samples } from '../samples/samples.js';
import type { Sessions } from '../sessions.js';
import type { StoredPlan } from '../state.js';
import { Attempt, type CheckpointRequest } from './attempt.js';
import { Barrier } from './barrier.js';
import { Chains } from './chains.js';

/**
 * Milliseconds before the first retry of a failed plan. Each next retry waits twice as long, up to the
 * period.
 */
const FIRST_BACKOFF_MS = 2000;
const MAX_PLANS = 16;
/** The most answers that are kept: a client repeats its question until the answer comes. */
const KEPT_ANSWERS = 64;
const LATE = 'a shard has another owner than when clients held their pushes back';
const MAX_PLAN_NAME = 64;

/** The soft state of a plan. */
interface LivePlan {
  chains: Chains;
  /** Milliseconds at which its next attempt is due; infinite: when a client asks. */
  dueAt: number;
  /** Failures in a row. */
  failures: number;
  /** Requests that the next attempt answers. */
  waiting: CheckpointRequest[];
  /** Pools, tables and the number of shards of the newest checkpoint; undefined: none. */
  shape: string | undefined;
}

export class Saver {
  /** The attempt under way; undefined: none is. */
  private attempt: Attempt | undefined;
  /** The newest answers to clients; at most `KEPT_ANSWERS`. */
  private readonly answered: { to: CheckpointRequest; answer: Message }[] = [];
  /** By the name of a plan. */
  private readonly live = new Map<string, LivePlan>();
  private now = 0;
  /** Milliseconds since 1970. */
  private wall = 0;

  constructor(
    private readonly ledger: Ledger,
    private readonly policy: SchedulerPolicy,
    private readonly samples: Samples,
    private readonly sessions: Sessions,
    private readonly reports: Reports,
  ) {}

  private get plans(): ReadonlyMap<string, StoredPlan> | undefined {
    return this.ledger.state.saving?.plans;
  }

  // ---- messages

  /** A client holds its pushes back. */
  onHeld(from: PeerId, message: MessageOf<'held'>): void {
    if (message.id === this.attempt?.id) this.attempt.barrier?.onHeld(from, message);
  }

  setPlan(from: PeerId, { id, name, plan, next = 1 }: MessageOf<'setPlan'>): void {
    const { ledger } = this;
    const refuse = (code: ErrorCode, message: string) =>
      ledger.answer(from, { t: 'planSet', id, code, message });
    if (name.length === 0 || name.length > MAX_PLAN_NAME)
      return refuse('BAD_ARGUMENT', `a save plan needs a name of 1 to ${MAX_PLAN_NAME} characters`);
    ledger.state.saving ??= { nextAttempt: 1, plans: new Map() };
    const { plans } = ledger.state.saving;
    const known = plans.get(name);
    // The message is a repeated one, so the attempt under way goes on.
    if (plan && known && isSamePlan(plan, known)) return ledger.answer(from, { t: 'planSet', id });
    if (plan && !known && plans.size >= MAX_PLANS)
      return refuse('LIMIT', limitText('the job has no room for a save plan', 'maxPlans', MAX_PLANS));
    // Each would remove the files of the other one.
    const other =
      plan && [...plans.values()].find((each) => each.name !== name && isSamePlace(each.url, plan.url));
    if (other) return refuse('BAD_ARGUMENT', `${plan.url} is the place of "${other.name}"; take another one`);
    if (this.attempt?.plan.name === name) this.fail('ABORTED', 'the save plan was changed');
    this.changeLive(name, plan, known);
    if (plan) {
      const same = known?.url === plan.url ? known : undefined;
      const { last, failure } = same?.kind === plan.kind ? same : {};
      const told = { ...(last && { last }), ...(failure && { failure }) };
      plans.set(name, { ...plan, name, next: Math.max(next, same?.next ?? 1), ...told });
    } else plans.delete(name);
    ledger.touch(planKey(name));
    ledger.touch(SAVING_KEY);
    ledger.answer(from, { t: 'planSet', id });
  }

  /** A plan is changed: the soft state of the old one stays as far as the next checkpoint can add to it. */
  private changeLive(name: string, plan: SavePlan | undefined, known: StoredPlan | undefined): void {
    const live = this.live.get(name);
    if (!live) return;
    // Files of another place are no parents of what is saved from now on.
    if (!plan || !known || !addsTo(plan, known)) return void this.live.delete(name);
    live.dueAt = this.dueAt(plan);
  }

  /** The time of the first attempt of a plan that begins now. */
  private dueAt({ everyMs }: SavePlan): number {
    return everyMs > 0 ? this.now + everyMs : Number.POSITIVE_INFINITY;
  }

  saveNow(from: PeerId, { id, name }: MessageOf<'saveNow'>): void {
    const live = this.liveOf(name);
    const asked = ({ peer, id: question }: CheckpointRequest) => peer === from && question === id;
    const known = this.answered.find(({ to }) => asked(to));
    if (known) return this.ledger.answer(from, known.answer);
    if (live?.waiting.some(asked) || this.attempt?.waiting.some(asked)) return;
    if (live) live.waiting.push({ peer: from, id });
    else this.tell([{ peer: from, id }], 'BAD_ARGUMENT', noPlace(name));
  }

  /** A node says how far it is with what it saves. */
  heard(
    from: PeerId,
    message: MessageOf<'shardSaved'> | MessageOf<'saveProgress'> | MessageOf<'saveFailed'>,
  ): void {
    const { attempt } = this;
    if (attempt?.id !== message.id) {
      // A scheduler that is started again does not know the attempts of the one before.
      if (message.id < (this.ledger.state.saving?.nextAttempt ?? 1))
        this.ledger.answer(from, { t: 'saveEnded', id: message.id });
      return;
    }
    if (attempt.publishing) return;
    if (message.t === 'saveProgress') {
      attempt.progress(message, this.now);
      return this.goOn(attempt);
    }
    const { g, m, gen } = message;
    if (message.t === 'saveFailed') {
      // A node that reports a failure saves no further shard of this attempt, so the attempt fails.
      const { groups } = this.ledger.map;
      if (!groups.some(({ data }) => data.some(({ node }) => node === from))) return;
      return this.fail(message.code, `shard ${m} of group ${g}: ${message.message}`);
    }
    // A report counts only if its sender still owns the shard by the newest map. Otherwise the new owner is
    // asked.
    const owner = this.ledger.map.groups[g]?.data[m];
    if (owner?.node !== from || owner.gen !== gen) return;
    if (attempt.isLate(this.ledger.map)) return this.fail('ABORTED', LATE);
    attempt.savedShard(message, this.now);
    this.goOn(attempt);
    if (this.attempt !== attempt) return;
    if (attempt.isComplete(this.ledger.map)) this.publish(attempt);
  }

  // ---- time

  /** `slept`: milliseconds in which this process did not run. `wall`: milliseconds since 1970. */
  tick(now: number, slept: number, wall: number): void {
    this.now = now;
    this.wall = wall;
    if (!this.plans) return;
    const { attempt } = this;
    if (!attempt) return this.begin();
    attempt.progressAt += slept;
    const { saveRetryMs, saveStallMs } = this.policy;
    if (!attempt.publishing) {
      const lost = this.ledger.map.groups.find((group) => this.reports.isLost(group));
      if (lost) return this.fail('UNRECOVERABLE', `shards of group ${lost.id} are beyond repair`);
      if (attempt.barrier?.isLate(now))
        return this.fail('TIMEOUT', `clients held their pushes for ${this.policy.barrierMs} ms (barrierMs)`);
      if (attempt.isLate(this.ledger.map)) return this.fail('ABORTED', LATE);
      if (attempt.barrier && !attempt.cut && attempt.barrier.isClosed(now)) this.cut(attempt);
      else if (now - attempt.askedAt >= saveRetryMs) this.ask(attempt);
    }
    if (now - attempt.progressAt > saveStallMs)
      this.fail('TIMEOUT', `nothing came further for ${saveStallMs} ms (saveStallMs)`);
  }

  private liveOf(name: string): LivePlan | undefined {
    const plan = this.plans?.get(name);
    if (!plan) return undefined;
    let live = this.live.get(name);
    if (!live) {
      const chains = new Chains(this.policy.maxIncrements);
      live = {
        chains,
        dueAt: this.dueAt(plan),
        failures: 0,
        waiting: [],
        shape: undefined,
      };
      this.live.set(name, live);
    }
    return live;
  }

  /** Begins the attempt that is due for the longest time, if one is. */
  private begin(): void {
    const { ledger } = this;
    const { map, saving } = ledger.state;
    let next: { plan: StoredPlan; live: LivePlan; dueAt: number } | undefined;
    for (const plan of this.plans!.values()) {
      const live = this.liveOf(plan.name)!;
      const dueAt = live.waiting.length > 0 ? 0 : live.dueAt;
      if (dueAt <= this.now && dueAt < (next?.dueAt ?? Number.POSITIVE_INFINITY))
        next = { plan, live, dueAt };
    }
    if (!next || map.groups.length === 0) return;
    const { plan, live } = next;
    const { waiting, chains } = live;
    live.waiting = [];
    const id = saving!.nextAttempt++;
    const held = plan.kind === 'full job' && plan.barrier === true;
    const { policy, samples, sessions } = this;
    const barrier = held ? new Barrier(ledger, policy, samples, sessions, id, this.now) : undefined;
    const attempt = new Attempt(id, plan, map, chains, this.now, waiting, barrier);
    this.attempt = attempt;
    // A number is used once, whatever becomes of the attempt.
    saving!.plans.set(plan.name, { ...plan, next: plan.next + 1 });
    ledger.touch(SAVING_KEY);
    ledger.touch(planKey(plan.name));
    this.event('checkpoint.begun', attempt, { attempt: attempt.hex });
    if (barrier) this.ask(attempt);
    else this.cut(attempt);
  }

  /** Copies the queue of samples, then asks owners. With a barrier, no client pushes any more. */
  private cut(attempt: Attempt): void {
    if (attempt.plan.kind === 'full job') attempt.cut = this.samples.beginCut();
    attempt.barrier?.begin();
    this.ask(attempt);
  }

  /**
   * When all shards have begun, clients may push again. The attempt fails if a client came that was not asked
   * to hold its pushes.
   */
  private goOn(attempt: Attempt): void {
    const { barrier } = attempt;
    if (!barrier || barrier.isOver || !attempt.hasBegun(this.ledger.map)) return;
    if (!barrier.isClosed(this.now))
      return this.fail('ABORTED', 'a client came while others held their pushes');
    attempt.pausedMs = Math.round(this.now - attempt.startedAt);
    barrier.resume();
  }

  private ask(attempt: Attempt): void {
    attempt.askedAt = this.now;
    const { ledger } = this;
    if (attempt.barrier && !attempt.barrier.isOver) attempt.barrier.ask(this.now);
    if (attempt.barrier && !attempt.cut) return;
    for (const [node, question] of attempt.questions(ledger.map)) ledger.answer(node, question);
  }

  // ---- ends

  private publish(attempt: Attempt): void {
    const { ledger, samples } = this;
    const { url, keep } = attempt.plan;
    const draft = attempt.draft(ledger.state);
    attempt.shape = JSON.stringify([draft.pools, draft.tables, draft.shards.length]);
    const { shape } = this.liveOf(attempt.plan.name)!;
    const { last } = this.plans!.get(attempt.plan.name)!;
    if (last && attempt.isUnchanged && attempt.shape === shape) return this.unchanged(attempt, last.number);
    attempt.publishing = true;
    if (attempt.plan.kind === 'full job') samples.endCut();
    const ageMs = this.now - attempt.startedAt;
    ledger.afterwards({ kind: 'publish', token: attempt.id, url, keep, ageMs, draft });
  }

  onPublished(answer: PublishAnswer): void {
    const { attempt } = this;
    if (attempt?.id !== answer.token) return;
    if (answer.kind === 'published') return this.done(attempt);
    const live = this.liveOf(attempt.plan.name)!;
    // Another writer may have written to the place or removed files, so the next checkpoint adds to none of
    // this job's files.
    if (answer.code !== 'PLACE_FAILED') live.chains.clear();
    const again = answer.newest === undefined ? [] : attempt.waiting.filter((each) => !each.again);
    live.waiting.push(...again.map((each) => ({ ...each, again: true })));
    this.fail(answer.code, answer.message);
    if (answer.newest === undefined) return;
    const plan = this.plans!.get(attempt.plan.name)!;
    this.changePlan({ ...plan, next: Math.max(plan.next, answer.newest + 1) });
    // The first time the next attempt begins at once. When numbers are taken again and again, another writer
    // is at the place, and the usual pauses apply.
    if (live.failures === 1) live.dueAt = this.now;
  }

  private changePlan(plan: StoredPlan): void {
    const { ledger } = this;
    ledger.state.saving!.plans.set(plan.name, plan);
    ledger.touch(planKey(plan.name));
  }

  private done(attempt: Attempt): void {
    attempt.published();
    const { number, sums, startedAt } = attempt;
    const live = this.liveOf(attempt.plan.name)!;
    live.shape = attempt.shape;
    const tookMs = Math.round(this.now - startedAt);
    const paused = attempt.pausedMs !== undefined && { pausedMs: attempt.pausedMs };
    this.noteLast(attempt.plan.name, { number, ...sums, tookMs });
    live.failures = 0;
    this.event('checkpoint.done', attempt, { ...sums, tookMs, ...paused });
    const done = { number, ...sums, tookMs, ...paused };
    for (const to of attempt.waiting) this.answer(to, { t: 'saveDone', id: to.id, ...done });
    this.end(attempt, live, attempt.plan.everyMs - tookMs);
  }

  private noteLast(name: string, made: Omit<NonNullable<StoredPlan['last']>, 'at'>): void {
    const { failure: _, ...plan } = this.plans!.get(name)!;
    this.note({ ...plan, last: { ...made, at: this.wall } });
  }

  /** Stores what a plan shows of its attempts, for a scheduler that takes over. */
  private note(plan: StoredPlan): void {
    const { ledger } = this;
    ledger.state.saving!.plans.set(plan.name, plan);
    ledger.jot(planKey(plan.name));
  }

  /**
   * The attempt found what the newest export has, so there is no export of its number. The chains stay as
   * they are: an attempt that finds nothing is no increment of theirs.
   */
  private unchanged(attempt: Attempt, newest: number): void {
    const live = this.liveOf(attempt.plan.name)!;
    const tookMs = Math.round(this.now - attempt.startedAt);
    const found = { number: newest, rows: 0, bytes: 0, tookMs };
    this.noteLast(attempt.plan.name, found);
    live.failures = 0;
    this.event('checkpoint.unchanged', attempt, { newest, tookMs });
    for (const to of attempt.waiting) this.answer(to, { t: 'saveDone', id: to.id, ...found });
    this.end(attempt, live, attempt.plan.everyMs - tookMs);
  }

  private fail(code: ErrorCode, message: string): void {
    const { attempt } = this;
    if (!attempt) return;
    if (!attempt.publishing && attempt.cut) this.samples.endCut();
    const heldMs = attempt.barrier?.heldMs(this.now) ?? 0;
    attempt.barrier?.resume();
    const live = this.liveOf(attempt.plan.name)!;
    this.note({ ...this.plans!.get(attempt.plan.name)!, failure: { number: attempt.number, code, message } });
    const backoff = FIRST_BACKOFF_MS * 2 ** Math.min(live.failures++, 20);
    this.event('checkpoint.failed', attempt, { code, message });
    const isOver = ({ peer, id }: CheckpointRequest) =>
      !live.waiting.some((each) => each.peer === peer && each.id === id);
    this.tell(attempt.waiting.filter(isOver), code, message);
    this.end(attempt, live, Math.max(heldMs, Math.min(attempt.plan.everyMs, backoff)));
  }

  private end({ id, plan }: Attempt, live: LivePlan, afterMs: number): void {
    this.attempt = undefined;
    live.dueAt = plan.everyMs > 0 ? this.now + Math.max(0, afterMs) : Number.POSITIVE_INFINITY;
    this.ledger.afterwards({ kind: 'broadcast', message: { t: 'saveEnded', id } });
  }

  private tell(waiting: readonly CheckpointRequest[], code: ErrorCode, message: string): void {
    const nothing = { number: 0, rows: 0, bytes: 0, tookMs: 0 };
    for (const to of waiting) this.answer(to, { t: 'saveDone', id: to.id, ...nothing, code, message });
  }

  private answer(to: CheckpointRequest, answer: Message): void {
    this.answered.push({ to, answer });
    if (this.answered.length > KEPT_ANSWERS) this.answered.shift();
    this.ledger.answer(to.peer, answer);
  }

  /**
   * Rule 47: files know tables by their names, so no later checkpoint adds to files that have rows of a table
   * that is gone. An attempt under way begins again.
   */
  tableDropped(): void {
    for (const { chains } of this.live.values()) chains.clear();
    const { attempt } = this;
    if (!attempt) return;
    const live = this.liveOf(attempt.plan.name)!;
    const { failures } = live;
    live.waiting.push(...attempt.waiting);
    this.fail('ABORTED', 'a table was dropped, so the checkpoint begins again');
    live.failures = failures;
    if (attempt.plan.everyMs > 0) live.dueAt = this.now;
  }

  private event(name: string, { plan, number }: Attempt, fields: Record<string, unknown>): void {
    this.ledger.afterwards({ kind: 'event', name, fields: { plan: plan.name, number, ...fields } });
  }

  /** The newest checkpoint with this shard, as far as this scheduler has made it. */
  newestWith(g: number, m: number): SavedCopy | undefined {
    for (const { name, url, kind, last } of this.plans?.values() ?? []) {
      const { chains } = this.liveOf(name)!;
      const rows = chains.rows(g, m);
      if (kind !== 'full job' || !last || rows === undefined) continue;
      return { url, number: last.number, rows, agoMs: this.agoMs(last) + last.tookMs };
    }
    return undefined;
  }

  /** Undefined: there has never been a plan. */
  status(): PlanStatus[] | undefined {
    if (!this.plans) return undefined;
    return [...this.plans.values()].map((plan): PlanStatus => {
      const { name, url, kind, everyMs, keep, rate, barrier, tables, served, last, failure } = plan;
      const chosen = { ...(barrier && { barrier }), ...(tables && { tables }), ...(served && { served }) };
      const { attempt } = this;
      const shards = this.ledger.map.groups.reduce((sum, { data }) => sum + data.length, 0);
      const own = attempt?.plan.name === name ? attempt : undefined;
      return {
        ...{ name, url, kind, everyMs, keep, rate },
        ...chosen,
        ...(own && { underWay: { number: own.number, saved: own.savedShards, shards } }),
        ...(last && { last: this.shown(last) }),
        ...(failure && { failure }),
      };
    });
  }

  private shown({ at, ...last }: NonNullable<StoredPlan['last']>): NonNullable<PlanStatus['last']> {
    return { ...last, agoMs: this.agoMs({ at }) };
  }

  /** The clocks of two machines may differ. */
  private agoMs({ at }: { at: number }): number {
    return Math.max(0, Math.round(this.wall - at));
  }
}

function noPlace(name: string): string {
  if (name === CHECKPOINT_PLAN)
    return 'the job has no place for checkpoints: "kintsugi checkpoint set PLACE" gives it one';
  return `the job has no place for exports ${JSON.stringify(name)}: "kintsugi export PLACE" gives it one`;
}
