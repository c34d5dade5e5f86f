/**
 * Users set learning rate and clipping of a table: by `setTable`, or by the flags of a worker that resumes
 * the job. Workers that were started with earlier settings come again and change nothing, and copies of
 * questions that were answered come late. Setters draw from randomness of their own.
 */
import { SCHEDULER } from '../protocol/map.js';
import type { Message, MessageOf } from '../protocol/messages.js';
import { type Asked, Asking } from './asking.js';
import type { SimulatedCluster } from './cluster.js';
import { Governors } from './governors.js';
import { Random } from './random.js';
import type { Draft } from './saved.js';
import { changeTo, MOST_SETS, optimizerAfter, SetSettings } from './settings.js';
import { type SimTable, specOf } from './tables.js';
import { Violation } from './violation.js';

/** Chance per step. */
const RATE = 0.01;
/** Questions of clients have smaller numbers. */
const FIRST_QUESTION = 1_000_000;

type SetQuestion = MessageOf<'setTable'> | MessageOf<'createTables'>;

/** Settings, and policies, that are set. */
export interface SetCounts {
  settings: number;
  policies: number;
}

export class Setters {
  readonly settings = new SetSettings();
  readonly governors: Governors;
  private readonly random: Random;
  private readonly table: SimTable | undefined;
  private readonly asking: Asking<SetQuestion>;
  /** Questions by `setTable` that were answered: at most `MOST_SETS`. */
  private answered: Asked<SetQuestion>[] = [];
  private next = FIRST_QUESTION;

  constructor(
    private readonly cluster: SimulatedCluster,
    tables: readonly SimTable[],
  ) {
    this.random = new Random(cluster.config.settings);
    this.asking = new Asking(cluster);
    this.governors = new Governors(cluster, tables);
    this.table = tables.find(({ settable }) => settable);
  }

  /** True if everything that was asked for is set. */
  get finished(): boolean {
    return this.asking.current === undefined && this.governors.finished;
  }

  /** Called once per step. */
  strike(): void {
    this.governors.strike();
    const { cluster, random, asking } = this;
    if (!this.table || cluster.phase !== 'running' || asking.goesOn()) return;
    if (!random.chance(RATE)) return;
    const number = random.below(cluster.config.clients);
    const index = 1 + cluster.nodes.length + number;
    const client = cluster.clientAt(index)?.id;
    if (client === undefined) return;
    if (this.settings.told > 0 && random.chance(0.5)) {
      if (this.answered.length > 0 && random.chance(0.5)) {
        if (asking.comeLate(random.pick(this.answered))) cluster.count('oldQuestion');
      } else this.comeAgain(index, this.table);
    } else if (this.settings.told < MOST_SETS) this.set(index, client, this.table);
  }

  private set(index: number, client: number, table: SimTable): void {
    const { settings, random } = this;
    settings.asked = Math.max(settings.asked, settings.told + 1);
    const [id, count] = [this.next++, settings.told + 1];
    const message = random.chance(0.5)
      ? { t: 'setTable' as const, id, name: table.name, ...changeTo(count) }
      : this.flags(id, table, count);
    this.asking.ask(index, client, message);
  }

  /** A worker is started again with settings that the table had before. */
  private comeAgain(index: number, table: SimTable): void {
    const count = this.random.below(this.settings.told);
    this.cluster.count('oldFlag');
    this.cluster.transmit(index, SCHEDULER, this.flags(this.next++, table, count), []);
  }

  private flags(id: number, table: SimTable, count: number): MessageOf<'createTables'> {
    const set = ['lr', 'clipNorm'] as const;
    const spec = { ...specOf(table), optimizer: { ...optimizerAfter(count) }, set };
    return { t: 'createTables', id, specs: [spec] };
  }

  /** True if the message was for a setter. */
  received(index: number, message: Message): boolean {
    if (this.governors.received(index, message)) return true;
    if (message.t !== 'tableSet' && message.t !== 'tablesCreated') return false;
    if (message.id < FIRST_QUESTION) return false;
    const asked = this.asking.answeredBy(index, message);
    if (!asked) return true;
    if (message.code) throw new Violation(`a setting cannot be set: ${message.message}`);
    this.asking.current = undefined;
    this.settings.told++;
    if (asked.message.t === 'setTable') this.answered.push(asked);
    this.cluster.count(asked.message.t === 'setTable' ? 'settingSet' : 'settingFlag');
    return true;
  }

  /** The job is restored from this checkpoint. Returns how many are set in it. */
  rewind({ tables }: Draft): SetCounts {
    this.asking.current = undefined;
    this.answered = [];
    this.governors.rewind(tables);
    const settings = this.table ? this.settings.rewind(tables, this.table.name) : 0;
    return { settings, policies: this.governors.told };
  }
}
