/**
 * The operations that a program may ask of its gateway, besides the first message. Every operation checks its
 * own fields: a program that sends nonsense is told so (BAD_ARGUMENT) and goes on.
 */

import { randomUUID } from 'node:crypto';
import { KintsugiError } from '../../common/errors.js';
import type {
  Client,
  EvictionBatch,
  PullRequest,
  PushRequest,
  ScanBatch,
  Table,
  TableChanges,
  TableOptions,
} from '../../library/client/client.js';
import { internalsOf } from '../../library/client/connected.js';
import { rowCounts } from '../../library/client/scan.js';
import { listTables } from '../../library/tools/tables.js';
import { limitText } from '../../protocol/limits.js';
import { type TableSpec, tableByName } from '../../protocol/map.js';
import { FLOAT_BYTES, KEY_BYTES } from '../../protocol/section-header.js';
import { bad, integer, text } from './fields.js';
import type { Memory } from './memory.js';
import type { ProgramRoom } from './program-room.js';
import type { GatewayRanges } from './ranges.js';

export interface OperationRequest {
  client: Client;
  message: Record<string, unknown>;
  /** Memory that the offsets of the request lead into. */
  memory: Memory;
  /** Aborted when the program is gone. */
  signal: AbortSignal;
  room: ProgramRoom;
  program: ProgramState;
}

/** State of a program that lasts from one request to the next. */
export interface ProgramState {
  ranges?: GatewayRanges;
  /** Scans that the program has begun, by the numbers that it gave them. */
  scans: Map<number, ProgramScan>;
  /** As `scans`, of evictions. */
  streams: Map<number, EvictionsOfProgram>;
}

interface EvictionsOfProgram {
  batches: AsyncGenerator<EvictionBatch, void>;
  stop: AbortController;
}

interface ProgramScan {
  batches: AsyncGenerator<ScanBatch, void>;
  /** The most that a batch takes. */
  batchBytes: number;
}

/** `behind`: bytes that follow the answer in its frame. */
export interface OperationAnswer {
  value?: unknown;
  behind?: readonly (Float32Array | BigUint64Array)[];
}

/** Scans of one program that are open at once. */
const MAX_SCANS = 64;
/** Bytes of a batch of the first `FEW_SCANS`, and of the others: each scan holds a few batches. */
const BATCH_BYTES = 4 << 20;
const SMALL_BATCH_BYTES = 512 << 10;
const FEW_SCANS = 8;
/** About what the description of a table takes in an answer. */
const TABLE_BYTES = 512;

export type GatewayOperation = (asked: OperationRequest) => Promise<OperationAnswer>;

/**
 * Keys and rows for one table, see `tableOf`. The offsets are bytes in the memory of the program; only a push
 * has `lr`, null for that of the table, u32 counts of its keys, null where they were seen once, and their
 * scores.
 */
type GatewayCall = [
  ...[table: string, keysAt: number, count: number, rowsAt: number],
  ...[lr?: number | null, countsAt?: number | null, scoresAt?: number],
];

/** The fields of a call, in order. Those from `lr` on may be left out, or null where others follow. */
const CALL_FIELDS = 7;

function callsOf(message: Record<string, unknown>): GatewayCall[] {
  const { calls } = message;
  const isCall = (call: unknown) => {
    if (!Array.isArray(call) || call.length < 4 || call.length > CALL_FIELDS) return false;
    if (typeof call[0] !== 'string' || (call.length > 4 && call.at(-1) === null)) return false;
    const isNumber = (value: unknown, i: number) =>
      i === 3 ? typeof value === 'number' : Number.isSafeInteger(value);
    return call.slice(1).every((value, i) => (i >= 3 && value === null) || isNumber(value, i));
  };
  if (Array.isArray(calls) && calls.every(isCall)) return calls as GatewayCall[];
  throw bad('calls must be a list of [table, keys, count, rows] or, in a push, [..., lr, counts, scores]');
}

/**
 * The table that a program names: as it is called, or with a line feed behind, which no name has, and its id,
 * or its values and the width of its rows, as "4x8". No id comes again, so the id tells a table from one that
 * has taken its name since; a program that knows the name alone means that one, if it has such rows.
 * @throws UNKNOWN_TABLE
 */
export function tableOf(client: Client, named: string): Table {
  const { tables } = client.clusterMap;
  const known = found.get(client);
  const byName = known?.tables === tables ? known.byName : new Map<string, Table>();
  if (byName !== known?.byName) found.set(client, { tables, byName });
  const table = byName.get(named) ?? findTable(client, named);
  byName.set(named, table);
  return table;
}

/** Tables that programs have named since the list of them is this one: each request names some. */
const found = new WeakMap<Client, { tables: readonly TableSpec[]; byName: Map<string, Table> }>();

function findTable(client: Client, named: string): Table {
  const [name = '', which] = named.split('\n');
  if (which !== undefined && !tableByName(client.clusterMap, name))
    throw new KintsugiError('UNKNOWN_TABLE', `table "${name}" was dropped`);
  const table = client.table(name);
  const { spec } = table;
  if (which === undefined || which === `${spec.id}` || which === `${spec.dim}x${client.rowWidth(spec)}`)
    return table;
  throw new KintsugiError('UNKNOWN_TABLE', `table "${name}" was dropped, and another one has its name`);
}

/** Floats of a row: its values, or with the state of the optimizer. */
function widthOf(client: Client, { spec }: Table, whole: boolean): number {
  return whole ? client.rowWidth(spec) : spec.dim;
}

const pull: GatewayOperation = async ({ client, message, memory, signal, room }) => {
  const whole = message.whole === true;
  const behind = message.behind === true;
  const asked = callsOf(message).map(([named, keysAt, count, rowsAt]) => {
    const table = tableOf(client, named);
    const floats = count * widthOf(client, table, whole);
    const keys = memory.keys(keysAt, count);
    return { table, keys, floats, into: behind ? undefined : memory.floats(rowsAt, floats) };
  });
  if (behind) await room.reserve(asked.reduce((sum, { floats }) => sum + floats, 0) * FLOAT_BYTES);
  const requests = asked.map(({ table, keys, floats, into }) => {
    return { table, keys, into: behind && !whole ? room.rows(floats) : into };
  });
  if (!whole) {
    const rows = await client.pull(requests, { signal });
    return behind ? { behind: rows } : {};
  }
  const plain = requests.map(({ table, keys }) => ({ table, keys }));
  const rows = await client.pullFull(plain, { signal });
  if (behind) return { behind: rows };
  for (const [i, { into }] of requests.entries()) into!.set(rows[i]!);
  return {};
};

export function pushRequests({ client, message, memory }: OperationRequest): PushRequest[] {
  return callsOf(message).map(([named, keysAt, count, rowsAt, lr, countsAt, scoresAt]) => {
    const table = tableOf(client, named);
    const gradients = memory.floats(rowsAt, count * widthOf(client, table, message.whole === true));
    const counts = countsAt === undefined || countsAt === null ? undefined : memory.counts(countsAt, count);
    const scores = scoresAt === undefined ? undefined : memory.floats(scoresAt, count);
    return { table, keys: memory.keys(keysAt, count), gradients, lr: lr ?? undefined, counts, scores };
  });
}

/**
 * A function to call when the push has begun: its keys and rows are encoded in the gateway's own memory then.
 * @throws BAD_ARGUMENT, so ask for the function before the push: nobody would await a push that has begun
 */
function takenOf({ message, memory }: OperationRequest): () => void {
  return message.taken === undefined ? () => {} : memory.marker(integer(message, 'taken'));
}

/** The clock of this gateway: no other one has the same. It goes on while a machine sleeps. */
const CLOCK = randomUUID();

/**
 * A program that may stall says until when its push counts, by the clock of its gateway: so one that stalls
 * before it sends does not change what others have done meanwhile.
 * @throws TIMEOUT, BAD_ARGUMENT
 */
function checkLate({ until }: Record<string, unknown>): void {
  if (until === undefined) return;
  const [clock, time] = Array.isArray(until) ? until : [];
  if (typeof clock !== 'string' || typeof time !== 'number') throw bad('until must be [clock, milliseconds]');
  if (clock !== CLOCK) throw new KintsugiError('TIMEOUT', 'the push counts by the clock of another gateway');
  const late = Date.now() - time;
  if (late > 0) throw new KintsugiError('TIMEOUT', `the push came ${late} ms too late: nothing was sent`);
}

/** Begins a push, tells the program that its memory is free again, and gives what the push comes to. */
export function pushed<T>(asked: OperationRequest, begin: () => Promise<T>): Promise<T> {
  const taken = takenOf(asked);
  const push = begin();
  taken();
  return push;
}

const push: GatewayOperation = async (asked) => {
  const { client, message } = asked;
  checkLate(message);
  const requests = pushRequests(asked);
  await pushed(asked, () => (message.whole === true ? client.assign(requests) : client.push(requests)));
  return {};
};

/** Tables and keys of calls without rows. */
export function keyRequests({ client, message, memory }: OperationRequest): PullRequest[] {
  return callsOf(message).map(([named, at, count]) => {
    return { table: tableOf(client, named), keys: memory.keys(at, count) };
  });
}

/** Deletes the rows of keys. The calls are those of a push, without rows. */
const deletion: GatewayOperation = async (asked) => {
  const { client } = asked;
  const requests = keyRequests(asked);
  await pushed(asked, () => client.delete(requests));
  return {};
};

/** Room for an answer that describes every table. */
const roomForTables = ({ client, room }: OperationRequest): Promise<void> =>
  room.reserve(client.clusterMap.tables.length * TABLE_BYTES);

/** A table as programs are told of it. */
function described(client: Client, spec: TableSpec) {
  const { id, name, dim, pool, optimizer, initializer, seed, policy } = spec;
  const { job } = client.clusterMap;
  const known = { id, name, dim, pool, optimizer, initializer, seed, ...(policy && { policy }) };
  return { ...known, job, width: client.rowWidth(spec) };
}

/**
 * A table that exists. Another client may have created it a moment ago, and told the program of it: then the
 * map that has it is on its way to this client.
 * @throws UNKNOWN_TABLE
 */
async function existing(client: Client, name: string): Promise<TableSpec> {
  const { session } = internalsOf(client);
  const isThere = () => tableByName(session.map, name) !== undefined;
  if (!isThere()) {
    const { tables } = await client.status();
    if (tables.some((table) => table.name === name)) await session.until(isThere);
  }
  return client.table(name).spec;
}

export const OPERATIONS: Readonly<Record<string, GatewayOperation>> = {
  pull,
  push,
  delete: deletion,

  async clock() {
    return { value: [CLOCK, Date.now()] };
  },

  async createTable({ client, message }) {
    const { table } = message;
    if (typeof table !== 'object' || table === null) throw bad('table must be an object');
    const { spec } = await client.createTable(table as TableOptions);
    return { value: described(client, spec) };
  },

  async table({ client, message }) {
    return { value: described(client, await existing(client, text(message, 'name'))) };
  },

  async setTable({ client, message, signal }) {
    const table = tableOf(client, text(message, 'name'));
    const { lr, clipNorm, schedule, policy } = message as TableChanges;
    await table.set({ lr, clipNorm, schedule, policy }, { signal });
    return { value: described(client, table.spec) };
  },

  async dropTable({ client, message, signal }) {
    await tableOf(client, text(message, 'name')).drop({ signal });
    return {};
  },

  async tables(asked) {
    const { client } = asked;
    await roomForTables(asked);
    return { value: client.tables().map((spec) => described(client, spec)) };
  },

  async listTables(asked) {
    const { after, limit } = asked.message as { after?: string; limit?: number };
    await roomForTables(asked);
    return { value: await listTables(asked.client, { after, limit }) };
  },

  async status(asked) {
    await roomForTables(asked);
    return { value: await asked.client.status() };
  },

  async rows({ client, message }) {
    const { spec } = tableOf(client, text(message, 'name'));
    return { value: (await rowCounts(internalsOf(client).session)).get(spec.id) ?? 0 };
  },

  async scan({ client, message, program }) {
    const { scans } = program;
    if (scans.size >= MAX_SCANS)
      throw new KintsugiError(
        'LIMIT',
        limitText('too many scans of this program are open', 'maxScans', MAX_SCANS),
      );
    const whole = message.whole === true;
    const table = tableOf(client, text(message, 'name'));
    const rowBytes = KEY_BYTES + widthOf(client, table, whole) * FLOAT_BYTES;
    const most = Math.floor((scans.size < FEW_SCANS ? BATCH_BYTES : SMALL_BATCH_BYTES) / rowBytes);
    const batchRows = Math.min(integer(message, 'batch', 1), Math.max(1, most));
    const batches = client.scan(table, { select: whole ? 'rows' : 'values', batchRows });
    scans.set(integer(message, 'scan'), { batches, batchBytes: batchRows * rowBytes });
    return {};
  },

  /** The value is the number of rows; 0: there are no more. Keys and rows are behind it. */
  async scanned({ message, program, room }) {
    const number = integer(message, 'scan');
    const scan = program.scans.get(number);
    if (scan) await room.reserve(scan.batchBytes);
    const batch = await scan?.batches.next();
    if (batch && !batch.done)
      return { value: batch.value.keys.length, behind: [batch.value.keys, batch.value.rows] };
    program.scans.delete(number);
    return { value: 0 };
  },

  async endScan({ message, program }) {
    const number = integer(message, 'scan');
    await program.scans.get(number)?.batches.return();
    program.scans.delete(number);
    return {};
  },

  /** Events after number `since`; with `follow` it waits until there is one. */
  async events({ client, message, signal }) {
    const since = integer(message, 'since');
    if (message.follow !== true) {
      const all = [];
      for await (const event of client.events({ since })) all.push(event);
      return { value: all };
    }
    for await (const event of client.events({ since, follow: true, signal })) return { value: [event] };
    return { value: [] };
  },

  async checkpoint({ client }) {
    return { value: await client.checkpoint() };
  },

  async restore({ client, message, signal }) {
    const number = message.number === undefined ? {} : { number: integer(message, 'number') };
    return { value: await client.restore(text(message, 'place'), { onlyLost: true, ...number, signal }) };
  },
};
