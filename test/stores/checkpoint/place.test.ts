/** Promises of every place. */
import { createHash } from 'node:crypto';
import { beforeAll, describe, expect, test } from 'vitest';
import { DirectoryPlace } from '../../../src/stores/checkpoint/directory.js';
import type { Place } from '../../../src/stores/checkpoint/place.js';
import { ENDPOINT, makeBucket, s3Place } from './s3-server.js';
import { random, temporaryDirectory } from './support.js';

const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);
let bucket = '';
let prefixes = 0;
beforeAll(async () => {
  if (ENDPOINT) bucket = await makeBucket();
});

async function namesOf(place: Place, prefix = ''): Promise<string[]> {
  const names: string[] = [];
  for await (const { name } of place.list(prefix)) names.push(name);
  return names.sort();
}

/** Several openings of one new place. */
type Open = (count: number) => Promise<Place[]>;
const directories: Open = async (count) => {
  const directory = temporaryDirectory();
  return Array.from({ length: count }, () => new DirectoryPlace(directory));
};
const objectStores: Open = async (count) => {
  const url = `s3://${bucket}/a/prefix-${prefixes++}`;
  return Promise.all(Array.from({ length: count }, () => s3Place(url, { pageFiles: 10 })));
};

describe.each<[string, Open]>([
  ['a directory', directories],
  ...(ENDPOINT ? [['an object store', objectStores] as [string, Open]] : []),
])('%s', (_what, open) => {
  test('gives back what was put: whole, in parts, with its size and SHA-256', async () => {
    const [place] = await open(1);
    const next = random(1);
    const parts = [0, 5, 700_000, 1, 2_000_000].map((length) => Uint8Array.from({ length }, next));
    const whole = Buffer.concat(parts);
    const stored = await place!.put('000001/a.safetensors', parts);
    const sha256 = createHash('sha256').update(whole).digest('hex');
    expect(stored).toEqual({ bytes: whole.length, sha256 });
    const read = await place!.get('000001/a.safetensors');
    expect(Buffer.compare(read, whole)).toBe(0);
    expect(read.byteOffset).toBe(0);
    const some = await place!.get('000001/a.safetensors', { from: 4, to: 700_009 });
    expect(Buffer.compare(some, whole.subarray(4, 700_009))).toBe(0);
    const end = whole.length;
    expect(await place!.get('000001/a.safetensors', { from: end - 2, to: 1e12 })).toHaveLength(2);
    expect(await place!.get('000001/a.safetensors', { from: end + 2 })).toHaveLength(0);
    expect(await place!.get('000001/a.safetensors', { from: 5, to: 5 })).toHaveLength(0);
    await place!.put('000001/empty', []);
    expect(await place!.get('000001/empty')).toHaveLength(0);
  });

  test('that nobody has written to is empty', async () => {
    const [place] = await open(1);
    expect(await namesOf(place!)).toEqual([]);
    await expect(place!.get('000001/manifest.json')).rejects.toMatchObject({ code: 'CHECKPOINT_MISSING' });
    await place!.remove(['000001/manifest.json']);
  });

  test('lists by the beginning of names, and forgets what was removed', async () => {
    const [place] = await open(1);
    for (const name of ['000001/a', '000001/b', '000011/a', 'notes'])
      await place!.put(name, [bytes(name), bytes('!')]);
    expect(await namesOf(place!)).toEqual(['000001/a', '000001/b', '000011/a', 'notes']);
    expect(await namesOf(place!, '0000')).toEqual(['000001/a', '000001/b', '000011/a']);
    expect(await namesOf(place!, '000001/')).toEqual(['000001/a', '000001/b']);
    expect(await namesOf(place!, '000001/b')).toEqual(['000001/b']);
    expect(await namesOf(place!, 'notes')).toEqual(['notes']);
    expect(await namesOf(place!, 'notes/')).toEqual([]);
    for await (const { name, bytes: size } of place!.list('')) expect(size).toBe(name.length + 1);
    await place!.remove(['000001/a', '000001/b', '000001/c']);
    expect(await namesOf(place!)).toEqual(['000011/a', 'notes']);
  });

  test('lists more files than fit into one answer', async () => {
    const [place] = await open(1);
    const names = Array.from({ length: 25 }, (_, i) => `000001/${String(i).padStart(4, '0')}`);
    await Promise.all(names.map((name) => place!.put(name, [])));
    expect(await namesOf(place!)).toEqual(names);
    await place!.remove(names.slice(1));
    expect(await namesOf(place!)).toEqual(names.slice(0, 1));
  });

  test('gives a new name to one writer; the same content again is no error', async () => {
    const places = await open(8);
    const puts = places.map((place, i) =>
      place.put('000001/manifest.json', [bytes(`writer ${i}`)], { ifAbsent: true }),
    );
    const outcomes = await Promise.allSettled(puts);
    const winners = outcomes.flatMap(({ status }, i) => (status === 'fulfilled' ? [i] : []));
    expect(winners).toHaveLength(1);
    for (const outcome of outcomes) {
      if (outcome.status === 'rejected') expect(outcome.reason).toMatchObject({ code: 'CHECKPOINT_TAKEN' });
    }
    const content = bytes(`writer ${winners[0]}`);
    expect(await places[0]!.get('000001/manifest.json')).toEqual(content);
    await places[1]!.put('000001/manifest.json', [content], { ifAbsent: true });
    await places[1]!.put('000001/manifest.json', [bytes('replaced by more')]);
    expect(await places[0]!.get('000001/manifest.json')).toEqual(bytes('replaced by more'));
    await expect(places[1]!.put('000001/manifest.json', [content], { ifAbsent: true })).rejects.toMatchObject(
      { code: 'CHECKPOINT_TAKEN' },
    );
  });

  test('takes no memory for more than was asked for', async () => {
    const [place] = await open(1);
    await place!.put('a', [new Uint8Array(1000)]);
    await expect(place!.get('a', { atMost: 999 })).rejects.toMatchObject({ code: 'BAD_CHECKPOINT' });
    expect(await place!.get('a', { atMost: 999, from: 1 })).toHaveLength(999);
  });

  test('names lead nowhere else', async () => {
    const [place] = await open(1);
    for (const name of ['../x', '/etc/passwd', 'a/../../x', '', '.partial/x', 'a//b', 'a\0b'])
      await expect(place!.put(name, [])).rejects.toMatchObject({ code: 'INTERNAL' });
  });

  test('an aborted put leaves nothing', async () => {
    const [place] = await open(1);
    const signal = AbortSignal.abort();
    await expect(place!.put('a', [bytes('x')], { signal })).rejects.toMatchObject({ code: 'ABORTED' });
    const late = new AbortController();
    const putting = place!.put('b', [new Uint8Array(30_000_000)], { signal: late.signal });
    setImmediate(() => late.abort());
    await expect(putting).rejects.toMatchObject({ code: 'ABORTED' });
    await place!.put('c', [bytes('x')]);
    await expect(place!.get('c', { signal })).rejects.toMatchObject({ code: 'ABORTED' });
    expect(await namesOf(place!)).toEqual(['c']);
  });
});
