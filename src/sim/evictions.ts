/**
 * Readers of evictions (rule 49): clients ask for those of a shard again and again, beside all other traffic.
 * A reader is told of a gap exactly when an answer does not begin where the one before it ended.
 */
import { EvictionReader } from '../core/client/evictions.js';
import { locate, shardCount } from '../protocol/map.js';
import type { MessageOf } from '../protocol/messages.js';
import type { ClientActor } from './actors.js';
import type { SimulatedCluster } from './cluster.js';
import type { EvictionLog } from './engine.js';
import { Random } from './random.js';
import type { Store } from './sections.js';
import type { AnswerEffect } from './sides.js';
import { Violation } from './violation.js';

/** Chances that a client that may ask does, and that it asks again at once. */
const RATE = 0.3;
const AGAIN = 0.5;

interface EvictionReading {
  process: number;
  ticket: number;
  question: Omit<MessageOf<'evictions'>, 'gen' | 'from'>;
  reader: EvictionReader;
  /** Where the last answer ended, in the log that it was of. */
  last: { log: EvictionLog; next: number } | undefined;
}

export class EvictionReaders {
  private readonly random: Random;
  /** Client -> what it reads. */
  private readonly running = new Map<ClientActor, EvictionReading>();

  constructor(
    private readonly cluster: SimulatedCluster,
    private readonly newTicket: () => number,
  ) {
    this.random = new Random(cluster.config.evictions);
  }

  /** A turn of a client: it asks, unless it waits for an answer. */
  ask(index: number, actor: ClientActor, stores: readonly Store[], rate = RATE): void {
    if (this.cluster.config.evictions === 0 || actor.id === undefined || !this.random.chance(rate)) return;
    const known = this.running.get(actor);
    const reading = known?.process === actor.process ? known : this.begin(actor, stores);
    if (reading?.ticket !== 0) return;
    reading.ticket = this.newTicket();
    const { question, reader, ticket } = reading;
    const query = { to: { g: question.g, m: question.m }, message: { ...question, ...reader.asked } };
    this.cluster.runClient(index, actor.core.step({ kind: 'query', ticket, query }));
  }

  private begin(actor: ClientActor, stores: readonly Store[]): EvictionReading | undefined {
    const { random } = this;
    const store = random.pick(stores);
    const tables = store.tables.filter(({ learner }) => learner?.policy ?? learner?.deletes);
    if (tables.length === 0) return undefined;
    const { group: g, member: m } = locate(store.pool, random.below(shardCount(store.pool)));
    const table = random.pick(tables).id;
    const reading: EvictionReading = {
      process: actor.process,
      ticket: 0,
      question: { t: 'evictions', epoch: 0, id: 0, g, m, table, max: 1 + random.below(3) },
      reader: new EvictionReader(),
      last: undefined,
    };
    this.running.set(actor, reading);
    return reading;
  }

  /** True if this was the answer to a reader. */
  answered(index: number, actor: ClientActor, effect: AnswerEffect & { kind: 'answer' }): boolean {
    const reading = this.running.get(actor);
    if (reading?.ticket !== effect.ticket || reading.process !== actor.process) return false;
    const { message, parts } = effect;
    if (message.t !== 'evicted') throw new Violation('a question for evictions has another answer');
    const count = parts[0]!.byteLength / 8;
    const log = this.cluster.questions.evictions.logOf(actor.id!, message);
    if (!log) throw new Violation('evictions are told that nobody has sent');
    const { last, reader } = reading;
    const isMissed = last !== undefined && (last.log !== log || last.next !== message.from);
    if (reader.take(message, count) !== isMissed)
      throw new Violation(
        `evictions from ${message.from} ${isMissed ? 'hide a gap' : 'have a gap for nothing'}`,
      );
    if (isMissed) this.cluster.count('evictionGap');
    if (count > 0) this.cluster.count('evictionsTold');
    reading.last = { log, next: message.from + count };
    reading.ticket = 0;
    this.ask(index, actor, [], AGAIN);
    return true;
  }
}
