/**
 * Answers that go on: what follows their body is sent piece by piece, as fast as whoever asked reads it. A
 * piece is asked for only when the ones before it are gone, so a slow reader costs no memory.
 */
import type { HttpStream } from './types.js';

/** Of one listener; further ones are refused with 503. */
export const MAX_STREAMS = 64;

export interface Outlet {
  /** False: nothing more may be written until `drained`. */
  write(text: string): boolean;
  end(): void;
}

export class OpenStream {
  private ready = true;
  private over = false;
  private stop: (() => void) | undefined;

  constructor(
    private readonly source: HttpStream,
    private readonly outlet: Outlet,
    private readonly onOver: (stream: OpenStream) => void,
  ) {}

  begin(): void {
    this.stop = this.source.open(() => this.pump());
    this.pump();
  }

  /** What was written is gone. */
  drained(): void {
    this.ready = true;
    this.pump();
  }

  private pump(): void {
    while (this.ready && !this.over) {
      const text = this.source.next();
      if (text === '') return;
      this.ready = this.outlet.write(text);
    }
  }

  /** The other side is gone. */
  closed(): void {
    if (this.over) return;
    this.over = true;
    this.stop?.();
    this.onOver(this);
  }

  /** This side ends it. */
  end(): void {
    if (this.over) return;
    this.closed();
    this.outlet.end();
  }
}

export class Streams {
  private readonly open = new Set<OpenStream>();

  get full(): boolean {
    return this.open.size >= MAX_STREAMS;
  }

  /** Not begun yet. */
  add(source: HttpStream, outlet: Outlet): OpenStream {
    const stream = new OpenStream(source, outlet, (over) => this.open.delete(over));
    this.open.add(stream);
    return stream;
  }

  close(): void {
    for (const stream of [...this.open]) stream.end();
  }
}
