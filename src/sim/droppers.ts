/**
 * Users drop a table, and create another one of its name, again and again. All pushes of clients that know
 * the table add to it. Copies of questions that were answered come late. A row of the table must have
 * exactly the pushes that named this life of it: none of an earlier one. Droppers draw from randomness of
 * their own.
 */
import type { Extent } from '../engine/native.js';
import { type ClusterMap, tableByName } from '../protocol/map.js';
import type { Message, MessageOf } from '../protocol/messages.js';
import { type Asked, Asking } from './asking.js';
import type { SimulatedCluster } from './cluster.js';
import { Random } from './random.js';
import type { Draft } from './saved.js';
import type { Store } from './sections.js';
import { specOf, tableOfLife } from './tables.js';
import { Violation } from './violation.js';

/** Chance per step. */
const RATE = 0.01;
const MOST_LIVES = 5;
/** Questions of others have smaller numbers. */
const FIRST_QUESTION = 2_000_000;

export const DROPPED_TABLE = tableOfLife(0).name;
const POOL = tableOfLife(0).pool;

type DropQuestion = MessageOf<'dropTable'> | MessageOf<'createTables'>;

export class Droppers {
  private readonly random: Random;
  private readonly asking: Asking<DropQuestion>;
  /** Drops that were answered, and that nobody has forgotten: at most `MOST_LIVES`. */
  private answered: Asked<DropQuestion>[] = [];
  /** Lives of tables that somebody has asked to drop. */
  private readonly ending = new Set<number>();
  private lives = 0;
  private next = FIRST_QUESTION;

  constructor(private readonly cluster: SimulatedCluster) {
    this.random = new Random(cluster.config.drops);
    this.asking = new Asking(cluster);
  }

  /** True if every question is answered, and all nodes know it. */
  get finished(): boolean {
    const { control, nodes, config } = this.cluster;
    if (config.drops === 0) return true;
    const { epoch } = control.disk.map;
    return this.asking.current === undefined && nodes.every(({ node }) => !node || node.map.epoch === epoch);
  }

  /** Somebody has asked to drop this life of the table, so it may be gone. */
  isEnding(life: number): boolean {
    return this.ending.has(life);
  }

  /** The stores with the table as a map has it. */
  storesIn(map: ClusterMap, stores: readonly Store[]): readonly Store[] {
    const found = tableByName(map, DROPPED_TABLE);
    if (!found) return stores;
    const table = { ...tableOfLife(found.seed), id: found.id };
    return stores.map((store) =>
      store.pool.name === POOL ? { ...store, tables: [...store.tables, table] } : store,
    );
  }

  /** Called once per step. */
  strike(): void {
    const { cluster, random, asking } = this;
    if (cluster.config.drops === 0 || cluster.phase !== 'running' || asking.goesOn()) return;
    if (!random.chance(RATE)) return;
    const index = 1 + cluster.nodes.length + random.below(cluster.config.clients);
    const client = cluster.clientAt(index)?.id;
    if (client === undefined) return;
    if (this.answered.length > 0 && random.chance(0.3)) {
      if (asking.comeLate(random.pick(this.answered))) cluster.count('oldDrop');
      return;
    }
    const found = tableByName(cluster.control.disk.map, DROPPED_TABLE);
    if (!found) return this.create(index, client);
    this.ending.add(found.seed);
    asking.ask(index, client, { t: 'dropTable', id: this.next++, table: found.id });
  }

  private create(index: number, client: number): void {
    if (this.lives >= MOST_LIVES) return;
    const specs = [specOf(tableOfLife(++this.lives))];
    this.asking.ask(index, client, { t: 'createTables', id: this.next++, specs });
  }

  /** True if the message was for a dropper. */
  received(index: number, message: Message): boolean {
    if (message.t !== 'tableDropped' && message.t !== 'tablesCreated') return false;
    if (message.id < FIRST_QUESTION) return false;
    const asked = this.asking.answeredBy(index, message);
    if (!asked) return true;
    this.asking.current = undefined;
    // While shards are loaded nothing is dropped. A client that died may have created the table after all.
    const isRefused = message.code === 'NOT_READY' || message.code === 'TABLE_EXISTS';
    if (message.code && !isRefused) throw new Violation(`no table came or went: ${message.message}`);
    if (isRefused) return true;
    this.cluster.count(message.t === 'tableDropped' ? 'tableDropped' : 'tableAgain');
    if (message.t === 'tablesCreated') return true;
    this.answered.push(asked);
    if (this.random.chance(0.7)) this.create(index, asked.client);
    return true;
  }

  /** The job is restored from this checkpoint. */
  rewind(draft: Draft): void {
    this.asking.current = undefined;
    this.answered = [];
    const found = draft.tables.find((table) => table.name === DROPPED_TABLE);
    if (found) this.ending.delete(found.seed);
  }
}

/** Tables that are gone take no memory: no shard and no sink of a group has extents of one. */
export function checkTables({ tables }: ClusterMap, g: number, extents: readonly Extent[] = []): void {
  for (const [table] of extents)
    if (!tables.some(({ id }) => id === table))
      throw new Violation(`group ${g} holds table ${table}, which was dropped`);
}
