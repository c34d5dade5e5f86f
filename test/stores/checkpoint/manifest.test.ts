import { createHash } from 'node:crypto';
import { describe, expect, test } from 'vitest';
import { KintsugiError } from '../../../src/common/errors.js';
import {
  type CheckpointDraft,
  checkpointFolder,
  checkpointOfManifest,
  checkpointOfSegment,
  type Manifest,
  type SegmentRef,
} from '../../../src/protocol/checkpoints.js';
import { decodeManifest, encodeManifest } from '../../../src/stores/checkpoint/manifest.js';
import { draftOf, random, shardOf } from './support.js';

function segment(number: number, name: string): SegmentRef {
  const full = `${checkpointFolder(number)}/${name}.safetensors`;
  return { name: full, bytes: 100, sha256: 'ab'.repeat(32), rows: 5 };
}

function draft(): CheckpointDraft {
  return draftOf(12, [
    shardOf(0, [segment(3, 'a'), segment(12, 'b')]),
    shardOf(1, [segment(7, 'c'), segment(12, 'd')]),
  ]);
}

/** With the SHA-256 that belongs to it: only what it says can be wrong. */
function sealed(manifest: object): Uint8Array {
  const body = `${JSON.stringify(manifest).slice(1)}\n`;
  const sha256 = createHash('sha256').update(body).digest('hex');
  return new TextEncoder().encode(`{"sha256": "${sha256}",\n${body}`);
}

describe('a manifest', () => {
  test('reads back, with what follows from it', () => {
    const manifest = decodeManifest(encodeManifest(draft()), 12);
    expect(manifest).toEqual({
      ...draft(),
      format: 'kintsugi-checkpoint',
      version: 1,
      parents: [3, 7],
      rows: 20,
      bytes: 400,
    });
  });

  test('begins with a line that has the SHA-256 of all others', () => {
    const text = Buffer.from(encodeManifest(draft())).toString();
    const [first, ...rest] = text.split('\n');
    expect(first).toBe(`{"sha256": "${createHash('sha256').update(rest.join('\n')).digest('hex')}",`);
    expect(JSON.parse(text)).toMatchObject({ number: 12 });
  });

  test('cannot be made of what is not valid', () => {
    const twice = { ...draft(), shards: [shardOf(0, [segment(3, 'a')]), shardOf(0, [segment(3, 'b')])] };
    expect(() => encodeManifest(twice)).toThrow(expect.objectContaining({ code: 'INTERNAL' }));
  });

  test('an export may have no files, and shards of some pools only', () => {
    const few: CheckpointDraft = { ...draft(), kind: 'export', shards: [shardOf(1, [])] };
    expect(decodeManifest(encodeManifest(few), 12)).toMatchObject({ kind: 'export', rows: 0, parents: [] });
  });
});

test('names have one way to be written', () => {
  expect(checkpointFolder(12)).toBe('000012');
  expect(checkpointFolder(1234567)).toBe('1234567');
  expect(checkpointOfManifest('000012/manifest.json')).toBe(12);
  expect(checkpointOfSegment('1234567/1f-g0-m1-0.safetensors')).toBe(1234567);
  for (const name of [
    '12/manifest.json',
    '0000012/manifest.json',
    '000000/manifest.json',
    '000012/other.json',
    'x/000012/manifest.json',
  ])
    expect(checkpointOfManifest(name)).toBeUndefined();
  for (const name of [
    '../000012/a.safetensors',
    '000012/../a.safetensors',
    '000012/.a.safetensors',
    '000012/a',
  ])
    expect(checkpointOfSegment(name)).toBeUndefined();
});

describe('a manifest that is wrong is refused', () => {
  const whole = decodeManifest(encodeManifest(draft()), 12);
  const [one, two] = whole.shards as [Manifest['shards'][0], Manifest['shards'][0]];
  const withFile = (change: Partial<SegmentRef>) => ({
    shards: [{ ...one, segments: [{ ...one.segments[0]!, ...change }, one.segments[1]!] }, two],
  });
  test.each<[string, object, RegExp]>([
    ['another format', { format: 'x' }, /not the manifest/],
    ['another version', { version: 2 }, /version 2/],
    ['another number', { number: 13, parents: [3, 7, 12] }, /manifest of checkpoint 13/],
    ['a field that is missing', { job: undefined }, /"job"/],
    ['a strange attempt', { attempt: '../../etc' }, /"attempt"/],
    ['a date that is none', { createdAt: '2026-99-99T00:00:00Z' }, /"createdAt"/],
    ['a file outside', withFile({ name: '../000003/a.safetensors' }), /"shards"/],
    ['a file of huge size', withFile({ bytes: 2 ** 40 }), /"shards"/],
    ['a hash that is none', withFile({ sha256: 'AB'.repeat(32) }), /"shards"/],
    ['a file of the future', withFile({ name: '000013/a.safetensors' }), /later/],
    ['a file twice', withFile({ name: one.segments[1]!.name }), /occurs twice/],
    ['a sum', { rows: 21 }, /sums/],
    ['a parent that it does not need', { parents: [3, 7, 8] }, /parents/],
    ['no shard', { shards: [one] }, /1 of 2 shards/],
    ['a shard twice', { shards: [one, one] }, /occurs twice/],
    ['a shard that there is not', { shards: [one, { ...two, shard: 2 }] }, /no shard 2/],
    ['a shard of another member', { shards: [one, { ...two, member: 0 }] }, /member 0/],
    ['a shard without files', { shards: [one, { ...two, segments: [] }] }, /no files/],
    ['a table of no pool', { pools: [], shards: [], parents: [], rows: 0, bytes: 0 }, /unknown pool/],
    ['a table twice', { tables: [whole.tables[0], whole.tables[0]] }, /table occurs twice/],
    ['a data set without ranges', { samples: { ...whole.samples, datasets: [{}] } }, /"samples"/],
  ])('%s', (_what, change, message) => {
    const decode = () => decodeManifest(sealed({ ...whole, ...change }), 12);
    expect(decode).toThrow(expect.objectContaining({ code: 'BAD_CHECKPOINT' }));
    expect(decode).toThrow(message);
    expect(decode).toThrow(/^000012\/manifest\.json: /);
  });

  test('a shard that was lost counts as listed', () => {
    const lost = { ...draft(), shards: [draft().shards[0]!], lost: [{ pool: 'embedding', shard: 1 }] };
    expect(decodeManifest(encodeManifest(lost), 12).lost).toEqual([{ pool: 'embedding', shard: 1 }]);
  });
});

test('mutated manifests are refused, sealed ones never break anything else', () => {
  const next = random(3);
  const good = encodeManifest(draft());
  const body = good.subarray(good.indexOf(0x0a) + 1);
  for (let run = 0; run < 5000; run++) {
    const changed = good.slice();
    changed[next() % changed.length]! ^= 1 << (next() % 8);
    expect(() => decodeManifest(changed, 12)).toThrow(expect.objectContaining({ code: 'BAD_CHECKPOINT' }));
    const text = body.slice();
    for (let change = 0; change < 3; change++) text[next() % text.length] = body[next() % body.length]!;
    const sha256 = createHash('sha256').update(text).digest('hex');
    const file = Buffer.concat([Buffer.from(`{"sha256": "${sha256}",\n`), text]);
    try {
      decodeManifest(file, 12);
    } catch (error) {
      expect(error).toBeInstanceOf(KintsugiError);
      expect(error).toMatchObject({ code: 'BAD_CHECKPOINT' });
    }
  }
});
