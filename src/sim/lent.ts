/**
 * Parts of a message as the transport lends them: views that end with the call. All share one buffer that is
 * spoiled afterwards, so what a machine kept without copying turns to garbage.
 */
const GARBAGE = 0xa5;
/** Sections start at such multiples; that any other start is right, too, is the engine's own test. */
const ALIGNMENT = 8;
const NONE: readonly Uint8Array[] = [];

export class Lent {
  private buffer = new Uint8Array(1 << 16);
  private used = 0;

  /** Copies that are good until `spoil`. */
  views(parts: readonly Uint8Array[]): readonly Uint8Array[] {
    if (parts.length === 0) return NONE;
    let bytes = 0;
    for (const part of parts) bytes += aligned(part.byteLength);
    if (bytes > this.buffer.byteLength) this.buffer = new Uint8Array(2 * bytes);
    this.used = bytes;
    const views: Uint8Array[] = [];
    let offset = 0;
    for (const part of parts) {
      const view = this.buffer.subarray(offset, offset + part.byteLength);
      view.set(part);
      views.push(view);
      offset += aligned(part.byteLength);
    }
    return views;
  }

  spoil(): void {
    if (this.used > 0) this.buffer.fill(GARBAGE, 0, this.used);
    this.used = 0;
  }
}

function aligned(bytes: number): number {
  return Math.ceil(bytes / ALIGNMENT) * ALIGNMENT;
}
