/**
 * How fast background recovery may go beside requests when no limit was given: a controller per node, on the
 * very thing that is to be kept. Before a failure the node learns how many requests it serves; while blocks
 * are missing it lets the background grow as long as nearly as many are served, and cuts it when they become
 * fewer. A machine that has room to spare is used, one that has none is left to the requests, and nobody has
 * to know which it is. Without any requests there is no limit. Blocks that requests wait for are never held
 * back, but they count: the background rests while they are many.
 *
 * A planned move burdens another node, and the one that it goes to may serve nothing yet. So whoever gives
 * contents says how it fares, and a move is held to what is worse, here or there. Whoever learned what calm
 * times are like from times in which shards move would take what moves cost for the normal, and speed up
 * until little was left of it. So moves rest now and then, and while there are any in the job, a node learns
 * in the rests of its own moves, and hardly otherwise.
 */

/** Blocks are about 4 KiB; the pace is stated in bytes and counted in blocks. */
export const BLOCK_BYTES = 4096;
/** Requests are counted over so long. */
const WINDOW_MS = 400;
/** Nobody asks for anything: no limit. */
const IDLE_MS = 500;
const START_BYTES_PER_SECOND = 2 << 20;
/** Recovery always ends. */
const LEAST_BYTES_PER_SECOND = 2 << 20;
const MOST_BYTES_PER_SECOND = 4 * 2 ** 30;
/** At most so much unused allowance is carried over, or so much overdrawn. */
export const BURST_MS = 100;
/** Of the requests that were served before: with fewer the background is too fast. */
const SHARE = 0.97;
/**
 * How strongly a window counts: a step that is proportional to what was measured lets noise cancel out over
 * windows.
 */
const GAIN = 5;
const MOST_FASTER = 1.25;
const MOST_SLOWER = 0.7;
/** What a window counts in the mean of calm times. */
const LEARN = 0.2;
/**
 * While blocks come or go the mean follows slowly: a job that asks for less than before must not crawl for
 * ever.
 */
const LEARN_MEANWHILE = 0.01;
/** Slower still while shards move, which can last: rests are for learning. */
const LEARN_MOVING = 0.001;
/**
 * Of so many windows with planned moves, the last ones are a rest: long enough for a whole window of whoever
 * gives.
 */
const MOVE_WINDOWS = 12;
const REST_WINDOWS = 3;
/** What the newest window counts in the share that others are told. */
const NEWEST = 0.5;

/**
 * After members of a group were lost: keys have the machines to themselves, then rows, and only then lost
 * parities.
 */
const KEYS_ALONE_MS = 100;
const ROWS_ALONE_MS = 250;

/** So many bytes per second, more or fewer as requests fare, and what of them is not used yet. */
class Allowance {
  private bytes = burst(START_BYTES_PER_SECOND);
  private bytesPerSecond = START_BYTES_PER_SECOND;

  get open(): boolean {
    return this.bytes > 0;
  }

  refill(elapsed: number): void {
    const grown = this.bytes + (this.bytesPerSecond * elapsed) / 1000;
    this.bytes = Math.min(burst(this.bytesPerSecond), grown);
  }

  take(blocks: number): void {
    this.bytes = Math.max(-burst(this.bytesPerSecond), this.bytes - blocks * BLOCK_BYTES);
  }

  /** `share`: of the requests of calm times, so many are served; undefined: nobody knows. */
  adjust(share: number | undefined): void {
    const step = share === undefined ? MOST_FASTER : Math.exp(GAIN * (share - SHARE));
    const wanted = this.bytesPerSecond * Math.min(MOST_FASTER, Math.max(MOST_SLOWER, step));
    this.bytesPerSecond = Math.min(MOST_BYTES_PER_SECOND, Math.max(LEAST_BYTES_PER_SECOND, wanted));
  }

  reset(): void {
    this.bytesPerSecond = START_BYTES_PER_SECOND;
  }
}

export class Pace {
  private readonly background = new Allowance();
  private readonly moves = new Allowance();
  /** Requests per millisecond in calm times; undefined: not known yet. */
  private calm: number | undefined;
  private served = 0;
  private windowFrom: number | undefined;
  private last: number | undefined;
  private disturbedAt = Number.NEGATIVE_INFINITY;
  private decoding = false;
  private moving = false;
  private lastRequest = Number.NEGATIVE_INFINITY;
  private idle = false;
  /** Of the requests of calm times, over the last windows that had any. */
  private share = 1;
  /** Since the last window something was given to others, or something came. */
  private busy = false;
  /** Rates of windows in which nothing was given, while others may move. */
  private pause: number[] = [];
  /** Windows in which something moved here, counted in rounds of moves and a rest. */
  private moveWindows = 0;
  /**
   * What others said of themselves since the last window, and when one of them last said that it serves
   * requests, or that it does not.
   */
  private heard: number[] = [];
  private heardBusy = Number.NEGATIVE_INFINITY;
  private heardIdle = Number.NEGATIVE_INFINITY;

  /** Something was lost. */
  disturbed(now: number): void {
    this.disturbedAt = now;
  }

  request(): void {
    this.served++;
  }

  /**
   * Contents go to somebody's sink: how many of the usual requests are served here; undefined: nobody asks
   * for anything.
   */
  give(): number | undefined {
    this.busy = true;
    return this.idle ? undefined : this.share;
  }

  /** What a node said of itself that gave contents to a planned move. */
  hear(share: number | undefined): void {
    this.busy = true;
    if (share === undefined) this.heardIdle = this.last ?? 0;
    else {
      this.heardBusy = this.last ?? 0;
      this.heard.push(share);
    }
  }

  /**
   * `recovering`: something that belongs here is not here yet; `decoding`: rows of a data shard are on their
   * way. `moving`: there are planned moves in the job, and nothing else is missing here.
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
      this.heard = [];
      this.windowFrom = now;
    }
    this.background.refill(elapsed);
    this.moves.refill(elapsed);
  }

  private learn(rate: number, recovering: boolean): void {
    // A window without requests says nothing: who asks may be waiting for the very shard that was lost.
    if (rate > 0) {
      for (const [each, weight] of this.lessons(rate, recovering))
        this.calm = (this.calm ?? each) + (each - (this.calm ?? each)) * weight;
      if (this.calm !== undefined) this.share += (rate / this.calm - this.share) * NEWEST;
    }
    if (!recovering) {
      this.background.reset();
      this.moves.reset();
      return;
    }
    this.background.adjust(this.calm ? rate / this.calm : undefined);
    const shares = this.calm && !this.idle ? [this.share] : [];
    if (this.heard.length > 0) shares.push(mean(this.heard));
    if (!this.resting) this.moves.adjust(shares.length > 0 ? Math.min(...shares) : undefined);
    if (this.moving) this.moveWindows = (this.moveWindows + 1) % MOVE_WINDOWS;
  }

  /** Rates that say what calm times are like, and how much. */
  private lessons(rate: number, recovering: boolean): [rate: number, weight: number][] {
    if (!this.moving) {
      this.pause = [];
      return [[rate, this.busy || recovering ? LEARN_MEANWHILE : LEARN]];
    }
    if (recovering) return [[rate, this.resting && !this.busy ? LEARN : LEARN_MOVING]];
    if (!this.busy) {
      if (this.pause.length <= REST_WINDOWS) this.pause.push(rate);
      return [];
    }
    // It gave before and gives again: whoever takes rested in between. After more, others may have moved.
    const rest = this.pause.length <= REST_WINDOWS ? this.pause : [];
    this.pause = [];
    return [...rest.map((each): [number, number] => [each, LEARN]), [rate, LEARN_MOVING]];
  }

  /** Planned moves pause, and what is served meanwhile is what could be served. */
  private get resting(): boolean {
    return this.moving && this.moveWindows >= MOVE_WINDOWS - REST_WINDOWS;
  }

  get open(): boolean {
    return this.idle || this.background.open;
  }

  /**
   * Whether lost parities may be built, too: redundancy can wait a little, rows that are asked for cannot.
   */
  get openForParities(): boolean {
    return this.open && !this.decoding && !this.since(this.disturbedAt, ROWS_ALONE_MS);
  }

  /** Whether planned moves may go on: nothing is lost while they last. */
  get openForMoves(): boolean {
    const open = this.wideForMoves || (this.moves.open && !this.resting);
    return open && !this.decoding && !this.since(this.disturbedAt, ROWS_ALONE_MS);
  }

  /** Nobody is kept waiting by large messages. */
  get wide(): boolean {
    return this.idle && !this.since(this.disturbedAt, KEYS_ALONE_MS);
  }

  /** Nor are those who give. */
  get wideForMoves(): boolean {
    return this.wide && this.since(this.heardIdle, IDLE_MS) && !this.since(this.heardBusy, IDLE_MS);
  }

  /** It was at most so long ago. */
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
}

function mean(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}

/** The most that is carried over, in bytes. */
export function burst(bytesPerSecond: number): number {
  return (bytesPerSecond * BURST_MS) / 1000;
}
