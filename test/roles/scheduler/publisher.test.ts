/** Manifests of jobs that share a place: what one lists, the other one must not remove. */
import { expect, test, vi } from 'vitest';
import type { PublishAnswer } from '../../../src/core/scheduler/ledger.js';
import { manifestName } from '../../../src/protocol/checkpoints.js';
import { Publisher } from '../../../src/roles/scheduler/publisher.js';
import {
  checkpointNumbers,
  publishCheckpoint,
  readManifest,
} from '../../../src/stores/checkpoint/checkpoints.js';
import { DirectoryPlace } from '../../../src/stores/checkpoint/directory.js';
import { keepNewest } from '../../../src/stores/checkpoint/retention.js';
import { draftOf, temporaryDirectory, writeShards } from '../../stores/checkpoint/support.js';
import { EventLog } from '../support.js';

test('a first checkpoint that adds to files is refused where another job came between', async () => {
  const url = temporaryDirectory();
  const place = new DirectoryPlace(url);
  const before = await writeShards(place, 1);
  await publishCheckpoint(place, draftOf(1, before));
  // The other job keeps one checkpoint, and is about to remove what it does not list.
  const other = { ...draftOf(2, await writeShards(place, 2)), attempt: 'bbbbbbbb' };
  await publishCheckpoint(place, other);
  const { createdAt: _, ...draft } = draftOf(3, before);
  const answer = await new Promise<PublishAnswer>((resolve) => {
    const publisher = new Publisher(new EventLog(), resolve);
    publisher.publish({ kind: 'publish', token: 7, url, keep: 1, ageMs: 0, draft });
  });
  expect(answer).toMatchObject({ kind: 'publishFailed', token: 7, code: 'CHECKPOINT_TAKEN', newest: 2 });
  expect(await checkpointNumbers(place)).toEqual([1, 2]);
});

test('a manifest that another job has overtaken meanwhile is taken back', async () => {
  const url = temporaryDirectory();
  const place = new DirectoryPlace(url);
  const [own, other] = [await writeShards(place, 1), await writeShards(place, 2)];
  // The other job publishes its checkpoint and looks what it can remove, just before ours is written.
  const put = DirectoryPlace.prototype.put;
  let overtaken = false;
  vi.spyOn(DirectoryPlace.prototype, 'put').mockImplementation(async function (
    this: DirectoryPlace,
    ...args: Parameters<DirectoryPlace['put']>
  ) {
    if (args[0] === manifestName(1) && !overtaken) {
      overtaken = true;
      await publishCheckpoint(place, { ...draftOf(2, other), attempt: 'bbbbbbbb' });
    }
    return put.apply(this, args);
  });
  const answer = await new Promise<PublishAnswer>((resolve) => {
    const publisher = new Publisher(new EventLog(), resolve);
    const { createdAt: _, ...draft } = draftOf(1, own);
    publisher.publish({ kind: 'publish', token: 7, url, keep: 3, ageMs: 0, draft });
  });
  vi.restoreAllMocks();
  expect(overtaken).toBe(true);
  expect(answer).toMatchObject({ kind: 'publishFailed', token: 7, code: 'CHECKPOINT_TAKEN', newest: 2 });
  expect(await checkpointNumbers(place)).toEqual([2]);
  expect(await keepNewest(place, 3)).toMatchObject({ checkpoints: [], files: 2 });
});

test('a manifest has the time at which its state was taken, not the one at which it is written', async () => {
  const url = temporaryDirectory();
  const { createdAt: _, ...draft } = draftOf(1, await writeShards(new DirectoryPlace(url), 1));
  const latest = Date.now();
  await new Promise<PublishAnswer>((resolve) => {
    const publisher = new Publisher(new EventLog(), resolve);
    publisher.publish({ kind: 'publish', token: 1, url, keep: 1, ageMs: 600_000, draft });
  });
  const { createdAt } = await readManifest(new DirectoryPlace(url));
  expect(Date.parse(createdAt)).toBeGreaterThanOrEqual(latest - 600_000);
  expect(Date.parse(createdAt)).toBeLessThanOrEqual(Date.now() - 600_000);
});

test('older checkpoints are removed with two looks at the place and one at each manifest', async () => {
  const url = temporaryDirectory();
  const place = new DirectoryPlace(url);
  await publishCheckpoint(place, draftOf(1, await writeShards(place, 1)));
  const { createdAt: _, ...draft } = draftOf(2, await writeShards(place, 2));
  const looks = vi.spyOn(DirectoryPlace.prototype, 'list');
  const reads = vi.spyOn(DirectoryPlace.prototype, 'get');
  const log = new EventLog();
  const removed = log.next('checkpoint.removed');
  await new Promise<PublishAnswer>((resolve) => {
    const publisher = new Publisher(log, resolve);
    publisher.publish({ kind: 'publish', token: 1, url, keep: 1, ageMs: 0, draft });
  });
  expect(await removed).toMatchObject({ checkpoints: [1], files: 2 });
  expect([looks.mock.calls.length, reads.mock.calls.length]).toEqual([2, 2]);
  vi.restoreAllMocks();
  expect(await checkpointNumbers(place)).toEqual([2]);
});
