/**
 * Users set learning rates: by `setTable`, or by the flag of a worker that resumes the job. Workers that were
 * started with an earlier rate come again and change nothing, and copies of questions that were answered come
 * late. Setters draw from randomness of their own.
 */
import { SCHEDULER } from '../protocol/map.js';
import type { Message, MessageOf } from '../protocol/messages.js';
import type { SimulatedCluster } from './cluster.js';
import { Random } from './random.js';
import { MOST_SETS, rateAfter, SetRates } from './rates.js';
import type { Draft } from './saved.js';
import { type SimTable, specOf } from './tables.js';
import { Violation } from './violation.js';

/** Chance per step. */
const RATE = 0.01;
/** Questions of clients have smaller numbers. */
const FIRST_QUESTION = 1_000_000;

interface SetQuestion {
  index: number;
  /** Id of the client that asks. */
  client: number;
  message: MessageOf<'setTable'> | MessageOf<'createTables'>;
  askedAt: number;
}

export class Setters {
  readonly rates = new SetRates();
  private readonly random: Random;
  private readonly table: SimTable | undefined;
  private asking: SetQuestion | undefined;
  /** Questions by `setTable` that were answered: at most `MOST_SETS`. */
  private answered: SetQuestion[] = [];
  private next = FIRST_QUESTION;

  constructor(
    private readonly cluster: SimulatedCluster,
    tables: readonly SimTable[],
  ) {
    this.random = new Random(cluster.config.rates);
    this.table = tables.find(({ rated }) => rated);
  }

  /** True if every rate that was asked for is set. */
  get finished(): boolean {
    return this.asking === undefined;
  }

  /** Called once per step. */
  strike(): void {
    const { cluster, random, asking } = this;
    if (!this.table || cluster.phase !== 'running') return;
    if (asking) {
      const gone = cluster.clientAt(asking.index)?.id !== asking.client;
      if (gone) this.asking = undefined;
      else if (cluster.now - asking.askedAt > cluster.retry * 4) this.send(asking);
      return;
    }
    if (!random.chance(RATE)) return;
    const number = random.below(cluster.config.clients);
    const index = 1 + cluster.nodes.length + number;
    const client = cluster.clientAt(index)?.id;
    if (client === undefined) return;
    if (this.rates.told > 0 && random.chance(0.5)) {
      if (this.answered.length > 0 && random.chance(0.5)) this.comeLate(random.pick(this.answered));
      else this.comeAgain(index, this.table);
    } else if (this.rates.told < MOST_SETS) this.set(index, client, this.table);
  }

  private set(index: number, client: number, table: SimTable): void {
    const { rates, random } = this;
    rates.asked = Math.max(rates.asked, rates.told + 1);
    const [id, lr] = [this.next++, rateAfter(rates.told + 1)];
    const message = random.chance(0.5)
      ? { t: 'setTable' as const, id, name: table.name, lr }
      : this.flag(id, table, lr);
    this.asking = { index, client, message, askedAt: 0 };
    this.send(this.asking);
  }

  /** A worker is started again with a rate that the table had before. */
  private comeAgain(index: number, table: SimTable): void {
    const lr = rateAfter(this.random.below(this.rates.told));
    this.cluster.count('oldFlag');
    this.cluster.transmit(index, SCHEDULER, this.flag(this.next++, table, lr), []);
  }

  /** A copy of a question comes when it was answered, perhaps to a later scheduler. */
  private comeLate({ index, client, message }: SetQuestion): void {
    const { cluster } = this;
    if (cluster.clientAt(index)?.id !== client) return;
    cluster.count('oldQuestion');
    cluster.transmit(index, SCHEDULER, message, []);
  }

  private flag(id: number, table: SimTable, lr: number): MessageOf<'createTables'> {
    const spec = { ...specOf(table), optimizer: { ...table.optimizer, lr }, rate: 'set' as const };
    return { t: 'createTables', id, specs: [spec] };
  }

  private send(question: SetQuestion): void {
    question.askedAt = this.cluster.now;
    this.cluster.transmit(question.index, SCHEDULER, question.message, []);
  }

  /** True if the message was for a setter. */
  received(index: number, message: Message): boolean {
    if (message.t !== 'tableSet' && message.t !== 'tablesCreated') return false;
    const { asking } = this;
    if (message.id < FIRST_QUESTION) return false;
    if (asking?.index !== index || asking.message.id !== message.id) return true;
    if (message.code) throw new Violation(`a rate cannot be set: ${message.message}`);
    this.asking = undefined;
    this.rates.told++;
    if (asking.message.t === 'setTable') this.answered.push(asking);
    this.cluster.count(asking.message.t === 'setTable' ? 'rateSet' : 'rateFlag');
    return true;
  }

  /** The job is restored from this checkpoint. Returns the number of rates that are set in it. */
  rewind(draft: Draft): number {
    this.asking = undefined;
    this.answered = [];
    return this.table ? this.rates.rewind(draft.tables, this.table.name) : 0;
  }
}
