/**
 * An order of clients that wait, in which each gets as much as the others: self-clocked fair queueing. What a
 * client waits for has a tag, which is the clock when it came, or the tag of what the client got before, plus
 * what it costs. The least tag goes first, and the clock is the tag of what went last in order. So a client
 * that asks for little goes before those that ask for much, and everybody's turn comes.
 */

/** A client that waits. */
export interface WaitingClient {
  /** Written by the order only. */
  tag: number;
}

export class FairOrder<Client extends WaitingClient> {
  /** By tag, the least first; those with one tag in the order in which they came. */
  private readonly clients: Client[] = [];
  /** The tag of what went last in order. It only grows while somebody waits. */
  private clock = 0;

  get length(): number {
    return this.clients.length;
  }

  get first(): Client | undefined {
    return this.clients[0];
  }

  /** A client waits that did not, for something that costs so much. */
  enter(client: Client, cost: number): void {
    if (this.clients.length === 0) this.clock = 0;
    client.tag = this.clock + cost;
    this.insert(client);
  }

  /**
   * A client has got what it waited for, and waits for something else that costs `next`, or for nothing. One
   * that was served before its turn pays for it later, and the clock stands for all others.
   */
  served(client: Client, next: number | undefined): void {
    const paid = Math.max(this.clock, client.tag);
    if (client === this.first) this.clock = paid;
    this.leave(client);
    if (next === undefined) return;
    client.tag = paid + next;
    this.insert(client);
  }

  /** A client that left comes back to its place. */
  comeBack(client: Client): void {
    const index = this.clients.findIndex(({ tag }) => tag >= client.tag);
    this.clients.splice(index < 0 ? this.clients.length : index, 0, client);
  }

  /** A client waits no more, or not now. */
  leave(client: Client): void {
    const index = this.clients.indexOf(client);
    if (index >= 0) this.clients.splice(index, 1);
  }

  private insert(client: Client): void {
    let [low, high] = [0, this.clients.length];
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (this.clients[middle]!.tag <= client.tag) low = middle + 1;
      else high = middle;
    }
    this.clients.splice(low, 0, client);
  }
}
