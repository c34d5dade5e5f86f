/**
 * The pulls of a shard. A pull waits here for the shard to become active or for lost blocks: bounded, and
 * with a deadline. Its answer is charged to its client before it is gathered; without room for it the pull
 * waits at the node (`AnswerRoom`).
 */
import { type NativeShard, PushStatus } from '../../engine/native.js';
import type { PeerId } from '../../protocol/map.js';
import type { Refusal } from '../../protocol/messages.js';
import { type WaitingEntry, WaitingList } from '../shared/waiting-list.js';
import type { AnswerMemory, OwnerHost, PullItem, PullOwner, RowsBuffer } from './host.js';
import { REFUSALS } from './refusals.js';

/** The shard whose pulls they are. */
export interface PulledShard {
  readonly phase: string;
  readonly native: NativeShard;
  /** True: absent blocks of this shard stay absent. */
  readonly unrecoverable: boolean;
  /** A pull waits for the blocks that the engine found absent last. */
  demandMissing(): void;
}

export class Pulls implements PullOwner {
  private readonly list: WaitingList<PullItem>;

  constructor(
    private readonly shard: PulledShard,
    private readonly host: OwnerHost,
  ) {
    const maxCount = host.policy.maxParked;
    this.list = new WaitingList({ maxCount, account: host.waiting, atLimit: 'refuse' });
  }

  /** Pulls wait for the shard or for blocks. */
  get any(): boolean {
    return this.list.length > 0;
  }

  onPull(pull: PullItem, section: Uint8Array, buffer: RowsBuffer | undefined): void {
    const outcome = this.shard.phase === 'ACTIVE' ? this.attempt(pull, section, buffer) : 'absent';
    if (outcome === 'absent') this.park(pull, section, false);
    else if (outcome === 'full') this.waitForRoom(pull, section, false);
  }

  serveCharged(pull: PullItem, section: Uint8Array, own?: AnswerMemory): void {
    const outcome = this.gather(pull, section, undefined, own);
    if (outcome === 'absent') this.park(pull, section, true);
    else this.over(pull);
  }

  readSlice(pull: PullItem, section: Uint8Array, slice: Uint8Array, memory: Uint8Array, at: number): boolean {
    const rows = this.shard.native.pull(slice, memory, at);
    if (typeof rows !== 'number') return true;
    if (this.notRead(pull, rows) === 'absent') this.park(pull, section, true);
    else this.over(pull);
    return false;
  }

  serveSliced(pull: PullItem, rows: Uint8Array): void {
    const { client, id, item } = pull;
    this.host.answerAlone(client, id, item, rows);
    this.over(pull);
  }

  /** Answers what can be answered now; asks for the blocks that the rest needs. */
  serve(): void {
    const full: WaitingEntry<PullItem>[] = [];
    this.list.retain((entry) => {
      const outcome = this.attempt(entry.item, entry.parts[0]!);
      if (outcome === 'absent') return true;
      if (outcome === 'full') full.push(entry);
      else this.over(entry.item);
      return false;
    });
    for (const { item, parts } of full) this.waitForRoom(item, parts[0]!, true);
  }

  /** `absent`: it needs blocks, which have been asked for. `full`: there is no room for its answer. */
  private attempt(pull: PullItem, section: Uint8Array, buffer?: RowsBuffer): 'done' | 'absent' | 'full' {
    if (pull.bytes > this.host.policy.maxRowsBytes) {
      this.reject(pull, 'LIMIT');
      return 'done';
    }
    return this.host.answers.take(pull) ? this.gather(pull, section, buffer) : 'full';
  }

  /** The answer is charged. With `own` memory it is a message of its own. */
  private gather(
    pull: PullItem,
    section: Uint8Array,
    buffer?: RowsBuffer,
    own?: AnswerMemory,
  ): 'done' | 'absent' {
    const { client, id, item } = pull;
    const to = own ?? buffer;
    const rows = this.shard.native.pull(section, to?.memory, to?.at);
    if (typeof rows !== 'number') {
      to?.took(rows);
      if (own) this.host.answerAlone(client, id, item, rows);
      else this.host.answer(client, id, item, rows);
      return 'done';
    }
    own?.drop();
    this.host.answers.giveBack(pull);
    return this.notRead(pull, rows);
  }

  /** The engine has answered with a status instead of rows. */
  private notRead(pull: PullItem, status: number): 'done' | 'absent' {
    if (status === PushStatus.ABSENT) {
      this.shard.demandMissing();
      return 'absent';
    }
    this.reject(pull, REFUSALS[status] ?? 'INTERNAL');
    return 'done';
  }

  /** `waited`: it does not come right from its client. */
  private park(pull: PullItem, section: Uint8Array, waited: boolean): void {
    if (this.shard.unrecoverable) this.refuse(pull, 'UNRECOVERABLE', waited);
    else if (!this.list.add(pull, [section], pull.since)) this.refuse(pull, 'LIMIT', waited);
    else if (!waited) this.host.meter.pull.waits();
  }

  private waitForRoom(pull: PullItem, section: Uint8Array, waited: boolean): void {
    if (!this.host.answers.wait(this, pull, section)) this.refuse(pull, 'LIMIT', waited);
    else if (!waited) this.host.meter.pull.waits();
  }

  private refuse(pull: PullItem, code: Refusal, waited: boolean): void {
    if (waited) this.over(pull);
    this.reject(pull, code);
  }

  /** A pull that has waited is answered or rejected. */
  private over({ at }: PullItem): void {
    const { meter } = this.host;
    meter.pull.waited(meter.at - at);
  }

  private reject({ client, id, item }: PullItem, code: Refusal): void {
    this.host.meter.pull.fails(code);
    this.host.out.send(client, { t: 'reject', id, items: [[item, code]] });
  }

  expire(pull: PullItem): void {
    this.refuse(pull, 'TIMEOUT', true);
  }

  tick(): void {
    for (const { item } of this.list.takeBefore(this.host.now - this.host.policy.parkedPullMs))
      this.expire(item);
  }

  rejectAll(code: Refusal): void {
    for (const { item } of this.list.takeAll()) this.refuse(item, code, true);
  }

  /** The link of a client is closed: its pulls are dropped, and it asks again. */
  gone(client: PeerId): void {
    this.list.retain(({ item }) => item.client !== client);
  }

  /** Drops all pulls: the shard has another owner, and clients ask that one. */
  clear(): void {
    this.list.takeAll();
  }
}
