/** The sinks of a node: those that the map gives it, but for those that the system refused memory. */
import { describe } from '../../common/errors.js';
import type { NativeAddon, NativeMemory, NativeSink } from '../../engine/native.js';
import { type ClusterMap, FOLLOWS, type Group, mirrorOf, type SinkEntry } from '../../protocol/map.js';
import { Sink } from '../sink/sink.js';
import type { NodeHost } from './host.js';

export class Sinks {
  /** Open sinks of the newest map by their sids. */
  private readonly present = new Map<number, Sink>();
  /** Sinks of the newest map that were dropped for the lack of memory: sid -> group. */
  private readonly failed = new Map<number, number>();

  constructor(
    private readonly host: NodeHost,
    private readonly native: NativeAddon,
    private readonly memory: NativeMemory,
  ) {}

  get size(): number {
    return this.present.size;
  }

  get(sid: number): Sink | undefined {
    return this.present.get(sid);
  }

  /** Sid of the shard's mirror, if that is here and has everything. */
  completeMirrorOf(group: Group | undefined, m: number): number | undefined {
    const sid = group && mirrorOf(group, m)?.sid;
    return sid !== undefined && this.present.get(sid)?.complete ? sid : undefined;
  }

  all(): Sink[] {
    return [...this.present.values()];
  }

  /** Creates the sinks that changed groups give to this node, and closes those that they take away. */
  onMap(map: ClusterMap, groups: readonly Group[]): void {
    const keep = new Set<number>();
    for (const group of groups) {
      for (const entry of group.sinks) {
        if (entry.node !== this.host.id || entry.inc !== this.host.inc) continue;
        keep.add(entry.sid);
        // A sink that failed would start again empty. If it was born with its group, it would even count as
        // complete.
        if (this.present.has(entry.sid) || this.failed.has(entry.sid)) continue;
        const sink = this.create(map, group, entry);
        this.present.set(entry.sid, new Sink(group, entry, sink, this.host));
      }
    }
    const changed = new Set(groups.map(({ id }) => id));
    for (const [sid, sink] of this.present) {
      if (!changed.has(sink.groupId) || keep.has(sid)) continue;
      sink.close();
      this.present.delete(sid);
    }
    for (const [sid, group] of this.failed) if (changed.has(group) && !keep.has(sid)) this.failed.delete(sid);
  }

  /** A sink that follows one member is a parity of that member alone, with coefficient 1. */
  private create(map: ClusterMap, group: Group, entry: SinkEntry): NativeSink {
    if (FOLLOWS[entry.kind] === 'one') return this.native.createSink(this.memory, 1, 1, 0, false);
    const r = map.pools[group.pool]?.r ?? 0;
    return this.native.createSink(this.memory, group.data.length, r, entry.index, entry.init);
  }

  /** The sinks of these groups learn the newest version of them. */
  applyVersions(groups: readonly Group[]): void {
    for (const group of groups) {
      for (const { sid } of group.sinks) {
        const sink = this.present.get(sid);
        if (sink && group.version !== sink.version) sink.onGroup(group);
      }
    }
  }

  /** Hands a message to its sink, if that is here. */
  to(sid: number, step: (sink: Sink) => void): void {
    const sink = this.present.get(sid);
    if (sink) this.unlessRefused(sid, () => step(sink));
  }

  /**
   * A sink that the system refuses memory is dropped. It answers nothing from then on, so its owners report
   * it as stalled and another node takes its place. The connection, which other shards use, stays.
   */
  unlessRefused(sid: number, step: () => void): void {
    try {
      step();
    } catch (error) {
      const sink = this.present.get(sid);
      if ((error as { code?: unknown } | undefined)?.code !== 'MEMORY_LIMIT' || !sink) throw error;
      const { groupId: group, index } = sink;
      this.present.delete(sid);
      this.failed.set(sid, group);
      sink.close();
      this.host.out.event('sink.failed', { group, sid, index, message: describe(error) });
    }
  }

  tick(): void {
    const overdue = new Set<number>();
    for (const sid of [...this.present.keys()])
      this.to(sid, (sink) => {
        if (sink.tick()) overdue.add(sid);
      });
    if (overdue.size === 0) return;
    // The owner of an overdue block may lack it for ever, so others ask first.
    const others = [...this.present.keys()].filter((sid) => !overdue.has(sid));
    for (const sid of [...others, ...overdue]) this.to(sid, (sink) => sink.ask());
  }

  close(): void {
    for (const sink of this.present.values()) sink.close();
    this.present.clear();
  }
}
