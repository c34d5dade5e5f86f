/**
 * One round: a job of its own, the well-behaved client, the attacks for a while, then the same client while
 * the attacks are made on another job of the machine, and the check of all rows.
 */
import { setTimeout as pause } from 'node:timers/promises';
import { describe, KintsugiError } from '../../src/common/errors.js';
import { cpuSeconds } from '../../src/fleet/local/processor-time.js';
import { monotonicMs } from '../../src/net/log.js';
import {
  type Attack,
  type AttackedJob,
  type AttackOutcome,
  NOTHING_TOLD,
  outcomesOf,
} from '../common/attacks/attack.js';
import { ATTACKS } from '../common/attacks/index.js';
import { MemoryWatch } from '../common/attacks/memory-watch.js';
import { OverloadJob } from './job.js';
import type { OverloadOptions, RoundPlan } from './options.js';
import { checkRows, type RowsFound, SteadyClient, type SteadyPhase } from './steady-client.js';

/** Shares of the time of a round. */
const QUIET_SHARE = 0.2;
const ATTACK_SHARE = 0.4;
const BESIDE_SHARE = 0.4;
/** The machine keeps so much, whatever an attack does. */
const LEAST_AVAILABLE_BYTES = 3 * 2 ** 30;
/** A PS that has so many times --kill-at is killed, when its attack has ended already. */
const GROWN_TIMES = 4 / 3;
/** The same where the machine is full. */
const FULL_SHARE = 1 / 3;
/** A job that is not redundant again after this time does not get so any more. */
const WHOLE_MS = 180_000;
const POLL_MS = 100;
/** A round that takes so much longer than its phases hangs. */
const HANGS_MS = 600_000;
/** An attack that does not end in order after this time is left to the end of this process. */
const STOP_MS = 30_000;

export interface AttackPair {
  attack: SteadyPhase;
  beside: SteadyPhase;
}

/** Everything that a round found. Undefined: it did not get so far. */
export interface RoundResult {
  name: string;
  /** Highest resident memory by process, in bytes. */
  peaks: Record<string, number>;
  /** Why the attack was ended before its time. */
  ended: string | undefined;
  quiet: SteadyPhase | undefined;
  /** The attack, and right after it the same on another job; as often as `--pairs` says. */
  pairs: AttackPair[];
  /** Cores that attackers took, and that the PS took beyond those of the quiet phase: the most of a pair. */
  cores: { attackers: number; ps: number };
  /** PS that were declared lost, and those that an attack killed. */
  lost: number;
  killed: number;
  /** PS that this benchmark killed for their size. */
  tooLarge: number;
  /** Processes that ended by themselves. */
  died: string[];
  attackers: Omit<AttackOutcome, 'pushed'>;
  rows: RowsFound | undefined;
  /** Pulls of the well-behaved client with rows that were never there. */
  wrongPulls: string[];
  /** Requests of the well-behaved client that failed. */
  refused: number;
  /** Errors of the round itself, and the first of the refusals. */
  errors: string[];
}

/** Everything that the attacks took of the machine. */
export const coresOf = ({ cores }: RoundResult): number => cores.attackers + cores.ps;

export class OverloadRound {
  private readonly result: RoundResult;
  private over: () => void = () => {};
  /** Resolves when the attack must end before its time. */
  private readonly alarm = new Promise<void>((resolve) => {
    this.over = resolve;
  });
  private attacks: Attack[] = [];
  private readonly ended = new Set<Attack>();
  private readonly outcomes: AttackOutcome[] = [];
  /** The other job. */
  private twin: OverloadJob | undefined;

  constructor(
    private readonly plan: RoundPlan,
    private readonly options: OverloadOptions,
    private readonly storeUrl: string,
    /** Seconds for the phases together. */
    private readonly seconds: number,
  ) {
    this.result = {
      ...{ name: plan.name, peaks: {}, ended: undefined },
      ...{ quiet: undefined, pairs: [] },
      ...{
        cores: { attackers: 0, ps: 0 },
        lost: 0,
        killed: 0,
        tooLarge: 0,
        died: [],
        attackers: { answered: 0, refused: {} },
      },
      ...{ rows: undefined, wrongPulls: [], refused: 0, errors: [] },
    };
  }

  async run(): Promise<RoundResult> {
    const { plan, options, result } = this;
    const job = await OverloadJob.start(plan.job, options, this.storeUrl);
    const watch = new MemoryWatch(
      () => [...job.pids(), ...this.attacks.flatMap((attack) => [...attack.watched()])],
      {
        mostBytes: options.killBytes,
        leastAvailableBytes: LEAST_AVAILABLE_BYTES,
        onTooMuch: (...found) => this.tooMuch(job, ...found),
      },
    );
    let steady: SteadyClient | undefined;
    try {
      steady = new SteadyClient(job.address);
      await within(this.seconds * 1000 + HANGS_MS, plan.name, this.story(job, steady));
    } catch (error) {
      result.errors.push(describe(error));
    } finally {
      watch.look();
      watch.stop();
      await within(STOP_MS, 'the end of attacks', this.endAttacks()).catch(() => {});
      await this.twin?.stop();
      steady?.kill();
      result.peaks = Object.fromEntries(watch.peaks);
      result.died = job.died;
      result.lost = job.lost;
      result.killed = job.killed;
      result.tooLarge = job.tooLarge;
      if (steady) {
        result.refused = steady.failed;
        result.errors.push(...steady.failures);
      }
      await job.stop();
    }
    return result;
  }

  /** Ends the attack at once. A PS that still grows is killed, so that the machine lives. */
  private tooMuch(job: OverloadJob, name: string, bytes: number, isMachineFull: boolean): void {
    const machine = 'the machine has too little memory left';
    this.result.ended ??= isMachineFull ? machine : `${name} has more than --kill-at`;
    for (const attack of this.attacks) attack.abort();
    const { killBytes } = this.options;
    if (bytes > killBytes * (isMachineFull ? FULL_SHARE : GROWN_TIMES)) job.killTooLarge(name);
    this.over();
  }

  private async story(job: OverloadJob, steady: SteadyClient): Promise<void> {
    const { result, plan, options } = this;
    await steady.ready;
    await job.fill(options.fillBytes);
    const twin = await OverloadJob.start(plan.job, options, this.storeUrl);
    this.twin = twin;
    await this.prepare(job);
    const quietFrom = [monotonicMs(), job.cpuSeconds()] as const;
    result.quiet = await this.measured(steady, () => pause(QUIET_SHARE * this.seconds * 1000));
    // The well-behaved client is not part of the attack, nor is what it costs the PS.
    const quietCores = (job.cpuSeconds() - quietFrom[1]) / ((monotonicMs() - quietFrom[0]) / 1000);
    for (let i = 0; i < options.pairs && result.ended === undefined; i++) {
      if (i > 0) await this.prepare(job);
      const attack = await this.underAttack(job, steady, quietCores);
      const beside = await this.besideTwin(twin, steady);
      result.pairs.push({ attack, beside });
      await this.whole(job);
    }
    const { pushed, ...attackers } = outcomesOf(this.outcomes);
    result.attackers = attackers;
    const end = await steady.end();
    result.wrongPulls = end.wrong;
    result.rows = await checkRows(job.address, end, pushed);
  }

  /** The attacks of the plan on a job, with what they need of it. */
  private async prepare(job: AttackedJob): Promise<void> {
    this.attacks = this.plan.attacks.map((name) => ATTACKS[name](job));
    for (const attack of this.attacks) await attack.prepare();
  }

  private async underAttack(
    job: OverloadJob,
    steady: SteadyClient,
    quietCores: number,
  ): Promise<SteadyPhase> {
    const { result } = this;
    const begun = monotonicMs();
    const [attackCpu, psCpu] = [this.attackCpu(), job.cpuSeconds()];
    const phase = await this.measured(steady, () => this.attacked(this.phaseMs(ATTACK_SHARE)));
    const seconds = (monotonicMs() - begun) / 1000;
    result.cores = {
      attackers: Math.max(result.cores.attackers, (this.attackCpu() - attackCpu) / seconds),
      ps: Math.max(result.cores.ps, (job.cpuSeconds() - psCpu) / seconds - quietCores),
    };
    this.outcomes.push(await this.endAttacks());
    await this.whole(job);
    return phase;
  }

  private phaseMs(share: number): number {
    return (share * this.seconds * 1000) / this.options.pairs;
  }

  private async measured(steady: SteadyClient, work: () => Promise<void>): Promise<SteadyPhase> {
    steady.begin();
    await work();
    return steady.phase();
  }

  /** For the time, or until the alarm; at least half of the time after the attack is under way. */
  private async attacked(ms: number): Promise<void> {
    const begun = monotonicMs();
    const started = Promise.all(this.attacks.map((attack) => attack.start()));
    started.catch(() => {});
    await Promise.race([started, this.alarm]);
    const left = Math.max(ms - (monotonicMs() - begun), ms / 2);
    await Promise.race([pause(left), this.alarm]);
  }

  private attackCpu(): number {
    let seconds = 0;
    for (const attack of this.attacks) for (const pid of attack.pids()) seconds += cpuSeconds(pid) || 0;
    return seconds;
  }

  private async endAttacks(): Promise<AttackOutcome> {
    const outcomes: AttackOutcome[] = [];
    for (const attack of this.attacks.filter((each) => !this.ended.has(each))) {
      this.ended.add(attack);
      outcomes.push(
        await attack.stop().catch((error: unknown) => {
          this.result.errors.push(`${attack.name}: ${describe(error)}`);
          return NOTHING_TOLD;
        }),
      );
    }
    return outcomesOf(outcomes);
  }

  /**
   * The same attacks on another job: they take as much of the machine, in the same bursts, and nothing of the
   * PS of this job.
   */
  private async besideTwin(twin: OverloadJob, steady: SteadyClient): Promise<SteadyPhase> {
    const own = this.attacks;
    await this.prepare(unharmed(twin));
    const phase = await this.measured(steady, async () => {
      const also = own.map((attack) => attack.beside?.());
      await Promise.all([this.attacked(this.phaseMs(BESIDE_SHARE)), ...also]);
    });
    await this.endAttacks();
    return phase;
  }

  /**
   * Redundant again, with all PS: one that grew beyond all bounds may be killed after its attack, too.
   * @throws TIMEOUT, UNRECOVERABLE
   */
  private async whole(job: OverloadJob): Promise<void> {
    const until = monotonicMs() + WHOLE_MS;
    let why = '';
    while (monotonicMs() < until) {
      await job.revive();
      const { redundancy, reasons } = await job.client.status();
      if (redundancy === 'full') return;
      if (redundancy === 'lost') throw new KintsugiError('UNRECOVERABLE', reasons.slice(0, 3).join('; '));
      why = `${redundancy}: ${reasons.join('; ')}`;
      await pause(POLL_MS);
    }
    throw new KintsugiError('TIMEOUT', `after ${WHOLE_MS / 1000} s the job is ${why}`);
  }
}

/** The job to its attacks, whose PS they do not kill: that is done to the job of the well-behaved client. */
function unharmed(job: OverloadJob): AttackedJob {
  const nothing = { killOne: () => {}, startKilled: async () => {} };
  return Object.create(job, Object.getOwnPropertyDescriptors(nothing)) as AttackedJob;
}

/** The result of `work`, unless it takes longer. @throws TIMEOUT */
async function within<T>(ms: number, what: string, work: Promise<T>): Promise<T> {
  const over = new AbortController();
  const late = pause(ms, undefined, { signal: over.signal }).then(() => {
    throw new KintsugiError('TIMEOUT', `${what} takes more than ${ms / 1000} s`);
  });
  late.catch(() => {});
  try {
    return await Promise.race([work, late]);
  } finally {
    over.abort();
  }
}
