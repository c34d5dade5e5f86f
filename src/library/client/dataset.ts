/** A data set of the job, as one worker sees it: leases of ranges of its samples, and what became of them. */

import { KintsugiError } from '../../common/errors.js';
import type { MessageOf } from '../../protocol/messages.js';
import type { DatasetSpec, DatasetStatus, SampleRange } from '../../protocol/samples.js';
import type { Client } from './client.js';
import { internalsOf } from './connected.js';
import type { Session } from './session.js';

export {
  type DatasetSpec,
  type DatasetStatus,
  type SampleRange,
  type SetAside,
  UNBOUNDED,
} from '../../protocol/samples.js';

/** A range that this worker holds until it releases or loses it. */
export interface RangeLease {
  id: number;
  range: SampleRange;
  /** The client that its batches are pushed as (see sequence.ts). */
  session: number;
  /** Batches that are durable: whoever did them, they need not be done again. */
  done: number;
  /** Batches that somebody has begun; those above `done` may have been applied at some shards. */
  begun: number;
  /** Without a report for so long the range goes to another worker. */
  leaseMs: number;
}

export interface Outcome
  extends Pick<MessageOf<'release'>, 'outcome' | 'done' | 'begun' | 'samples' | 'redone'> {
  batch?: number;
  code?: KintsugiError['code'];
  message?: string;
}

export class Dataset {
  private constructor(
    private readonly session: Session,
    readonly name: string,
    /** As the first worker registered it. */
    readonly spec: DatasetSpec,
  ) {}

  /**
   * Registers the data set, or joins it. @throws BAD_ARGUMENT when it is registered with other files or
   * another batch size
   */
  static async open(client: Client, name: string, spec: DatasetSpec): Promise<Dataset> {
    const { session } = internalsOf(client);
    const reply = await session.ask((id) => ({ t: 'openDataset', id, name, spec }));
    if (reply.t !== 'datasetOpened') throw unexpected(reply);
    if (reply.code || !reply.spec) {
      throw new KintsugiError(reply.code ?? 'INTERNAL', reply.message ?? 'the data set could not be opened');
    }
    return new Dataset(session, name, reply.spec);
  }

  /**
   * The status of a data set; undefined: nobody has registered it. `limitMs`: so long the scheduler is waited
   * for; undefined: as long as it takes. @throws UNREACHABLE, CLOSED
   */
  static async status(client: Client, name: string, limitMs?: number): Promise<DatasetStatus | undefined> {
    const reply = await internalsOf(client).session.ask((id) => ({ t: 'datasetStatus', id, name }), limitMs);
    if (reply.t !== 'datasetReply') throw unexpected(reply);
    return reply.status;
  }

  /** Says how far whole lines of files that grow go. Resolves with what is durable, also from others. */
  async extend(sizes: readonly number[]): Promise<number[]> {
    const { name } = this;
    const reply = await this.session.ask((id) => ({ t: 'extendDataset', id, name, sizes: [...sizes] }));
    if (reply.t !== 'datasetExtended') throw unexpected(reply);
    if (reply.code)
      throw new KintsugiError(reply.code, reply.message ?? 'the data set could not be extended');
    return reply.sizes;
  }

  /**
   * Waits for a range; undefined when every range is finished or set aside. `clock`: batches this worker has
   * made durable
   */
  async acquire(clock: number): Promise<RangeLease | undefined> {
    const { name } = this;
    const reply = await this.session.ask((id) => ({ t: 'acquire', id, name, clock }));
    if (reply.t !== 'acquired') throw unexpected(reply);
    const { id, range, session, done, begun, leaseMs } = reply;
    return range && { id, range, session, done, begun, leaseMs };
  }

  /** Keeps the lease. There is no answer: the next report replaces one that is lost. */
  report({ id, range }: RangeLease, done: number, begun: number, clock: number): void {
    const { name } = this;
    this.session.tell({ t: 'rangeProgress', name, number: range.number, lease: id, done, begun, clock });
  }

  /** Ends the lease. Resolves when that is durable. */
  async release({ id: lease, range, session }: RangeLease, outcome: Outcome): Promise<void> {
    const { name } = this;
    const what = { name, number: range.number, lease, session };
    await this.session.ask((id) => ({ t: 'release', id, ...what, ...outcome }));
  }

  /**
   * Waits until this worker may begin another batch. Returns the count of begun batches up to which it may go
   * on.
   */
  async advance(clock: number): Promise<number> {
    const { name } = this;
    const reply = await this.session.ask((id) => ({ t: 'advance', id, name, clock }));
    if (reply.t !== 'advanced') throw unexpected(reply);
    return reply.until;
  }

  /** Sets the function that gives this worker's progress in its ranges, for a checkpoint of one instant. */
  onHold(works: () => [lease: RangeLease, done: number, begun: number, clock: number][]): void {
    const { name } = this;
    this.session.holding.reports = () =>
      works().map(([{ id: lease, range }, done, begun, clock]) => {
        return { name, number: range.number, lease, done, begun, clock };
      });
  }

  /** Calls back when a range was given to somebody else. */
  onLost(lost: (range: number, lease: number) => void): void {
    this.session.onRangeLost = ({ name, number, lease }) => {
      if (name === this.name) lost(number, lease);
    };
  }
}

function unexpected(reply: { t: string }): KintsugiError {
  return new KintsugiError('INTERNAL', `unexpected answer "${reply.t}"`);
}
