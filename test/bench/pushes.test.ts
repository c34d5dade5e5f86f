/** The load of the chaos run is only evidence if it is the same every time and its checks can fail. */
import { expect, test } from 'vitest';
import { appliedPushes } from '../../bench/chaos/crashers.js';
import { OWN, PushStream, prefixSum } from '../../bench/chaos/pushes.js';
import type { Client, PullRequest } from '../../src/library/client/client.js';

/** Own rows as a table would hold them; `change` spoils what is read. */
class OwnRows {
  private readonly sums = new Map<bigint, number>();

  apply({ requests }: ReturnType<PushStream['next']>): void {
    const { keys, gradients } = requests[0]!;
    for (const [i, key] of keys.entries())
      this.sums.set(key, (this.sums.get(key) ?? 0) + gradients[i * OWN.dim]!);
  }

  client(change: (row: Float32Array) => void = () => {}): Client {
    const pull = async ([request]: PullRequest[]) => {
      const rows = new Float32Array(request!.keys.length * OWN.dim);
      for (const [i, key] of request!.keys.entries())
        rows.fill(this.sums.get(key) ?? 0, i * OWN.dim, (i + 1) * OWN.dim);
      change(rows);
      return [rows];
    };
    return { pull } as unknown as Client;
  }
}

test('a seed, a client and a number give a push', () => {
  const streams = [new PushStream(5, 1, 1000), new PushStream(5, 1, 1000), new PushStream(5, 2, 1000)];
  for (let i = 0; i < 20; i++) {
    const [first, again, other] = streams.map((stream) => stream.next().requests);
    expect(again).toEqual(first);
    expect(other).not.toEqual(first);
  }
});

test('prefix sums of the weights tell numbers of pushes apart', () => {
  const sums = Array.from({ length: 100 }, (_, n) => prefixSum(n));
  expect(sums[0]).toBe(0);
  expect([...sums].sort((a, b) => a - b)).toEqual(sums);
  expect(new Set(sums).size).toBe(sums.length);
});

test('a check accepts what is under way and rejects what is lost, repeated or torn', async () => {
  const stream = new PushStream(1, 0, 1000);
  const rows = new OwnRows();
  const pushes = Array.from({ length: 60 }, () => stream.next());
  for (const push of pushes) {
    rows.apply(push);
    push.done();
  }
  expect(await stream.check(rows.client(), true)).toBeUndefined();
  const open = stream.next();
  expect(await stream.check(rows.client(), true)).toBeUndefined();
  rows.apply(open);
  expect(await stream.check(rows.client(), true)).toBeUndefined();
  open.done();
  expect(await stream.check(rows.client(), true)).toBeUndefined();
  rows.apply(open);
  expect(await stream.check(rows.client(), true)).toMatch(/holds \d+, which no prefix/);

  const late = stream.next();
  late.done();
  expect(await stream.check(rows.client(), true)).toMatch(/which no prefix/);
  const torn = await stream.check(
    rows.client((values) => {
      values[1]! += 1;
    }),
    true,
  );
  expect(torn).toMatch(/is torn/);
});

test('a push of a killed client is lost only if it was acknowledged itself', () => {
  const SHARDS = 54;
  const PUSHES = 60;
  const stream = () => new PushStream(1, 0, 1000, true);
  const shardOf = new Map([...stream().keys()].map((key) => [key, Number(key & 0xffn) % SHARDS]));
  const shards = Array.from({ length: PUSHES }, () => stream()).map((each, index) => {
    for (let push = 0; push < index; push++) each.next();
    return new Set(Array.from(each.next().requests[0]!.keys, (key) => shardOf.get(key)!));
  });
  // One shard stops at the first push that touches it again after the tenth.
  const [stopped] = shards[10]!;
  const acknowledged = new Map<number, number>();
  const applied = new Array<number>(SHARDS).fill(0);
  for (const [index, touched] of shards.entries()) {
    const isStuck = index >= 10 && touched.has(stopped!);
    if (!isStuck) acknowledged.set(index + 1, 0);
    for (const shard of touched) if (!isStuck || shard !== stopped) applied[shard]!++;
  }
  expect(acknowledged.size).toBeGreaterThan(11 + 4);
  const { lost, sums } = appliedPushes(stream(), shardOf, applied, acknowledged);
  expect(lost).toEqual([]);
  expect(sums.size).toBeGreaterThan(100);
  acknowledged.set(11, 0);
  expect(appliedPushes(stream(), shardOf, applied, acknowledged).lost).toEqual([11]);
});
