/**
 * How fast background recovery may go beside requests when no limit was given: a controller for each node. It
 * compares the rate of requests with a baseline that it learned while nothing was missing. While blocks are
 * missing, the background speeds up as long as nearly as many requests are served, and slows down when they
 * become fewer. So a machine with room to spare is used, and one without leaves its time to requests. Without
 * requests there is no limit. Blocks that requests wait for are never held back, but they count.
 *
 * A planned move also burdens the node that gives the blocks, and the node that takes them may serve nothing
 * yet. So content tells the ratio of requests that its giver serves, and a move follows the worse of the two
 * nodes. A baseline learned during moves would include their cost, so the pace would keep rising. Moves
 * therefore pause regularly, and nodes update the baseline only in those pauses.
 *
 * A change that is to be done in time needs a rate of its own, which the scheduler tells to nodes that take
 * in moves. While that rate holds, no move is slower, however few requests are served. The takeover from a
 * mirror at the end of a move is background, so that rate counts for the background, too.
 */
import { BLOCK_BYTES } from '../../protocol/blocks.js';
import { DEFAULT_POLICY, type Policy } from './policy.js';

/** Requests are counted over windows of this length. */
const WINDOW_MS = 400;
/** After this time without a request there is no limit. */
const IDLE_MS = 500;
const START_BYTES_PER_SECOND = 2 << 20;
/** The floor, so that every recovery ends. */
const LEAST_BYTES_PER_SECOND = 2 << 20;
const MOST_BYTES_PER_SECOND = 4 * 2 ** 30;
/** How long a `movePace` of the scheduler holds. The scheduler repeats it more often. */
const NEEDED_MS = 1500;
/** The allowance of this time is the most that is carried over, and the most that is overdrawn. */
export const BURST_MS = 100;
/** Gain of the controller. A step is proportional to the deviation, so noise cancels out over windows. */
const GAIN = 5;
const MOST_FASTER = 1.25;
const MOST_SLOWER = 0.7;
/** Weight of a window in the baseline. */
const LEARN = 0.2;
/**
 * Weight of a window in which blocks come or go. It is not 0, because the baseline of a job that asks for
 * less than before would stay too high.
 */
const LEARN_MEANWHILE = 0.01;
/** Weight of a window in which shards move, which can last. */
const LEARN_MOVING = 0.001;
/**
 * Moves pause in the last `PAUSE_WINDOWS` of each `MOVE_WINDOWS` windows. The pause is long enough to contain
 * a whole window of each giver, whose windows begin at other times.
 */
const MOVE_WINDOWS = 12;
const PAUSE_WINDOWS = 3;
/** Weight of the newest window in the ratio that others are told. */
const NEWEST = 0.5;

/** Time after a loss in which only keys are recovered, and in which only keys and rows are, in ms. */
const KEYS_ALONE_MS = 100;
const ROWS_ALONE_MS = 250;

/** A rate that the controller adjusts, and the bytes of it that are not used yet. */
class Allowance {
  /** Bytes per second that the scheduler asked for; 0: none. `adjusted` does not depend on it. */
  needed = 0;
  /** Bytes that may be asked for now: within plus and minus `burst(rate)`. */
  private bytes = burst(START_BYTES_PER_SECOND);
  /** Bytes per second, as the controller has found: between the least and the most. */
  private adjusted = START_BYTES_PER_SECOND;

  /** `target`: of served requests, as a part of the baseline. With fewer, the background is too fast. */
  constructor(private readonly target: number) {}

  get rate(): number {
    return Math.max(this.adjusted, this.needed);
  }

  get open(): boolean {
    return this.bytes > 0;
  }

  refill(elapsed: number): void {
    const grown = this.bytes + (this.rate * elapsed) / 1000;
    this.bytes = Math.min(burst(this.rate), grown);
  }

  take(blocks: number): void {
    this.bytes = Math.max(-burst(this.rate), this.bytes - blocks * BLOCK_BYTES);
  }

  /** `servedRatio`: served requests as a part of the baseline; undefined: not known. */
  adjust(servedRatio: number | undefined): void {
    const step = servedRatio === undefined ? MOST_FASTER : Math.exp(GAIN * (servedRatio - this.target));
    const wanted = this.adjusted * Math.min(MOST_FASTER, Math.max(MOST_SLOWER, step));
    this.adjusted = Math.min(MOST_BYTES_PER_SECOND, Math.max(LEAST_BYTES_PER_SECOND, wanted));
  }

  reset(): void {
    this.adjusted = START_BYTES_PER_SECOND;
  }
}

export class Pace {
  private readonly background: Allowance;
  private readonly moves: Allowance;
  private readonly saves: Allowance;
  /** Requests per millisecond while nothing is missing and nothing moves; undefined: not known yet. */
  private baseline: number | undefined;
  /** Requests since the window began. */
  private served = 0;
  /** When the window began: the first tick, then every `WINDOW_MS` or later. */
  private windowFrom: number | undefined;
  /** When `tick` last ran; all times here are in milliseconds of its clock. */
  private last: number | undefined;
  /** When a member of a group was last lost. */
  private disturbedAt = Number.NEGATIVE_INFINITY;
  /** As `tick` was told. */
  private decoding = false;
  /** As `tick` was told. */
  private moving = false;
  /** The newest tick at which the window had a request. */
  private lastRequest = Number.NEGATIVE_INFINITY;
  /** At the last tick there had been no request for more than `IDLE_MS`. */
  private idle = false;
  /** Served requests as a part of the baseline, smoothed over the last windows that had any. */
  private servedRatio = 1;
  /** Blocks were given or taken in this window. */
  private busy = false;
  /** Rows were read for a checkpoint in this window. */
  private saving = false;
  /** Time after which `Allowance.needed` is 0 again. */
  private neededUntil = Number.NEGATIVE_INFINITY;
  /**
   * Rates of windows in which this node gave nothing while moves were in the job: at most a pause, plus 1.
   */
  private pause: number[] = [];
  /** Number of the window in its round of `MOVE_WINDOWS` windows; counts windows with moves to this node. */
  private moveWindows = 0;
  /** Ratios that givers told in this window. */
  private heard: number[] = [];
  /** When a giver last told a ratio. */
  private heardBusy = Number.NEGATIVE_INFINITY;
  /** When a giver last told that it is idle. */
  private heardIdle = Number.NEGATIVE_INFINITY;

  constructor({ backgroundShare }: Pick<Policy, 'backgroundShare'> = DEFAULT_POLICY) {
    const allowance = (): Allowance => new Allowance(1 - backgroundShare);
    [this.background, this.moves, this.saves] = [allowance(), allowance(), allowance()];
  }

  /** A member of a group was lost. */
  disturbed(now: number): void {
    this.disturbedAt = now;
  }

  request(): void {
    this.served++;
  }

  /** For `NEEDED_MS` moves to this node are at least this fast. */
  need(bytesPerSecond: number): void {
    this.background.needed = this.moves.needed = bytesPerSecond;
    this.neededUntil = (this.last ?? 0) + NEEDED_MS;
  }

  /** Notes that content is given to a sink. Returns the ratio of served requests; undefined: no requests. */
  give(): number | undefined {
    this.busy = true;
    return this.idle ? undefined : this.servedRatio;
  }

  /** Notes the ratio that a giver of content to a planned move told; undefined: the giver is idle. */
  hear(servedRatio: number | undefined): void {
    this.busy = true;
    if (servedRatio === undefined) this.heardIdle = this.last ?? 0;
    else {
      this.heardBusy = this.last ?? 0;
      this.heard.push(servedRatio);
    }
  }

  /**
   * `recovering`: blocks are missing on this node. `decoding`: rows of a data shard are among them, and
   * answers come. `moving`: the job has planned moves, and nothing else is missing here.
   */
  tick(now: number, recovering: boolean, decoding = false, moving = false): void {
    this.decoding = decoding;
    this.moving = moving;
    const elapsed = this.last === undefined ? 0 : now - this.last;
    this.last = now;
    this.windowFrom ??= now;
    if (this.served > 0) this.lastRequest = now;
    this.idle = now - this.lastRequest > IDLE_MS;
    if (now - this.windowFrom >= WINDOW_MS) {
      this.learn(this.served / (now - this.windowFrom), recovering);
      this.served = 0;
      this.busy = false;
      this.saving = false;
      this.heard = [];
      this.windowFrom = now;
    }
    if (now > this.neededUntil) this.background.needed = this.moves.needed = 0;
    this.background.refill(elapsed);
    this.moves.refill(elapsed);
    this.saves.refill(elapsed);
  }

  private learn(rate: number, recovering: boolean): void {
    // A window without requests says nothing: the clients may wait for the shard that was lost.
    if (rate > 0) {
      for (const [each, weight] of this.lessons(rate, recovering))
        this.baseline = (this.baseline ?? each) + (each - (this.baseline ?? each)) * weight;
      if (this.baseline !== undefined) this.servedRatio += (rate / this.baseline - this.servedRatio) * NEWEST;
    }
    if (this.saving) this.saves.adjust(this.baseline && !this.idle ? this.servedRatio : undefined);
    else this.saves.reset();
    if (!recovering) {
      this.background.reset();
      this.moves.reset();
      return;
    }
    this.background.adjust(this.baseline ? rate / this.baseline : undefined);
    const ratios = this.baseline && !this.idle ? [this.servedRatio] : [];
    if (this.heard.length > 0) ratios.push(mean(this.heard));
    if (!this.pausing) this.moves.adjust(ratios.length > 0 ? Math.min(...ratios) : undefined);
    if (this.moving) this.moveWindows = (this.moveWindows + 1) % MOVE_WINDOWS;
  }

  /** Rates that update the baseline, with their weights. */
  private lessons(rate: number, recovering: boolean): [rate: number, weight: number][] {
    if (!this.moving) {
      this.pause = [];
      return [[rate, this.busy || recovering ? LEARN_MEANWHILE : LEARN]];
    }
    if (recovering) return [[rate, this.pausing && !this.busy ? LEARN : LEARN_MOVING]];
    if (!this.busy) {
      if (this.pause.length <= PAUSE_WINDOWS) this.pause.push(rate);
      return [];
    }
    // This node gave content before and gives again, so the windows in between were a pause of the taker. A
    // longer time without giving does not count as a pause, because other shards may have moved in it.
    const rest = this.pause.length <= PAUSE_WINDOWS ? this.pause : [];
    this.pause = [];
    return [...rest.map((each): [number, number] => [each, LEARN]), [rate, LEARN_MOVING]];
  }

  /** Planned moves pause: requests that are served meanwhile update the baseline. */
  private get pausing(): boolean {
    return this.moving && this.moveWindows >= MOVE_WINDOWS - PAUSE_WINDOWS;
  }

  get open(): boolean {
    return this.idle || this.background.open;
  }

  /** Lost parities may be rebuilt: they wait a little, because requests may need lost rows. */
  get openForParities(): boolean {
    return this.open && !this.decoding && !this.since(this.disturbedAt, ROWS_ALONE_MS);
  }

  /** Planned moves may go on. They are the last, because nothing is lost while they wait. */
  get openForMoves(): boolean {
    const open = this.wideForMoves || (this.moves.open && !this.pausing);
    return open && !this.decoding && !this.since(this.disturbedAt, ROWS_ALONE_MS);
  }

  /** Rows may be read for a checkpoint. Requests and missing blocks come first. */
  get openForSaves(): boolean {
    if (this.decoding || this.since(this.disturbedAt, ROWS_ALONE_MS)) return false;
    return this.idle || this.saves.open;
  }

  /** Bytes per second that the pace allows while there are requests. */
  rates(): { recovery: number; moves: number; saves: number } {
    const { background, moves, saves } = this;
    return { recovery: background.rate, moves: moves.rate, saves: saves.rate };
  }

  /** Messages may be large: no request waits behind them. */
  get wide(): boolean {
    return this.idle && !this.since(this.disturbedAt, KEYS_ALONE_MS);
  }

  /** Messages of moves may be large: the givers are idle, too. */
  get wideForMoves(): boolean {
    return this.wide && this.since(this.heardIdle, IDLE_MS) && !this.since(this.heardBusy, IDLE_MS);
  }

  /** `at` is at most `ms` ago. */
  private since(at: number, ms: number): boolean {
    return (this.last ?? 0) - at <= ms;
  }

  take(blocks: number): void {
    this.busy = true;
    this.background.take(blocks);
  }

  takeForMove(blocks: number): void {
    this.busy = true;
    this.moves.take(blocks);
  }

  takeForSave(blocks: number): void {
    this.busy = this.saving = true;
    this.saves.take(blocks);
  }
}

function mean(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}

/** The largest unused allowance of a rate, in bytes. */
export function burst(bytesPerSecond: number): number {
  return (bytesPerSecond * BURST_MS) / 1000;
}
