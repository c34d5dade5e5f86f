/**
 * A list that stays in order while weights change one by one: a thousand nodes are sorted once and not at
 * every move of a plan.
 */
export class Ranking<T> {
  /** The items by weight, then by `tie`. */
  private readonly order: T[];
  /** The items, which stay the same. */
  private readonly items: ReadonlySet<T>;

  /** `tie`: the order of items that weigh the same; never 0 for two different ones. */
  constructor(
    items: readonly T[],
    private readonly weight: (item: T) => number,
    private readonly tie: (a: T, b: T) => number,
  ) {
    this.items = new Set(items);
    this.order = this.sorted(items);
  }

  /** The items, the lightest first. */
  get ascending(): readonly T[] {
    return this.order;
  }

  has(item: T): boolean {
    return this.items.has(item);
  }

  sorted(items: Iterable<T>): T[] {
    return [...items].sort((a, b) => this.compare(a, b));
  }

  private compare(a: T, b: T): number {
    return this.weight(a) - this.weight(b) || this.tie(a, b);
  }

  /** Puts an item where it belongs after `change` gave it another weight. */
  change(item: T, change: () => void): void {
    if (!this.has(item)) return change();
    this.order.splice(this.positionOf(item), 1);
    change();
    this.order.splice(this.positionOf(item), 0, item);
  }

  /** Index of the item in the order, or that at which it would be inserted. */
  private positionOf(item: T): number {
    let [low, high] = [0, this.order.length];
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (this.compare(this.order[middle]!, item) < 0) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}
