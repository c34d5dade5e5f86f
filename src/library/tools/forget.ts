/**
 * Deletion that reaches the files: rows of keys are deleted in a job, which then makes a checkpoint at each
 * of its places. A place that has the keys still is purged (src/stores/checkpoint/purge.ts). It is searched
 * again afterwards, so what is told is what the files have.
 */
import { KintsugiError } from '../../common/errors.js';
import type { PlanStatus } from '../../protocol/status.js';
import { isOwnFile } from '../../stores/checkpoint/every-file.js';
import type { LiveOptions } from '../../stores/checkpoint/live-rows.js';
import { openExistingPlace, withExistingPlace } from '../../stores/checkpoint/open.js';
import { type Purged, purgePlace } from '../../stores/checkpoint/purge.js';
import type { Client, RequestOptions } from '../client/client.js';
import { saveNow } from './checkpoints.js';
import { type KeysOfTable, type SearchedPlace, type SearchOptions, searchPlace } from './search.js';

/** A place after it was searched, and before that purged where it had keys. */
export interface ForgottenPlace extends SearchedPlace {
  purged?: Purged;
}

/** Keys that a job and its places still have. */
export interface Forgotten {
  /** Rows of the running job; absent: no job was asked. */
  rows?: number;
  places: ForgottenPlace[];
}

/** Only what a purge can reach makes older checkpoints go. Files of others are named, and stay. */
const needsPurge = ({ found }: SearchedPlace): boolean => found.some(({ name }) => isOwnFile(name));

/** True: neither the job nor a file has the keys, and every file was searched. */
export function isForgotten({ rows = 0, places }: Forgotten): boolean {
  return rows === 0 && places.every(({ found, unsearched }) => found.length + unsearched.length === 0);
}

// ---- places

/** Searches places, and changes nothing. @throws what `searchPlace` throws */
export async function searchPlaces(
  urls: readonly string[],
  wanted: KeysOfTable,
  { signal }: RequestOptions = {},
): Promise<Forgotten> {
  const places: ForgottenPlace[] = [];
  for (const url of urls) places.push(await searchPlace(url, wanted, { signal }));
  return { places };
}

/**
 * Leaves keys out of the files of places to which no running job writes. The newest checkpoint of a place
 * stays, without their rows. @throws what `searchPlace` and `purgePlace` throw
 */
export async function forgetInPlaces(
  urls: readonly string[],
  wanted: KeysOfTable,
  { signal }: RequestOptions = {},
): Promise<Forgotten> {
  // A place that is not there is an error before another one is changed.
  for (const url of urls) await (await openExistingPlace(url)).close();
  const forgotten = new Map([[wanted.table, wanted.keys]]);
  const before: ForgottenPlace[] = [];
  for (const url of urls) before.push(await searchPlace(url, wanted, { signal, mustHaveTable: true }));
  return { places: await purgeAndSearch(before, urls, wanted, { forgotten, signal }) };
}

/** Purges places that need it. All are searched after the last purge: a place may be within another one. */
async function purgeAndSearch(
  before: readonly ForgottenPlace[],
  urls: readonly string[],
  wanted: KeysOfTable,
  { ofJob, ...options }: LiveOptions & SearchOptions,
): Promise<ForgottenPlace[]> {
  const purges: (Purged | undefined)[] = [];
  for (const [i, url] of urls.entries()) {
    const purge = () => withExistingPlace(url, (place) => purgePlace(place, options));
    purges.push(needsPurge(before[i]!) ? await purge() : undefined);
  }
  if (purges.every((purged) => !purged)) return [...before];
  const places: ForgottenPlace[] = [];
  for (const [i, url] of urls.entries()) {
    const searched = await searchPlace(url, wanted, { signal: options.signal, ofJob });
    places.push({ ...searched, ...(purges[i] && { purged: purges[i] }) });
  }
  return places;
}

// ---- a job

/** Searches a job and all places that it saves to, and changes nothing. @throws what `searchPlace` throws */
export async function searchJob(
  client: Client,
  wanted: KeysOfTable,
  options: RequestOptions = {},
): Promise<Forgotten> {
  const rows = await rowsOf(client, wanted, options);
  const places: ForgottenPlace[] = [];
  for (const { url, last } of (await client.status()).saving ?? [])
    places.push(await searchPlace(url, wanted, { ...options, ofJob: true, holds: last?.number }));
  return { rows, places };
}

/**
 * The save plans of a job, whose places can all be reached from here.
 * @throws NOT_READY while the job loads a checkpoint, CHECKPOINT_MISSING, PLACE_FAILED
 */
export async function plansToForget(client: Client): Promise<PlanStatus[]> {
  const { saving = [], restoring } = await client.status();
  if (restoring) {
    const which = `checkpoint ${restoring.number} of ${restoring.url}`;
    throw new KintsugiError('NOT_READY', `the job loads ${which}, whose files must stay until then`);
  }
  for (const { url } of saving) await (await openExistingPlace(url)).close();
  return saving;
}

/**
 * Deletes rows of a job, and has them go from the files of the places of these plans.
 * @throws the code of a checkpoint that cannot be made, and what `searchPlace` and `purgePlace` throw
 */
export async function forgetInJob(
  client: Client,
  wanted: KeysOfTable,
  plans: readonly PlanStatus[],
  options: RequestOptions = {},
): Promise<Forgotten> {
  const table = client.table(wanted.table);
  for (const keys of wanted.keys.lists()) await table.delete(keys, options);
  const before: ForgottenPlace[] = [];
  for (const { name, url } of plans) {
    // This checkpoint begins after the deletion, when those before have ended, so no later file has the rows.
    const { number: holds } = await saveNow(client, name);
    before.push(await searchPlace(url, wanted, { ...options, ofJob: true, holds }));
  }
  const urls = plans.map(({ url }) => url);
  const places = await purgeAndSearch(before, urls, wanted, { ...options, ofJob: true });
  return { rows: await rowsOf(client, wanted, options), places };
}

/** Rows of the job with these keys. */
async function rowsOf(
  client: Client,
  { table, keys }: KeysOfTable,
  options: RequestOptions,
): Promise<number> {
  let rows = 0;
  for await (const batch of client.table(table).scan({ select: 'keys', ...options }))
    rows += keys.countOf(batch.keys);
  return rows;
}
