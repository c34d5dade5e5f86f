/** A client machine that a test speaks to in keys and values, and the sections and tables it uses. */
import {
  type ClientEffect,
  type ClientPolicy,
  listSections,
  PsClientCore,
} from '../../src/core/client/client.js';
import { loadNative, type OptimizerSpec } from '../../src/engine/native.js';
import type { PeerId, TableSpec } from '../../src/protocol/map.js';
import type { Message } from '../../src/protocol/messages.js';

export const native = loadNative();

/** Rows of 512 floats have 2 KiB, so a block has two rows, and few rows make many blocks. */
export const DIM = 512;
/** A push adds its rows: SGD with lr -1 on zeros. */
export const ADDING: OptimizerSpec = { kind: 'sgd', lr: -1 };

export function tableSpec(name = 't', optimizer: OptimizerSpec = ADDING, dim = DIM): Omit<TableSpec, 'id'> {
  return { name, pool: 'embedding', dim, optimizer, initializer: { kind: 'zeros' }, seed: 0 };
}

export interface Ticket {
  done: boolean;
  /** True: the client keeps none of its sections any more. */
  released: boolean;
  error: string | undefined;
  rows: Float32Array[];
  answer: Message | undefined;
}

/** Rows as a push or pull names them. */
export interface Part {
  table?: number;
  keys: (number | bigint)[];
  /** Value of every float of every row. */
  value?: number;
  width?: number;
  lr?: number;
}

export function section(parts: Part[], push: boolean, mode: 0 | 1 = 0): Uint8Array {
  return native.encodeRequest(
    mode,
    parts.map(({ table = 1, keys, value = 1, width = DIM, lr }) => ({
      table,
      width,
      keys: BigUint64Array.from(keys, (key) => BigInt(key)),
      ...(push ? { rows: new Float32Array(keys.length * width).fill(value) } : {}),
      ...(lr !== undefined && { lr }),
      order: Uint32Array.from(keys, (_, i) => i),
      start: 0,
      end: keys.length,
    })),
  );
}

/** The parts of its cluster that a client needs. */
interface World {
  readonly events: { name: string; fields: Record<string, unknown> }[];
  send(from: PeerId, to: PeerId, message: Message, parts: readonly Uint8Array[]): void;
}

export class ClientActor {
  readonly core: PsClientCore;
  readonly tickets = new Map<number, Ticket>();
  private next = 1;

  constructor(
    private readonly cluster: World,
    public id: PeerId,
    policy: ClientPolicy,
  ) {
    this.core = new PsClientCore(policy);
  }

  /** One push over shards: member -> parts. `client`: the session of a range, whose numbers it takes. */
  push(items: Record<number, Part[]>, g = 0, client?: PeerId): Ticket {
    const list = Object.entries(items).map(([m, parts]) => ({
      g,
      m: Number(m),
      section: section(parts, true),
    }));
    return this.start((ticket) =>
      this.core.step({
        kind: 'push',
        ticket,
        lists: listSections(list),
        ...(client !== undefined && { client }),
      }),
    );
  }

  pull(items: Record<number, Part[]>, g = 0): Ticket {
    const list = Object.entries(items).map(([m, parts]) => ({
      g,
      m: Number(m),
      section: section(parts, false),
    }));
    return this.start((ticket) => this.core.step({ kind: 'pull', ticket, lists: listSections(list) }));
  }

  check(node: PeerId, sid: number, g = 0): Ticket {
    const message: Message = { t: 'check', epoch: 0, id: 0, g, sid };
    return this.start((ticket) =>
      this.core.step({ kind: 'query', ticket, query: { to: { node }, message } }),
    );
  }

  step(input: Parameters<PsClientCore['step']>[0]): void {
    this.run(this.core.step(input));
  }

  private start(step: (ticket: number) => ClientEffect[]): Ticket {
    const ticket: Ticket = { done: false, released: false, error: undefined, rows: [], answer: undefined };
    const number = this.next++;
    this.tickets.set(number, ticket);
    this.run(step(number));
    return ticket;
  }

  run(effects: ClientEffect[]): void {
    for (const effect of effects) {
      if (effect.kind === 'send') this.cluster.send(this.id, effect.to, effect.message, effect.parts);
      else if (effect.kind === 'event')
        this.cluster.events.push({ name: effect.name, fields: effect.fields });
      else {
        const ticket = this.tickets.get(effect.ticket)!;
        if (effect.kind === 'rows') {
          let start = 0;
          for (let i = 0; i < effect.items.length; i += 2) {
            const rows = effect.rows.slice(start, start + effect.items[i + 1]!);
            ticket.rows[effect.items[i]!] = new Float32Array(rows.buffer);
            start += rows.byteLength;
          }
        } else if (effect.kind === 'answer') ticket.answer = effect.message;
        else if (effect.kind === 'released') ticket.released = true;
        else {
          ticket.done = true;
          ticket.error = effect.error?.code;
        }
      }
    }
  }
}
