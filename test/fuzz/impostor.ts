/**
 * A client with a valid token that sends what it likes: valid-looking messages of every kind, in any order,
 * to the scheduler and to every PS, as itself and as others. A message that it may not send closes its
 * connection, and it comes back. impostor.test.ts runs it small. `npm run fuzz:senders` sends a million, or
 * KINTSUGI_MESSAGES of them, from seed KINTSUGI_SEED.
 */

import { parseAddress } from '../../src/net/address.js';
import { dial, type Link } from '../../src/net/transport/index.js';
import { packItems } from '../../src/protocol/items.js';
import { type ClusterMap, SCHEDULER } from '../../src/protocol/map.js';
import type { Message, MessageOf } from '../../src/protocol/messages.js';
import { maySend } from '../../src/protocol/senders.js';
import { toMessage } from '../../src/protocol/validate.js';
import { SAMPLES } from './frames.js';

export interface ImpostorOptions {
  scheduler: string;
  token: string;
  messages: number;
  seed: number;
}

export interface ImpostorReport {
  sent: number;
  /** Connections that the other side closed with FORBIDDEN. */
  forbidden: number;
  /** Kinds that were sent to a scheduler and to a PS. */
  kinds: [scheduler: number, ps: number];
}

type Header = Record<string, unknown>;
const KINDS = SAMPLES as readonly Message[];
/** Messages of one visit. Most visits end with one that is refused. */
const MOST_PER_VISIT = 60;
/** A question that both sides answer when they have handled what came before it. */
const LAST = 4_000_000_000;

export class Impostor {
  private state: number;
  private map: ClusterMap | undefined;
  private self: { id: number; proof: Uint8Array | undefined } | undefined;
  private readonly kinds = [new Set<string>(), new Set<string>()] as const;
  private sent = 0;
  private forbidden = 0;

  constructor(private readonly options: ImpostorOptions) {
    this.state = options.seed;
  }

  async run(): Promise<ImpostorReport> {
    while (this.sent < this.options.messages) {
      const nodes = this.map?.nodes ?? [];
      const target = this.below(nodes.length + 1);
      if (!this.self || target === 0) await this.visit('scheduler', this.options.scheduler);
      else await this.visit('node', nodes[target - 1]!.address);
    }
    const [one, other] = this.kinds;
    return { sent: this.sent, forbidden: this.forbidden, kinds: [one.size, other.size] };
  }

  /** Numbers below `limit` that are the same for the same seed. */
  private below(limit: number): number {
    this.state = (Math.imul(this.state, 1664525) + 1013904223) >>> 0;
    return Math.floor((this.state / 2 ** 32) * limit);
  }

  private of<T>(list: readonly T[]): T {
    return list[this.below(list.length)]!;
  }

  /** A connection, some messages, and the wait until they are handled or the other side has closed. */
  private async visit(role: 'scheduler' | 'node', address: string): Promise<void> {
    let end = () => {};
    const over = new Promise<void>((resolve) => {
      end = resolve;
    });
    let welcomed = () => {};
    const introduced = new Promise<void>((resolve) => {
      welcomed = resolve;
    });
    const link = await dial({
      ...parseAddress(address),
      token: this.options.token,
      handlers: {
        onOpen: () => {},
        onMessage: (_, header) => {
          // Groups are packed on the wire.
          if (header.t === 'welcome') this.learn(toMessage(header) as MessageOf<'welcome'>);
          if (header.t === 'stale') this.self = undefined;
          if (header.t === 'welcome' || header.t === 'stale') welcomed();
          if (header.id === LAST) end();
        },
        onClose: (_link, _reason, code) => {
          if (code === 'FORBIDDEN') this.forbidden++;
          welcomed();
          end();
        },
      },
    });
    // Now and then without an introduction, which nobody listens to.
    if (this.map && this.below(50) === 0) this.send(link, role, this.of(KINDS));
    else await this.introduce(link, role, introduced);
    for (let left = this.below(MOST_PER_VISIT); left > 0; left--) this.send(link, role, this.choose(role));
    if (role === 'scheduler') link.send({ t: 'status', id: LAST });
    else
      link.send({ t: 'pull', epoch: 0, id: LAST, items: packItems('pull', [[9999, 0, 8]]) }, [
        new Uint8Array(8),
      ]);
    await over;
    link.close();
  }

  private learn({ id, proof, map }: MessageOf<'welcome'>): void {
    this.self = { id, proof };
    this.map = map;
  }

  private async introduce(link: Link, role: 'scheduler' | 'node', introduced: Promise<void>): Promise<void> {
    const { self, map } = this;
    const proof = self?.proof && { proof: self.proof };
    if (role === 'node') {
      link.send({ t: 'hello', peer: self!.id, inc: 0, job: map!.job, ...proof });
      return;
    }
    link.send(self ? { t: 'attach', id: self.id, job: map!.job, ...proof } : { t: 'attach' });
    await introduced;
  }

  /** Mostly what a client may send: anything else ends the visit. */
  private choose(role: 'scheduler' | 'node'): Message {
    for (;;) {
      const sample = this.of(KINDS);
      // A goodbye ends the session, and the next one costs the scheduler a write.
      if (sample.t === 'detach' && this.below(10) > 0) continue;
      if (maySend('client', role, sample.t) || this.below(40) === 0) return sample;
    }
  }

  private send(link: Link, role: 'scheduler' | 'node', sample: Message): void {
    const header = this.forge(sample);
    const parts = Array.from({ length: this.below(3) }, () => this.part());
    if (sample.t === 'push' || sample.t === 'pull') this.fit(sample.t, header, parts);
    link.send(header, parts);
    this.kinds[role === 'scheduler' ? 0 : 1].add(sample.t);
    this.sent++;
  }

  /** One part, and items of a group that fill it, more often than not. */
  private fit(t: 'push' | 'pull', header: Header, parts: Uint8Array[]): void {
    const section = this.part();
    parts.splice(0, parts.length, section);
    if (!this.map || this.below(8) === 0) return;
    const { id, data } = this.of(this.map.groups);
    const m = this.below(data.length);
    const bytes = this.below(8) > 0 ? section.byteLength : this.below(5000);
    header.items = packItems(t, [t === 'push' ? [id, m, 1 + this.below(40), bytes] : [id, m, bytes]]);
  }

  /** Bytes that are no section, and none at all, which withdraws a push. */
  private part(): Uint8Array {
    return new Uint8Array(this.of([0, 0, 8, 64, 4096])).fill(this.of([0, 1, 255]));
  }

  /** Values that fit the fields of the running job, more often than not. */
  private forge(sample: Message): Header {
    const header = structuredClone(sample) as unknown as Header;
    const { map } = this;
    if (!map) return header;
    const group = this.of(map.groups);
    const owner = this.of(group.data);
    const node = this.of(map.nodes);
    const peers = [SCHEDULER, node.id, this.self?.id ?? 0, this.below(40)];
    const choices: Record<string, unknown[]> = {
      g: [group.id],
      m: group.data.map((_, m) => m),
      sid: [...group.sinks.map(({ sid }) => sid), 0],
      gen: [owner.gen, owner.gen, 0, owner.gen + 1],
      sgen: [owner.gen],
      v: [group.version, group.version, group.version - 1],
      epoch: [map.epoch, 0],
      ...{ seq: [0, 1, 2, 2 ** 40], base: [0, 1, 2 ** 40], applied: [0, 1, 2 ** 40] },
      ...{ committed: [0, 1, 2 ** 40], table: [0, 1, 2, 9], index: [0, 1, 9] },
      ...{ peer: peers, client: peers, session: peers },
      inc: [node.inc, 0, 99],
      proof: [this.self?.proof ?? new Uint8Array(16), new Uint8Array(16)],
      job: [map.job],
      address: [node.address, '127.0.0.1:9'],
      name: sample.t === 'join' ? [node.name, 'ps-99'] : ['d', 'e'],
      node: [node.name, ''],
      ps: [map.nodes.length, 1, 100],
      timeoutMs: [0, 50],
      map: [{ ...map, epoch: map.epoch + 1000, groups: [] }, map],
      open: [[], [this.self?.id ?? 0]],
    };
    for (const [field, values] of Object.entries(choices))
      if (field in header && this.below(8) > 0) header[field] = this.of(values);
    if ('client' in header && this.below(4) > 0) delete header.client;
    // Every client may drop every table. Those of the one that checks its rows are left to it.
    if (sample.t === 'dropTable') header.table = this.of([4000, 2 ** 31]);
    // A sink may be told to be replaced, but only now and then, because it is built anew each time.
    if (sample.t === 'replaceSink' && this.below(50) > 0) header.sid = 0;
    return header;
  }
}
