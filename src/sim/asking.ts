/** A question to the scheduler, which a client of a schedule repeats until it is answered or dies. */
import { SCHEDULER } from '../protocol/map.js';
import type { Message } from '../protocol/messages.js';
import type { SimulatedCluster } from './cluster.js';

/** A question as its client has asked it. */
export interface Asked<M extends Message & { id: number }> {
  index: number;
  /** Id of the client that asks. */
  client: number;
  message: M;
  askedAt: number;
}

export class Asking<M extends Message & { id: number }> {
  /** The question that has no answer. */
  current: Asked<M> | undefined;

  constructor(private readonly cluster: SimulatedCluster) {}

  ask(index: number, client: number, message: M): void {
    this.current = { index, client, message, askedAt: 0 };
    this.send(this.current);
  }

  /** Repeats the question when it is time, and forgets one whose client is gone. True: there was one. */
  goesOn(): boolean {
    const { cluster, current } = this;
    if (!current) return false;
    if (!this.isThere(current)) this.current = undefined;
    else if (cluster.now - current.askedAt > cluster.retry * 4) this.send(current);
    return true;
  }

  /** The question that this answers, if it is the one without an answer. */
  answeredBy(index: number, { id }: { id: number }): Asked<M> | undefined {
    const { current } = this;
    return current?.index === index && current.message.id === id ? current : undefined;
  }

  /** A copy comes when it was answered, perhaps to a later scheduler. False: its client is gone. */
  comeLate(question: Asked<M>): boolean {
    if (!this.isThere(question)) return false;
    this.cluster.transmit(question.index, SCHEDULER, question.message, []);
    return true;
  }

  private isThere({ index, client }: Asked<M>): boolean {
    return this.cluster.clientAt(index)?.id === client;
  }

  private send(question: Asked<M>): void {
    question.askedAt = this.cluster.now;
    this.cluster.transmit(question.index, SCHEDULER, question.message, []);
  }
}
