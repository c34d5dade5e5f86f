/**
 * Groups as bytes. In a large job the groups of the map are most of what a newcomer is sent. With named
 * fields, encoding and decoding would take some ten times as long, and five times as many bytes.
 *
 * Every number is a varint (7 bits a byte, lowest first). A group is its id, pool and version, the number of
 * its data shards and for each `node inc gen flags`, the number of its sinks and for each
 * `sid kind index node inc flags [movesMember]`. A kind is its index in `CAPABILITIES`.
 */
import { KintsugiError } from '../common/errors.js';
import { CAPABILITIES, type DataEntry, type Group, type SinkEntry } from './map.js';

const KINDS = Object.keys(CAPABILITIES) as SinkEntry['kind'][];

const INIT = 1;
const PROTECTS = 2;
const ACKNOWLEDGES = 4;
const MOVES = 8;
const RESTORE = 2;
const REWOUND = 4;
/** The highest sum of flags of each entry. */
const DATA_FLAGS = INIT | RESTORE | REWOUND;
const SINK_FLAGS = INIT | PROTECTS | ACKNOWLEDGES | MOVES;

/** Bytes of the largest number: 53 bits. */
const LONGEST = 8;
const START_BYTES = 4096;
const KEPT_BYTES = 65_536;

class PackWriter {
  private bytes = new Uint8Array(START_BYTES);
  private at = 0;

  /** Begins anew in the same memory, except that the memory of a very large map is not kept. */
  begin(): this {
    this.at = 0;
    if (this.bytes.length > KEPT_BYTES) this.bytes = new Uint8Array(START_BYTES);
    return this;
  }

  number(value: number): void {
    if (!Number.isSafeInteger(value) || value < 0)
      throw new KintsugiError('BAD_ARGUMENT', `a group with the number ${value}`);
    if (this.at + LONGEST > this.bytes.length) this.grow();
    let rest = value;
    while (rest >= 128) {
      this.bytes[this.at++] = (rest % 128) | 128;
      rest = Math.floor(rest / 128);
    }
    this.bytes[this.at++] = rest;
  }

  private grow(): void {
    const larger = new Uint8Array(2 * this.bytes.length);
    larger.set(this.bytes);
    this.bytes = larger;
  }

  done(): Uint8Array {
    return this.bytes.slice(0, this.at);
  }
}

const writer = new PackWriter();

class PackReader {
  private at = 0;

  constructor(private readonly bytes: Uint8Array) {}

  get ended(): boolean {
    return this.at >= this.bytes.length;
  }

  number(): number {
    const first = this.byte();
    if (first < 128) return first;
    let value = first & 127;
    for (let scale = 128, count = 1; count < LONGEST; count++, scale *= 128) {
      const byte = this.byte();
      value += (byte & 127) * scale;
      if (byte >= 128) continue;
      if (value > Number.MAX_SAFE_INTEGER || byte === 0) break;
      return value;
    }
    throw new KintsugiError('BAD_FRAME', 'a group with a malformed number');
  }

  private byte(): number {
    const byte = this.bytes[this.at++];
    if (byte === undefined) throw new KintsugiError('BAD_FRAME', 'the groups are truncated');
    return byte;
  }

  flags(most: number): number {
    const flags = this.number();
    if (flags > most) throw new KintsugiError('BAD_FRAME', `an entry of a group with the flags ${flags}`);
    return flags;
  }

  list<T>(read: () => T): T[] {
    const list: T[] = [];
    // Every entry takes at least one byte, so a count that is too high fails at the end of the bytes.
    for (let left = this.number(); left > 0; left--) list.push(read());
    return list;
  }
}

/** @throws BAD_ARGUMENT when a number of a group is not a natural number */
export function packGroups(groups: readonly Group[]): Uint8Array {
  const out = writer.begin();
  for (const { id, pool, version, data, sinks } of groups) {
    out.number(id);
    out.number(pool);
    out.number(version);
    out.number(data.length);
    for (const { node, inc, gen, init, restore, rewound } of data) {
      out.number(node);
      out.number(inc);
      out.number(gen);
      out.number((init ? INIT : 0) | (restore ? RESTORE : 0) | (rewound ? REWOUND : 0));
    }
    out.number(sinks.length);
    for (const sink of sinks) packSink(sink, out);
  }
  return out.done();
}

function packSink(sink: SinkEntry, out: PackWriter): void {
  const { movesMember, init, protects, acknowledges } = sink;
  out.number(sink.sid);
  out.number(KINDS.indexOf(sink.kind));
  out.number(sink.index);
  out.number(sink.node);
  out.number(sink.inc);
  const flags = (init ? INIT : 0) | (protects ? PROTECTS : 0) | (acknowledges ? ACKNOWLEDGES : 0);
  out.number(movesMember === undefined ? flags : flags | MOVES);
  if (movesMember !== undefined) out.number(movesMember);
}

/** @throws BAD_FRAME when the bytes are not packed groups */
export function unpackGroups(bytes: Uint8Array): Group[] {
  const from = new PackReader(bytes);
  const groups: Group[] = [];
  const data = () => unpackData(from);
  const sink = () => unpackSink(from);
  while (!from.ended) {
    groups.push({
      id: from.number(),
      pool: from.number(),
      version: from.number(),
      data: from.list(data),
      sinks: from.list(sink),
    });
  }
  return groups;
}

function unpackData(from: PackReader): DataEntry {
  const [node, inc, gen, flags] = [from.number(), from.number(), from.number(), from.flags(DATA_FLAGS)];
  const entry: DataEntry = { node, inc, gen, init: (flags & INIT) !== 0 };
  if ((flags & RESTORE) !== 0) entry.restore = true;
  if ((flags & REWOUND) !== 0) entry.rewound = true;
  return entry;
}

function unpackSink(from: PackReader): SinkEntry {
  const sid = from.number();
  const kind = KINDS[from.number()];
  if (kind === undefined) throw new KintsugiError('BAD_FRAME', 'a sink of an unknown kind');
  const [index, node, inc] = [from.number(), from.number(), from.number()];
  const flags = from.flags(SINK_FLAGS);
  const sink: SinkEntry = {
    sid,
    kind,
    index,
    node,
    inc,
    init: (flags & INIT) !== 0,
    protects: (flags & PROTECTS) !== 0,
    acknowledges: (flags & ACKNOWLEDGES) !== 0,
  };
  if ((flags & MOVES) !== 0) sink.movesMember = from.number();
  return sink;
}

/** Lists of groups that were packed, with their bytes. A list of groups is replaced, never changed. */
const packed = new WeakMap<readonly Group[], Uint8Array>();

function packedOnce(groups: readonly Group[]): Uint8Array {
  let bytes = packed.get(groups);
  if (!bytes) {
    bytes = packGroups(groups);
    packed.set(groups, bytes);
  }
  return bytes;
}

type WithGroups = { groups?: unknown };

/** A message as it stands in a frame: groups are packed there. */
export function toWire(header: object): object {
  const { t, map, groups } = header as { t?: unknown; map?: WithGroups; groups?: unknown };
  if (t === 'mapDiff' && Array.isArray(groups)) return { ...header, groups: packGroups(groups) };
  if ((t === 'map' || t === 'welcome') && Array.isArray(map?.groups))
    return { ...header, map: { ...map, groups: packedOnce(map.groups) } };
  return header;
}

/** Unpacks packed groups in place. @throws BAD_FRAME */
export function fromWire(holder: WithGroups | undefined): void {
  if (holder?.groups instanceof Uint8Array) holder.groups = unpackGroups(holder.groups);
}
