/** The scheduler's machine for samples with a ledger and a disk, for tests. */

import { expect } from 'vitest';
import { Ledger } from '../../../src/core/scheduler/ledger.js';
import type { SamplesPolicy } from '../../../src/core/scheduler/samples/policy.js';
import { Samples, type SamplesMessage } from '../../../src/core/scheduler/samples/samples.js';
import { newJob } from '../../../src/core/scheduler/state.js';
import { type EventFields, fieldsOf, isEventKind } from '../../../src/protocol/events.js';
import type { Message, MessageOf } from '../../../src/protocol/messages.js';
import { type DatasetSpec, UNBOUNDED } from '../../../src/protocol/samples.js';
import { Disk, type DiskWrite } from '../../../src/sim/disk.js';

export const SPEC: DatasetSpec = {
  files: [
    { name: 'a.tsv', size: 100, rangeBytes: 40 },
    { name: 'b.tsv', size: 80, rangeBytes: 40 },
  ],
  ...{ batch: 4, epochs: 2, seed: 1, shuffle: false, staleness: UNBOUNDED },
};
/** The same files, when they grow. */
export const FOLLOWED: DatasetSpec = {
  ...{ ...SPEC, follow: true, epochs: 1 },
  files: SPEC.files.map((file) => ({ ...file, size: 0 })),
};
export const POLICY: SamplesPolicy = {
  ...{ leaseMs: 1000, reconnectMs: 100, silentMs: 500, maxRangeFailures: 3, maxUnsavedBatches: 4 },
};

/** The machine with its ledger; what it decides becomes durable when a test says so. */
export class Book {
  readonly sent: [to: number, message: Message][] = [];
  readonly events: string[] = [];
  /** The newest of each name, with what is kept of it. */
  readonly kept = new Map<string, EventFields>();
  private ledger: Ledger;
  private samples: Samples;
  private readonly disk = new Disk(() => ({ ...newJob('j', 1, []), nextPeer: 100 }));
  private writing: DiskWrite | undefined;
  private now = 1;
  private nextId = 1;

  constructor(
    private readonly policy: SamplesPolicy = POLICY,
    /** Decisions wait for `save`. */
    private readonly slow = false,
  ) {
    [this.ledger, this.samples] = this.start();
    this.samples.tick(this.now, 0);
    this.settle();
  }

  private start(): [Ledger, Samples] {
    const ledger = new Ledger(this.disk.read(), !this.disk.used);
    return [ledger, new Samples(ledger, this.policy)];
  }

  private settle(): void {
    this.run();
    if (!this.slow) this.save();
  }

  private run(): void {
    for (const effect of this.ledger.commit()) {
      if (effect.kind === 'persist') this.writing = effect;
      else if (effect.kind === 'send') this.sent.push([effect.to, effect.message]);
      else if (effect.kind === 'event') {
        this.events.push(effect.name);
        if (isEventKind(effect.name)) this.kept.set(effect.name, fieldsOf(effect.name, effect.fields));
      }
    }
  }

  /** Everything decided so far is on the disk. */
  save(): void {
    for (let write = this.writing; write; write = this.writing) {
      this.writing = undefined;
      this.disk.write(write.changes);
      this.ledger.persisted(write.version);
      this.run();
    }
  }

  crash(): void {
    this.writing = undefined;
    [this.ledger, this.samples] = this.start();
    this.samples.tick(this.now, 0);
    this.settle();
  }

  tell(from: number, message: SamplesMessage): void {
    this.samples.receive(from, message);
    this.settle();
  }

  later(ms: number): void {
    this.now += ms;
    this.samples.tick(this.now, 0);
    this.settle();
  }

  closed(worker: number): void {
    this.samples.closed(worker);
    this.settle();
  }

  attached(worker: number): void {
    this.samples.attached(worker);
  }

  open(from: number, spec: DatasetSpec = SPEC, name = 'd'): MessageOf<'datasetOpened'> {
    const id = this.nextId++;
    this.tell(from, { t: 'openDataset', id, name, spec });
    return this.answer(from, 'datasetOpened', id)!;
  }

  /** Asks for a range; `undefined`: the answer has to wait. */
  acquire(from: number, clock = 0, id = this.nextId++): MessageOf<'acquired'> | undefined {
    this.tell(from, { t: 'acquire', id, name: 'd', clock });
    return this.answer(from, 'acquired', id);
  }

  report(from: number, { range, id }: MessageOf<'acquired'>, done: number, begun = done, clock = done): void {
    const number = range?.number ?? -1;
    this.tell(from, { t: 'rangeProgress', name: 'd', number, lease: id, done, begun, clock });
  }

  release(
    from: number,
    { range, id: lease, session }: MessageOf<'acquired'>,
    outcome: MessageOf<'release'>['outcome'],
    fields: Partial<MessageOf<'release'>> = {},
  ): void {
    const id = this.nextId++;
    const counts = { done: 0, begun: 0, samples: 10, redone: 0 };
    const number = range?.number ?? -1;
    this.tell(from, { t: 'release', id, name: 'd', number, lease, session, outcome, ...counts, ...fields });
    if (!this.slow) expect(this.answer(from, 'released', id)).toBeDefined();
  }

  answer<T extends Message['t']>(to: number, t: T, id: number): MessageOf<T> | undefined {
    return this.sent.find(
      ([peer, message]) => peer === to && message.t === t && (message as { id?: number }).id === id,
    )?.[1] as MessageOf<T> | undefined;
  }

  /** The newest `acquired` that a worker got. */
  given(to: number): MessageOf<'acquired'> | undefined {
    return this.sent.findLast(([peer, message]) => peer === to && message.t === 'acquired')?.[1] as
      | MessageOf<'acquired'>
      | undefined;
  }

  lostTo(to: number): number[] {
    return this.sent.flatMap(([peer, message]) =>
      peer === to && message.t === 'rangeLost' ? [message.number] : [],
    );
  }

  status(): NonNullable<MessageOf<'datasetReply'>['status']> {
    const id = this.nextId++;
    this.tell(1, { t: 'datasetStatus', id, name: 'd' });
    return this.answer(1, 'datasetReply', id)!.status!;
  }

  /** Once everything is on the disk. */
  settled(): ReturnType<Book['status']> {
    this.save();
    return this.status();
  }

  /** How far the whole lines of the files go; what is known then. */
  extend(from: number, ...sizes: number[]): number[] | undefined {
    const id = this.nextId++;
    this.tell(from, { t: 'extendDataset', id, name: 'd', sizes });
    return this.answer(from, 'datasetExtended', id)?.sizes;
  }

  /** On the disk. */
  get openSessions(): number[] {
    return [...this.disk.state.sessions.keys()];
  }
}
