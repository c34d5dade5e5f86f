/**
 * Messages that name a newer map than the node has. Beyond the limits the oldest ones are dropped: the
 * protocol repeats everything.
 */
import type { PeerId } from '../../protocol/map.js';
import type { MessageTo } from '../../protocol/senders.js';
import { knownFields } from '../../protocol/validate.js';
import type { Policy } from '../shared/policy.js';
import type { WaitingBytes } from '../shared/waiting-bytes.js';
import { WaitingList } from '../shared/waiting-list.js';
import { headerBytesOf } from './requests.js';

interface WaitingMessage {
  from: PeerId;
  message: MessageTo<'node'>;
  parts: readonly Uint8Array[];
}

export class WaitingMessages {
  private readonly list: WaitingList<{ from: PeerId; message: MessageTo<'node'> }>;

  constructor(policy: Policy, account: WaitingBytes) {
    this.list = new WaitingList({ maxCount: policy.maxParked, account, atLimit: 'dropOldest' });
  }

  add(from: PeerId, message: MessageTo<'node'>, parts: readonly Uint8Array[]): void {
    this.list.add({ from, message: knownFields(message) }, parts, 0, headerBytesOf(message));
  }

  /** The link of a client is closed: its pulls are dropped, and the client asks again. */
  gone(client: PeerId): void {
    this.list.retain(({ item: { from, message } }) => from !== client || message.t !== 'pull');
  }

  takeAll(): WaitingMessage[] {
    return this.list.takeAll().map(({ item, parts }) => ({ ...item, parts }));
  }
}
