/**
 * A queue of any length. The time of a step does not depend on it: Array.shift moves what is left of a long
 * array.
 */
export class Fifo<T> {
  /** Items that were taken are undefined until they are as many as the others. */
  private items: (T | undefined)[] = [];
  /** Number of items at the beginning that were taken. */
  private taken = 0;

  get length(): number {
    return this.items.length - this.taken;
  }

  get first(): T | undefined {
    return this.items[this.taken];
  }

  push(item: T): void {
    this.items.push(item);
  }

  /** Takes the oldest item out. */
  shift(): T | undefined {
    const { first } = this;
    if (this.length === 0) return undefined;
    this.items[this.taken++] = undefined;
    if (this.length === 0) this.takeAll();
    else if (this.taken > this.length) this.dropTaken();
    return first;
  }

  /** Takes all items out, oldest first. */
  takeAll(): T[] {
    this.dropTaken();
    const all = this.items as T[];
    this.items = [];
    return all;
  }

  private dropTaken(): void {
    if (this.taken > 0) this.items = this.items.slice(this.taken);
    this.taken = 0;
  }
}
