// The answer to a pull that has waited, in memory of its own.
import { expect, it } from 'vitest';
import type { OwnerHost, PullItem } from '../../../src/core/shard/host.js';
import { type PulledShard, Pulls } from '../../../src/core/shard/pulls.js';
import { DEFAULT_POLICY } from '../../../src/core/shared/policy.js';
import { WaitingBytes } from '../../../src/core/shared/waiting-bytes.js';
import { type NativeShard, PushStatus } from '../../../src/engine/native.js';

const BYTES = 64 << 10;
const PULL: PullItem = { client: 7, id: 1, first: 1, item: 0, bytes: BYTES, rows: 1, at: 0, since: 0 };

/** The engine says this: events of the memory and of the answer, in order. */
function served(engine: (memory: Uint8Array, at: number) => Uint8Array | number) {
  const log: string[] = [];
  const shard = {
    phase: 'ACTIVE',
    native: { pull: (_: Uint8Array, memory: Uint8Array, at: number) => engine(memory, at) },
    unrecoverable: false,
    demandMissing: () => void log.push('asked for blocks'),
  } as unknown as PulledShard & { native: NativeShard };
  const host = {
    policy: DEFAULT_POLICY,
    waiting: new WaitingBytes(1 << 20),
    answers: { giveBack: () => void log.push('charge given back') },
    meter: { at: 0, pull: { waited: () => void log.push('over'), fails() {} } },
    out: { send: (_: number, { t }: { t: string }) => void log.push(t) },
    answer: () => void log.push('copied'),
    answerAlone: (_client: number, _id: number, _item: number, rows: Uint8Array) =>
      void log.push(`sent ${rows.byteLength} at ${rows.byteOffset}`),
  } as unknown as OwnerHost;
  const pulls = new Pulls(shard, host);
  const own = {
    memory: new Uint8Array(BYTES + 8),
    at: 8,
    took: () => void log.push('took'),
    drop: () => void log.push('memory given up'),
  };
  pulls.serveCharged(PULL, new Uint8Array(8), own);
  return { log, waits: pulls.any };
}

it('is sent from where the engine has put its rows', () => {
  const { log, waits } = served((memory, at) => memory.subarray(at, at + BYTES));
  expect({ log, waits }).toEqual({ log: ['took', `sent ${BYTES} at 8`, 'over'], waits: false });
});

it('gives the memory up when rows are lost, and waits for them', () => {
  const { log, waits } = served(() => PushStatus.ABSENT);
  const given = ['memory given up', 'charge given back', 'asked for blocks'];
  expect({ log, waits }).toEqual({ log: given, waits: true });
});

it('gives the memory up when the engine refuses the pull', () => {
  const { log, waits } = served(() => PushStatus.BAD_ARGUMENT);
  expect({ log, waits }).toEqual({
    log: ['memory given up', 'charge given back', 'reject', 'over'],
    waits: false,
  });
});
