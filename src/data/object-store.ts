/**
 * Data files in an object store that speaks S3: `s3://bucket/path`. They are read by ranges, so no byte is
 * fetched that was not asked for. The client is that of checkpoints (src/stores/checkpoint/s3.ts): a request
 * that fails is repeated, and a range arrives whole or not at all.
 */

import { KintsugiError } from '../common/errors.js';
import type { StoredFile } from '../stores/checkpoint/place.js';
import { S3Place } from '../stores/checkpoint/s3.js';

/** The first request is small: often only the beginning of a file is needed. */
const FIRST_BYTES = 256 * 1024;
const READ_BYTES = 8 * 1024 * 1024;
/** With pauses of up to 5 s: a store may be away for a minute. */
const ATTEMPTS = 20;

export function isRemote(file: string): boolean {
  return /^s3:\/\//i.test(file);
}

const places = new Map<string, Promise<S3Place>>();

/** The bucket of an address, and the name of the file in it. */
async function placeOf(url: string): Promise<{ place: S3Place; name: string }> {
  const [, bucket, name = ''] = /^s3:\/\/([^/]+)(?:\/(.*))?$/is.exec(url) ?? [];
  if (bucket === undefined) throw new KintsugiError('BAD_ARGUMENT', `${url} must be s3://BUCKET/PATH`);
  let place = places.get(bucket);
  if (!place) {
    place = S3Place.open(`s3://${bucket}`, { attempts: ATTEMPTS, anyNames: true });
    places.set(bucket, place);
    place.catch(() => places.delete(bucket));
  }
  return { place: await place, name };
}

/** A file with its size and version, as the store lists it; undefined where there is none. */
export async function listedFile(url: string): Promise<StoredFile | undefined> {
  const { place, name } = await placeOf(url);
  for await (const file of place.list(name)) if (file.name === name) return file;
  return undefined;
}

/** Bytes `from` to `to` of a file. @throws BAD_DATA where it has another version than the given one */
export async function remoteBytes(
  url: string,
  from: number,
  to: number,
  version?: string,
): Promise<Uint8Array<ArrayBuffer>> {
  const { place, name } = await placeOf(url);
  if (to - from <= READ_BYTES) return place.get(name, { from, to, version });
  const whole = new Uint8Array(to - from);
  for (let at = from; at < to; at += READ_BYTES)
    whole.set(await place.get(name, { from: at, to: Math.min(to, at + READ_BYTES), version }), at - from);
  return whole;
}

/** Bytes of a file from `from` on. The next piece is fetched while the consumer works on one. */
export async function* remoteChunks(url: string, from: number): AsyncGenerator<Buffer, void, undefined> {
  const { place, name } = await placeOf(url);
  const fetch = (at: number, bytes: number) => {
    const range = place.get(name, { from: at, to: at + bytes });
    // The request may fail while nobody awaits it yet.
    range.catch(() => {});
    return { range, bytes };
  };
  let at = from;
  for (let next = fetch(at, FIRST_BYTES); ; ) {
    const bytes = await next.range;
    at += bytes.length;
    const last = bytes.length < next.bytes;
    if (!last) next = fetch(at, READ_BYTES);
    if (bytes.length > 0) yield Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);
    if (last) return;
  }
}

/** Addresses of all files that begin with an address, in no particular order. */
export async function remoteFiles(prefix: string): Promise<string[]> {
  const { place, name } = await placeOf(prefix);
  const files: string[] = [];
  for await (const file of place.list(name)) files.push(`${place.url}/${file.name}`);
  return files;
}
