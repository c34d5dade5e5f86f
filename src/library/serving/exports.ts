/**
 * `openExport`: the values of an export or a checkpoint in memory, for programs that serve them. It follows
 * the place: when there is a newer one, what has changed is read, and shown in one turn of the event loop.
 */

import { describe, type ErrorCode, KintsugiError } from '../../common/errors.js';
import { frozen } from '../../common/frozen.js';
import { nearText } from '../../common/near-names.js';
import {
  checkArray,
  checkFloat,
  checkFunction,
  checkKeys,
  checkOptions,
  checkSignal,
  checkText,
  checkTimeout,
  type OptionKeys,
} from '../../common/options.js';
import type { Manifest, SavedTable } from '../../protocol/checkpoints.js';
import { checkpointNumbers, readManifest } from '../../stores/checkpoint/checkpoints.js';
import { openExistingPlace } from '../../stores/checkpoint/open.js';
import type { Place } from '../../stores/checkpoint/place.js';
import { choose, collected, type HeldTable, isSuccessor, loaded } from './apply.js';
import type { ServedTable } from './content.js';

/** Options of {@link openExport}. */
export interface ExportOptions {
  /** Names of the tables that are read. Default: all. */
  tables?: readonly string[] | undefined;
  /** Interval of looking for a newer export, in milliseconds; 0: only by `refresh`. Default: 5000. */
  everyMs?: number | undefined;
  /** Every value of a key without a row. Default: its initial value, as the table says. */
  missing?: number | undefined;
  /** Called when another export is served, and when a newer one cannot be: see `failure`. */
  onChange?: ((status: ExportStatus) => void) | undefined;
  /** Gives up the opening. */
  signal?: AbortSignal | undefined;
}

const EXPORT_OPTIONS = {
  tables: true,
  everyMs: true,
  missing: true,
  onChange: checkFunction,
  signal: checkSignal,
} satisfies OptionKeys<ExportOptions>;

const EVERY_MS = 5000;

/** The export that is served, and why no newer one is. */
export interface ExportStatus {
  /** Number of the export, and when its rows were taken (ISO 8601, UTC). */
  number: number;
  createdAt: string;
  kind: Manifest['kind'];
  /** Rows in memory, and their bytes. */
  rows: number;
  bytes: number;
  /** Why a newer export is not served; it is over when one is. `number`: of that one, where it is known. */
  failure?: { code: ErrorCode; message: string; number?: number };
}

let create: (place: Place, opened: OpenedExport, options: ExportOptions) => Export;

/** An export in memory; {@link openExport} makes one. */
export class Export {
  readonly #place: Place;
  readonly #options: ExportOptions;
  readonly #closing = new AbortController();
  #held: HeldTable;
  #served = new Map<string, ServedTable>();
  #failure: ExportStatus['failure'];
  /** Number of an export whose files are not what its manifest says, and will not be. */
  #broken: number | undefined;
  #refreshing: Promise<boolean> | undefined;
  #timer: NodeJS.Timeout | undefined;

  static {
    create = (place, opened, options) => new Export(place, opened, options);
  }

  private constructor(place: Place, { held, failure }: OpenedExport, options: ExportOptions) {
    this.#place = place;
    this.#options = options;
    this.#held = held;
    this.#failure = failure;
    this.#broken = failure?.number;
    this.#serve(held);
    this.#schedule();
  }

  #serve(held: HeldTable): void {
    this.#held = held;
    this.#served = new Map(held.tables.map(({ name }) => [name, held.content.table(name)!]));
  }

  /** Specifications of the tables that are served, frozen. */
  get tables(): readonly SavedTable[] {
    return frozen(this.#held.tables);
  }

  /** The export that is served now, and why no newer one is. */
  get status(): ExportStatus {
    const { manifest, content } = this.#held;
    const { number, createdAt, kind } = manifest;
    const [rows, bytes] = this.#closing.signal.aborted ? [0, 0] : [content.rows, content.bytes];
    return { number, createdAt, kind, rows, bytes, ...(this.#failure && { failure: this.#failure }) };
  }

  /**
   * Rows of a table. A look-up sees one export, and so do look-ups between which nothing is awaited.
   *
   * @example
   * ```ts
   * const rows = served.pull('items', BigUint64Array.of(42n, 43n)); // Float32Array, 2 x dim
   * ```
   * @param into takes the rows; default: a new array
   * @returns keys.length x dim, row-major, in the order of `keys`
   * @throws UNKNOWN_TABLE, KEY_TYPE, KEY_RESERVED, LENGTH_MISMATCH, BAD_ARGUMENT, CLOSED
   */
  pull(table: string, keys: BigUint64Array, into?: Float32Array): Float32Array {
    this.#refuseClosed();
    const served = this.#served.get(table);
    if (!served)
      throw new KintsugiError(
        'UNKNOWN_TABLE',
        `no table "${table}" is served${nearText(table, this.#served.keys())}`,
      );
    checkKeys(keys);
    const length = keys.length * served.spec.dim;
    const rows = into ?? new Float32Array(length);
    if (!(rows instanceof Float32Array))
      throw new KintsugiError('BAD_ARGUMENT', '"into" must be a Float32Array');
    if (rows.length !== length) {
      const text = `rows of ${length} floats do not fit "into", which has ${rows.length}`;
      throw new KintsugiError('LENGTH_MISMATCH', `table "${table}": ${text}`);
    }
    try {
      this.#held.content.pull(served, keys, rows);
    } catch (error) {
      throw asError(error);
    }
    return rows;
  }

  /**
   * Looks for a newer export now, and resolves when it is served; false: there is none. When it fails, what
   * was served before is served on.
   * @throws PLACE_FAILED, BAD_CHECKPOINT, CHECKPOINT_MISSING, UNKNOWN_TABLE, UNRECOVERABLE, MEMORY_LIMIT,
   * CLOSED
   */
  refresh(): Promise<boolean> {
    return this.#refresh(true);
  }

  /** Ends it and frees the memory. */
  async close(): Promise<void> {
    if (this.#closing.signal.aborted) return;
    this.#closing.abort();
    clearTimeout(this.#timer);
    await this.#refreshing?.catch(() => undefined);
    this.#held.content.close();
    await this.#place.close();
  }

  #refuseClosed(): void {
    if (this.#closing.signal.aborted) throw new KintsugiError('CLOSED', 'the export is closed');
  }

  #schedule(): void {
    const { everyMs = EVERY_MS } = this.#options;
    if (everyMs === 0 || this.#closing.signal.aborted) return;
    this.#timer = setTimeout(() => {
      // A failure is in the status.
      void this.#refresh(false)
        .catch(() => undefined)
        .finally(() => this.#schedule());
    }, everyMs);
  }

  /**
   * Looks for a newer export; one look at a time. `again`: also takes an export whose files were found
   * damaged.
   */
  async #refresh(again: boolean): Promise<boolean> {
    this.#refuseClosed();
    while (this.#refreshing) {
      const before = this.#refreshing;
      if (!again) return before;
      await before.catch(() => undefined);
      this.#refuseClosed();
    }
    const refreshing = this.#update(again).finally(() => {
      this.#refreshing = undefined;
    });
    this.#refreshing = refreshing;
    return refreshing;
  }

  async #update(again: boolean): Promise<boolean> {
    let tried: number | undefined;
    const { signal } = this.#closing;
    for (;;) {
      try {
        await this.#held.content.settle(() => signal.aborted);
        const newest = (await checkpointNumbers(this.#place)).at(-1);
        this.#refuseClosed();
        if (newest === undefined) {
          const text = `${this.#place.url} has no complete checkpoint any more`;
          throw new KintsugiError('CHECKPOINT_MISSING', text);
        }
        const { number, attempt } = this.#held.manifest;
        // A place that was made anew counts from 1, too.
        const isSame = newest === number && (await readManifest(this.#place, newest)).attempt === attempt;
        this.#refuseClosed();
        if (isSame) return this.#isCurrent();
        if (newest === this.#broken && !again) return false;
        tried = newest;
        await this.#show(newest);
        return true;
      } catch (error) {
        const failure = asError(error);
        if (this.#closing.signal.aborted) throw failure;
        // Old files are removed when newer exports come: then there is a newer one.
        if (tried !== undefined && (await this.#hasOther(tried))) continue;
        if (tried !== undefined && isLasting(failure)) this.#broken = tried;
        this.#fail(failure, tried);
        throw failure;
      }
    }
  }

  #isCurrent(): false {
    if (this.#failure) {
      this.#failure = undefined;
      this.#tell();
    }
    return false;
  }

  async #hasOther(tried: number): Promise<boolean> {
    const numbers = await checkpointNumbers(this.#place).catch(() => [tried]);
    return (numbers.at(-1) ?? tried) > tried;
  }

  async #show(number: number): Promise<void> {
    const { signal } = this.#closing;
    const next = choose(await readManifest(this.#place, number, signal), this.#options.tables);
    const before = this.#held;
    try {
      const held = isSuccessor(before, next) && (await collected(this.#place, before, next, signal));
      this.#refuseClosed();
      if (held) {
        before.content.show();
        this.#serve(held);
      }
    } finally {
      if (!signal.aborted) before.content.discard();
    }
    if (this.#held === before) {
      const anew = await loaded(this.#place, next, this.#options.missing, signal);
      if (signal.aborted) anew.content.close();
      this.#refuseClosed();
      this.#serve(anew);
      before.content.close();
    }
    this.#failure = undefined;
    this.#broken = undefined;
    await this.#held.content.settle(() => signal.aborted);
    this.#tell();
  }

  #fail(error: KintsugiError, number: number | undefined): void {
    const { code, message } = error;
    const isNew = this.#failure?.code !== code || this.#failure.message !== message;
    this.#failure = { ...failureOf(error), ...(number !== undefined && { number }) };
    if (isNew) this.#tell();
  }

  /** In a turn of its own: what a callback throws is the program's own, as from any listener. */
  #tell(): void {
    const { onChange } = this.#options;
    const { status } = this;
    if (onChange) setImmediate(() => onChange(status));
  }
}

/** An export that is damaged or lacks shards; another one may be whole. */
const isDamage = ({ code }: KintsugiError) => code === 'BAD_CHECKPOINT' || code === 'UNRECOVERABLE';
/** Files do not change: what is wrong with them stays wrong. */
const isLasting = (error: KintsugiError) => isDamage(error) || error.code === 'UNKNOWN_TABLE';
const failureOf = ({ code, message }: KintsugiError) => ({ code, message });

/** Errors of the engine have a code and no class. */
function asError(error: unknown): KintsugiError {
  if (error instanceof KintsugiError) return error;
  const code = (error as { code?: ErrorCode } | undefined)?.code;
  const isKnown = code === 'KEY_RESERVED' || code === 'MEMORY_LIMIT';
  return new KintsugiError(isKnown ? code : 'INTERNAL', describe(error), { cause: error });
}

/**
 * Reads the newest export (or checkpoint) of a place into memory, and follows newer ones until it is closed.
 * A newest one that is damaged is passed over, and `status.failure` says so.
 *
 * @example
 * ```ts
 * const served = await openExport('s3://models/ranker', { tables: ['items'] });
 * const rows = served.pull('items', keys);
 * ```
 * @param url of the place: a directory, or `s3://bucket/prefix`
 * @throws CHECKPOINT_MISSING, BAD_CHECKPOINT, UNKNOWN_TABLE, UNRECOVERABLE, PLACE_FAILED, MEMORY_LIMIT,
 * BAD_ARGUMENT, DEPENDENCY_MISSING, ADDON_NOT_LOADED, ABORTED
 */
export async function openExport(url: string, options: ExportOptions = {}): Promise<Export> {
  checkText('openExport: url', url);
  checkOptions('openExport', options, EXPORT_OPTIONS);
  const { everyMs = EVERY_MS, missing, signal = new AbortController().signal } = options;
  if (options.tables !== undefined) checkArray('openExport: tables', options.tables);
  const tables = options.tables && [...options.tables];
  for (const name of tables ?? []) checkText('openExport: tables', name);
  checkTimeout('openExport: everyMs', everyMs);
  if (missing !== undefined) checkFloat('openExport: missing', missing);
  const own = { ...options, tables };
  const place = await openExistingPlace(url);
  try {
    return create(place, await newestWhole(place, own, signal), own);
  } catch (error) {
    await place.close();
    throw asError(error);
  }
}

/** The newest export that can be read, and why it is not a newer one. */
interface OpenedExport {
  held: HeldTable;
  failure?: ExportStatus['failure'];
}

/** @throws what the newest export fails with when none can be read */
async function newestWhole(place: Place, options: ExportOptions, signal: AbortSignal): Promise<OpenedExport> {
  const numbers = await checkpointNumbers(place);
  const newest = numbers.at(-1);
  if (newest === undefined)
    throw new KintsugiError('CHECKPOINT_MISSING', `${place.url} has no complete checkpoint`);
  let first: KintsugiError | undefined;
  for (const number of numbers.toReversed()) {
    try {
      const chosen = choose(await readManifest(place, number, signal), options.tables);
      const held = await loaded(place, chosen, options.missing, signal);
      return { held, ...(first && { failure: { ...failureOf(first), number: newest } }) };
    } catch (error) {
      first ??= asError(error);
      if (!isDamage(asError(error))) break;
      // Old files are removed when newer exports come: then there is a newer one.
      if (((await checkpointNumbers(place)).at(-1) ?? 0) > newest) return newestWhole(place, options, signal);
    }
  }
  throw first;
}
