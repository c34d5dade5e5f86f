// Memory that two processes share: mapped, checked, and gone.
import { readFileSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { SharedFrameMemory, SharedMemory } from '../../../src/training/gateway/memory.js';
import { codeOf } from '../../codes.js';
import { native } from '../../engine/native.support.js';
import { temporaryDirectory } from '../../roles/support.js';

const BYTES = 8192;

function file(bytes = BYTES): string {
  const path = join(temporaryDirectory(), 'memory');
  writeFileSync(path, new Uint8Array(bytes));
  return path;
}

it('both sides see what either writes', () => {
  const path = file();
  const memory = new SharedMemory({ path, bytes: BYTES });
  memory.floats(64, 2).set([1.5, -2]);
  memory.keys(8, 1)[0] = 7n;
  const seen = readFileSync(path);
  expect([seen.readFloatLE(64), seen.readFloatLE(68), seen.readBigUInt64LE(8)]).toEqual([1.5, -2, 7n]);
  const other = new SharedMemory({ path, bytes: BYTES });
  expect([...other.floats(64, 2)]).toEqual([1.5, -2]);
  memory.close();
  expect([...other.floats(64, 2)]).toEqual([1.5, -2]);
  other.close();
});

it('every place must lie in the memory, where numbers may lie', () => {
  const memory = new SharedMemory({ path: file(), bytes: BYTES });
  const inFrame = new SharedFrameMemory(Buffer.alloc(BYTES + 1).subarray(1));
  for (const each of [memory, inFrame]) {
    expect(each.keys(BYTES - 8, 1)).toHaveLength(1);
    expect(each.floats(BYTES, 0)).toHaveLength(0);
    const wrong = [
      () => each.keys(4, 1),
      () => each.keys(-8, 1),
      () => each.keys(BYTES, 1),
      () => each.keys(0, BYTES / 8 + 1),
      () => each.keys(0, -1),
      () => each.keys(0.5, 1),
      () => each.keys(8, 2 ** 53),
      () => each.floats(2, 1),
      () => each.floats(BYTES - 4, 2),
      () => each.floats(Number.NaN, 1),
      () => each.floats(0, Number.POSITIVE_INFINITY),
    ];
    for (const call of wrong) expect(codeOf(call)).toBe('BAD_ARGUMENT');
  }
  memory.close();
});

it('after the end every view is empty, and nothing can be asked of it', () => {
  const memory = new SharedMemory({ path: file(), bytes: BYTES });
  const rows = memory.floats(0, 100);
  memory.close();
  memory.close();
  expect(rows.length).toBe(0);
  expect(codeOf(() => memory.floats(0, 1))).toBe('BAD_ARGUMENT');
});

it('memory of another process than the program is refused', () => {
  const path = file();
  const place = { path, bytes: BYTES, nonceAt: 64 };
  writeFileSync(path, Buffer.alloc(BYTES).fill('abcd', 64, 68));
  new SharedMemory({ ...place, nonce: '61626364' }).close();
  expect(codeOf(() => new SharedMemory({ ...place, nonce: '61626365' }))).toBe('BAD_ARGUMENT');
  expect(codeOf(() => new SharedMemory({ ...place, nonce: '6162', nonceAt: BYTES }))).toBe('BAD_ARGUMENT');
});

it('a word says that what was asked with is read', () => {
  const memory = new SharedMemory({ path: file(), bytes: BYTES });
  const mark = memory.marker(128);
  expect(memory.keys(128, 1)[0]).toBe(0n);
  mark();
  expect(memory.keys(128, 1)[0]).toBe(1n);
  expect(codeOf(() => memory.marker(2))).toBe('BAD_ARGUMENT');
  expect(codeOf(() => memory.marker(BYTES))).toBe('BAD_ARGUMENT');
  memory.close();
});

it('what could end the process, or is no memory, is refused', () => {
  const path = file();
  expect(codeOf(() => native.mapShared(path, BYTES, true))).toBe('BAD_ARGUMENT');
  expect(codeOf(() => native.mapShared(path, BYTES + 1, false))).toBe('BAD_ARGUMENT');
  truncateSync(path, 10);
  expect(codeOf(() => native.mapShared(path, BYTES, false))).toBe('BAD_ARGUMENT');
  expect(codeOf(() => native.mapShared('/nowhere', BYTES, false))).toBe('UNREACHABLE');
  expect(codeOf(() => native.mapShared('/dev/null', BYTES, false))).toBe('BAD_ARGUMENT');
  expect(codeOf(() => native.mapShared(path, 0, false))).toBe('BAD_ARGUMENT');
  expect(codeOf(() => native.mapShared(7 as unknown as string, 8, false))).toBe('BAD_ARGUMENT');
  expect(codeOf(() => native.unmapShared(7 as unknown as ArrayBuffer))).toBe('BAD_ARGUMENT');
});
