/**
 * Streams are answers without an end: after their body, pieces are sent as fast as the receiver reads them. A
 * piece is asked for only when the ones before it are written, so a slow reader costs no memory.
 */
import type { HttpStream } from './types.js';

/** Most streams of one listener; further ones are refused with 503. */
export const MAX_STREAMS = 64;

export interface Outlet {
  /** False: nothing more may be written until `drained`. */
  write(text: string): boolean;
  end(): void;
}

export class OpenStream {
  /** The outlet takes more. */
  private ready = true;
  /** The stream was ended by one of both sides. */
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

  /** The outlet has taken everything that was written. */
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

  /** Ends the stream from this side. */
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

  /** A new stream, which the caller begins. */
  add(source: HttpStream, outlet: Outlet): OpenStream {
    const stream = new OpenStream(source, outlet, (over) => this.open.delete(over));
    this.open.add(stream);
    return stream;
  }

  close(): void {
    for (const stream of [...this.open]) stream.end();
  }
}
