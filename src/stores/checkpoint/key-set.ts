/** A set of 64-bit keys: a slot has 8 bytes, up to three quarters of them are in use, no key is a BigInt. */
export class KeySet {
  /** Two words for a slot. The key of all ones is reserved, so it marks slots that are free. */
  private slots = freeSlots(1024);
  private count = 0;

  get bytes(): number {
    return this.slots.byteLength;
  }

  get size(): number {
    return this.count;
  }

  has(low: number, high: number): boolean {
    const { slots } = this;
    if (low === FREE && high === FREE) return false;
    const at = this.find(low, high);
    return slots[at] === low && slots[at + 1] === high;
  }

  addAll(keys: BigUint64Array): void {
    const words = wordsOfKeys(keys);
    for (let at = 0; at < words.length; at += 2) this.add(words[at]!, words[at + 1]!);
  }

  /** All keys, in lists of up to `most`. */
  *lists(most = 65_536): Generator<BigUint64Array> {
    const { slots } = this;
    let list = new Uint32Array(2 * most);
    let end = 0;
    for (let at = 0; at < slots.length; at += 2) {
      if (slots[at] === FREE && slots[at + 1] === FREE) continue;
      list[end++] = slots[at]!;
      list[end++] = slots[at + 1]!;
      if (end < list.length) continue;
      yield new BigUint64Array(list.buffer);
      [list, end] = [new Uint32Array(2 * most), 0];
    }
    if (end > 0) yield new BigUint64Array(list.buffer, 0, end / 2);
  }

  /** Keys of the array that are in the set; one that comes twice counts twice. */
  countOf(keys: BigUint64Array): number {
    const words = wordsOfKeys(keys);
    let count = 0;
    for (let at = 0; at < words.length; at += 2) if (this.has(words[at]!, words[at + 1]!)) count++;
    return count;
  }

  /** Adds a key; false: it was there. */
  add(low: number, high: number): boolean {
    if (this.has(low, high)) return false;
    if (4 * (this.count + 1) > 3 * (this.slots.length / 2)) this.grow();
    this.put(low, high);
    this.count++;
    return true;
  }

  private put(low: number, high: number): void {
    const at = this.find(low, high);
    this.slots[at] = low;
    this.slots[at + 1] = high;
  }

  /** Slot where a key is, or would be. */
  private find(low: number, high: number): number {
    const { slots } = this;
    const mask = slots.length / 2 - 1;
    let at = mix(low, high) & mask;
    for (; ; at = (at + 1) & mask) {
      const [a, b] = [slots[2 * at]!, slots[2 * at + 1]!];
      if ((a === low && b === high) || (a === FREE && b === FREE)) return 2 * at;
    }
  }

  private grow(): void {
    const old = this.slots;
    this.slots = freeSlots(old.length);
    for (let at = 0; at < old.length; at += 2) {
      const [low, high] = [old[at]!, old[at + 1]!];
      if (low !== FREE || high !== FREE) this.put(low, high);
    }
  }
}

const FREE = 0xffffffff;

/** Two words of each key, the lower one first; the same memory. */
export function wordsOfKeys({ buffer, byteOffset, length }: BigUint64Array): Uint32Array {
  return new Uint32Array(buffer, byteOffset, 2 * length);
}

function freeSlots(count: number): Uint32Array {
  return new Uint32Array(2 * count).fill(FREE);
}

/** A number from 0 to 2^32-1 whose bits depend on all bits of a key. */
export function mix(low: number, high: number): number {
  let z = Math.imul(high ^ 0x9e3779b9, 0x85ebca6b) ^ low;
  z = Math.imul(z ^ (z >>> 16), 0x21f0aaad);
  z = Math.imul(z ^ (z >>> 15), 0x735a2d97);
  return (z ^ (z >>> 15)) >>> 0;
}
