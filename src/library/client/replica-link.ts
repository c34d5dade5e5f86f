/** A connection of a client to one replica: reads, each of which is answered, refused or given up in time. */
import { describe, KintsugiError } from '../../common/errors.js';
import { parseAddress } from '../../net/address.js';
import { type ClientTls, dial, GONE_MS, type Link } from '../../net/transport/index.js';
import type { Message, MessageOf } from '../../protocol/messages.js';
import { checkSender } from '../../protocol/senders.js';
import { toMessage } from '../../protocol/validate.js';

/** A replica that does not answer for so long is given up for this read. */
const READ_MS = 1000;

/** Identity and secrets that every connection of a client shows. */
export interface ReplicaAccess {
  /** Id of this client. */
  readonly peer: number;
  readonly job: string;
  readonly token: string | undefined;
  readonly tls: ClientTls | undefined;
}

/** The rows are copied before this returns. */
type TakeRows = (answer: MessageOf<'readRows'>, rows: Uint8Array) => void;

interface WaitingPull {
  take: TakeRows;
  resolve(): void;
  reject(error: Error): void;
  timer: NodeJS.Timeout;
}

export class ReplicaLink {
  private link: Promise<Link> | undefined;
  private readonly waiting = new Map<number, WaitingPull>();
  private next = 1;
  private closed = false;

  constructor(
    private readonly address: string,
    private readonly access: ReplicaAccess,
  ) {}

  /** @throws UNREACHABLE, TIMEOUT, CLOSED, and the code with which the replica refuses */
  async read(
    message: Omit<MessageOf<'read'>, 't' | 'id'>,
    sections: Uint8Array,
    take: TakeRows,
  ): Promise<void> {
    this.link ??= this.connect();
    const link = await this.link.catch((error: unknown) => {
      this.link = undefined;
      throw error;
    });
    const id = this.next++;
    await new Promise<void>((resolve, reject) => {
      const late = new KintsugiError('TIMEOUT', `the replica at ${this.address} does not answer`);
      const timer = setTimeout(() => this.settle(id, late), READ_MS);
      this.waiting.set(id, { take, resolve, reject, timer });
      if (!link.send({ t: 'read', id, ...message }, [sections])) this.settle(id, this.lost('it is closed'));
    });
  }

  private async connect(): Promise<Link> {
    const { peer, job, token, tls } = this.access;
    const link = await dial({
      ...{ ...parseAddress(this.address), token, tls, timeoutMs: READ_MS },
      handlers: {
        onOpen: () => {},
        onMessage: (_, header, parts) => this.receive(toMessage(header), parts),
        onClose: (closing, reason) => this.onClose(closing, reason),
        onError: () => {},
      },
    });
    if (this.closed) {
      link.close('closing');
      throw this.lost('the client is closed');
    }
    link.watch(Number.POSITIVE_INFINITY, GONE_MS);
    link.send({ t: 'hello', peer, inc: 0, job });
    return link;
  }

  private receive(message: Message, parts: readonly Uint8Array[]): void {
    checkSender('replica', 'client', message.t);
    if (message.t === 'readRefused') {
      this.settle(message.id, new KintsugiError(message.code, message.message));
    } else if (message.t === 'readRows') {
      const waiting = this.waiting.get(message.id);
      if (!waiting) return;
      try {
        waiting.take(message, parts[0] ?? new Uint8Array(0));
        this.settle(message.id);
      } catch (error) {
        const own = error instanceof KintsugiError ? error : undefined;
        this.settle(message.id, own ?? new KintsugiError('BAD_FRAME', describe(error), { cause: error }));
        if (own?.code !== 'BAD_ARGUMENT') throw error;
      }
    }
  }

  private settle(id: number, error?: KintsugiError): void {
    const waiting = this.waiting.get(id);
    if (!waiting) return;
    this.waiting.delete(id);
    clearTimeout(waiting.timer);
    if (error) waiting.reject(error);
    else waiting.resolve();
  }

  private lost(reason: string): KintsugiError {
    return new KintsugiError('UNREACHABLE', `the replica at ${this.address}: ${reason}`);
  }

  private onClose(_: Link, reason: string): void {
    this.link = undefined;
    for (const id of [...this.waiting.keys()]) this.settle(id, this.lost(reason));
  }

  close(): void {
    this.closed = true;
    void this.link?.then((link) => link.close('closing')).catch(() => {});
    for (const id of [...this.waiting.keys()]) this.settle(id, this.lost('the client is closed'));
  }
}
