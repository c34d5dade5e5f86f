import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { beforeAll, describe, expect, onTestFinished, test, vi } from 'vitest';
import { publishCheckpoint, readManifest, readSegment } from '../../../src/stores/checkpoint/checkpoints.js';
import { openPlace } from '../../../src/stores/checkpoint/open.js';
import { S3Place } from '../../../src/stores/checkpoint/s3.js';
import { ENDPOINT, type Fault, makeBucket, s3Place, startProxy } from './s3-server.js';
import { draftOf, random, rows, shardOf, store, TABLES } from './support.js';

const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);

describe('an object store that cannot be used', () => {
  test('needs a package, which is named with the command that installs it', async () => {
    await expect(S3Place.open('s3://bucket/x', { sdk: 'not-installed' })).rejects.toMatchObject({
      code: 'DEPENDENCY_MISSING',
      message: expect.stringContaining('run "npm install not-installed"'),
    });
  });

  test.each(['s3://', 's3:///x', 's3://b/../x', 's3://bucket/a?b', 's3://bu cket'])('%s', async (url) => {
    await expect(openPlace(url)).rejects.toMatchObject({ code: 'BAD_ARGUMENT' });
  });

  test('is not reached: every attempt is made, then the reason is said', async () => {
    vi.stubEnv('AWS_ACCESS_KEY_ID', 'x').stubEnv('AWS_SECRET_ACCESS_KEY', 'y');
    const options = { endpoint: 'http://127.0.0.1:1', attempts: 3, backoffMs: 1 };
    const place = await s3Place('s3://bucket/some/prefix/', options);
    await expect(place.get('000001/manifest.json')).rejects.toMatchObject({
      code: 'PLACE_FAILED',
      message: expect.stringMatching(/^s3:\/\/bucket\/some\/prefix: 000001\/manifest.json: .*ECONNREFUSED/),
    });
    vi.unstubAllEnvs();
  });
});

test('a clock that is wrong: the next attempt is made with that of the server', async () => {
  vi.stubEnv('AWS_ACCESS_KEY_ID', 'x').stubEnv('AWS_SECRET_ACCESS_KEY', 'y');
  const signed: number[] = [];
  const server = createServer((request, answer) => {
    const [, year, month, day, hour, minute, second] = /^(....)(..)(..)T(..)(..)(..)Z$/.exec(
      String(request.headers['x-amz-date']),
    )!;
    signed.push(Date.parse(`${year}-${month}-${day}T${hour}:${minute}:${second}Z`) - Date.now());
    const skewed = signed.at(-1)! < 3_000_000;
    request.resume().on('end', () => {
      answer.setHeader('date', new Date(Date.now() + 3_600_000).toUTCString());
      answer.statusCode = skewed ? 403 : 200;
      answer.end(skewed ? '<Error><Code>RequestTimeTooSkewed</Code><Message>late</Message></Error>' : '');
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  onTestFinished(() => void server.close());
  const { port } = server.address() as AddressInfo;
  const place = await s3Place('s3://bucket/x', { endpoint: `http://127.0.0.1:${port}`, attempts: 3 });
  await place.put('a', [bytes('x')]);
  expect(signed.length).toBe(2);
  vi.unstubAllEnvs();
});

describe.skipIf(!ENDPOINT)('an object store', () => {
  let bucket = '';
  beforeAll(async () => {
    bucket = await makeBucket();
  });

  test('is found by its environment', async () => {
    vi.stubEnv('KINTSUGI_S3_ENDPOINT', ENDPOINT!).stubEnv('AWS_REGION', undefined);
    const place = await openPlace(`s3://${bucket}/environment/`);
    expect(place.url).toBe(`s3://${bucket}/environment`);
    await place.put('a', [bytes('x')]);
    await place.close();
    vi.unstubAllEnvs();
    const names = [];
    for await (const { name } of (await s3Place(`s3://${bucket}`)).list('environment/')) names.push(name);
    expect(names).toEqual(['environment/a']);
  });

  test('that refuses says why, after one attempt', async () => {
    let requests = 0;
    const { endpoint } = await startProxy(() => {
      requests++;
      return undefined;
    });
    const none = await s3Place(`s3://${bucket}-that-is-not-there/x`, { endpoint });
    const failed = { code: 'PLACE_FAILED', message: expect.stringContaining('NoSuchBucket') };
    await expect(none.put('a', [bytes('x')])).rejects.toMatchObject(failed);
    await expect(none.get('a')).rejects.toMatchObject(failed);
    expect(requests).toBe(2);
    vi.stubEnv('AWS_SECRET_ACCESS_KEY', 'wrong');
    const wrong = await s3Place(`s3://${bucket}/x`, { endpoint });
    await expect(wrong.put('a', [bytes('x')])).rejects.toMatchObject({
      code: 'PLACE_FAILED',
      message: expect.stringContaining('SignatureDoesNotMatch'),
    });
    expect(requests).toBe(3);
    vi.unstubAllEnvs();
  });

  test.each<Fault>(['busy', 'halfRequest', 'lost', 'silent'])(
    'a conditional write whose first attempt is %s succeeds, and another writer finds the name taken',
    async (fault) => {
      let puts = 0;
      const { endpoint, counts } = await startProxy(({ method }) =>
        method === 'PUT' && ++puts === 1 ? fault : undefined,
      );
      const options = { endpoint, idleMs: 300 };
      const [one, two] = await Promise.all([0, 1].map(() => s3Place(`s3://${bucket}/${fault}`, options)));
      const content = new Uint8Array(300_000).fill(5);
      await one!.put('000001/manifest.json', [content], { ifAbsent: true });
      expect(counts).toEqual({ [fault!]: 1 });
      // A file that is there already is not written again.
      expect(puts).toBe(fault === 'lost' ? 1 : 2);
      const other = two!.put('000001/manifest.json', [content.fill(6, 7)], { ifAbsent: true });
      await expect(other).rejects.toMatchObject({ code: 'CHECKPOINT_TAKEN' });
      expect((await two!.get('000001/manifest.json')).subarray(0, 9)).toEqual(new Uint8Array(9).fill(5));
    },
  );

  test.each<Fault>(['busy', 'lost', 'halfAnswer', 'silent'])(
    'a read that is %s is repeated',
    async (fault) => {
      let gets = 0;
      const { endpoint, counts } = await startProxy(() => (++gets % 2 === 1 ? fault : undefined));
      await (await s3Place(`s3://${bucket}/r-${fault}`)).put('a', [new Uint8Array(200_000).fill(3)]);
      const place = await s3Place(`s3://${bucket}/r-${fault}`, { endpoint, idleMs: 300 });
      expect(Buffer.compare(await place.get('a'), new Uint8Array(200_000).fill(3))).toBe(0);
      const names = [];
      for await (const { name } of place.list('')) names.push(name);
      expect(names).toEqual(['a']);
      expect(counts).toEqual({ [fault!]: 2 });
    },
  );

  test('a body that changes on its way is refused by the server', async () => {
    // The SHA-256 is taken before the request is made, and these bytes differ every time that they are read.
    const data = new Uint8Array(100_000);
    const direct = await s3Place(`s3://${bucket}/changed`, { attempts: 2 });
    let reads = 0;
    const changing = new Proxy(data, {
      get(target, key) {
        if (key === 'subarray')
          return (a: number, b: number) => target.subarray(a, b).map((x) => x + reads++);
        return Reflect.get(target, key, target) as unknown;
      },
    });
    await expect(direct.put('a', [changing])).rejects.toMatchObject({
      code: 'PLACE_FAILED',
      message: expect.stringContaining('SHA256'),
    });
  });

  test('a checkpoint through a bad connection: complete, and every file as it was written', async () => {
    const next = random(11);
    const faults = ['busy', 'failed', 'halfRequest', 'lost', 'halfAnswer'] as const;
    // Every eighth request, each kind in its turn: two writers ask in an order that differs from run to run.
    let requests = 0;
    const { endpoint, counts } = await startProxy(() =>
      ++requests % 8 === 0 ? faults[(requests / 8) % faults.length] : undefined,
    );
    const url = `s3://${bucket}/bad-connection`;
    const writers = await Promise.all([0, 1].map(() => s3Place(url, { endpoint })));
    const keys = Array.from({ length: 2000 }, (_, i) => BigInt(i));
    const shards = await Promise.all(
      writers.map(async (place, shard) => {
        const segments = [];
        for (let part = 0; part < 60; part++) {
          const to = { number: 1, attempt: '0123abcd', shard, part, position: 9 };
          segments.push(await store(place, to, [rows(TABLES[0]!, keys, next)], part === 59 ? [] : undefined));
        }
        return shardOf(shard, segments);
      }),
    );
    const drafts = ['aaaaaaaa', 'bbbbbbbb'].map((attempt) => ({ ...draftOf(1, shards), attempt }));
    const outcomes = await Promise.allSettled(
      drafts.map((draft, i) => publishCheckpoint(writers[i]!, draft)),
    );
    expect(outcomes.map(({ status }) => status).sort()).toEqual(['fulfilled', 'rejected']);
    for (const outcome of outcomes) {
      if (outcome.status === 'rejected') expect(outcome.reason).toMatchObject({ code: 'CHECKPOINT_TAKEN' });
    }
    for (const place of [writers[0]!, await s3Place(url)]) {
      const manifest = await readManifest(place);
      expect(manifest.rows).toBe(2 * 60 * keys.length);
      for (const { segments } of manifest.shards)
        for (const segment of segments) await readSegment(place, segment);
    }
    const total = Object.values(counts).reduce((sum, count) => sum + count, 0);
    expect(total).toBeGreaterThan(20);
    expect(Object.keys(counts).sort()).toEqual([...faults].sort());
  });
});
