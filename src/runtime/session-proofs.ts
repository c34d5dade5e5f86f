/**
 * Who may speak for a session. The scheduler gives a proof with every session that it opens: in the welcome
 * of a client, and with the lease of a range. A client that says hello, reconnects or pushes under that
 * session shows the proof. Nodes verify it without asking anybody, because it is a mac of the session's id
 * under the token of nodes. Nothing is kept for it, so it survives every restart.
 *
 * With one token for all, every client could make proofs itself: they guard against mistakes then, and not
 * against malice. Without any token there are none.
 */
import { createHmac, timingSafeEqual } from 'node:crypto';
import type { PeerId } from '../protocol/map.js';

const CONTEXT = 'kintsugi session 1 ';
/** Bytes of a proof: with 128 bits it cannot be guessed. */
const PROOF_BYTES = 16;
/** Proofs that are remembered, because each push under the session of a range shows one. */
const MAX_KNOWN = 4096;

export interface Secrets {
  /** Shared by everybody; with a token of nodes, by clients and those who serve them. */
  token?: string | undefined;
  /** Shared by the scheduler and the PS. */
  nodeToken?: string | undefined;
}

/** What a scheduler or a PS shows when it dials. */
export function ownToken({ token, nodeToken }: Secrets): string | undefined {
  return nodeToken || token;
}

export class SessionProofs {
  private readonly secret: string | undefined;
  private job = '';
  private readonly known = new Map<PeerId, Uint8Array>();

  constructor(secrets: Secrets) {
    this.secret = ownToken(secrets);
  }

  /** Undefined in a job without tokens. */
  of(job: string, session: PeerId): Uint8Array | undefined {
    if (!this.secret) return undefined;
    const mac = createHmac('sha256', this.secret).update(`${CONTEXT}${session} ${job}`).digest();
    return mac.subarray(0, PROOF_BYTES);
  }

  /** True if `proof` is that of the session; always in a job without tokens. */
  holds(job: string, session: PeerId, proof: Uint8Array | undefined): boolean {
    if (!this.secret) return true;
    const right = this.remembered(job, session);
    return proof?.byteLength === right.byteLength && timingSafeEqual(proof, right);
  }

  private remembered(job: string, session: PeerId): Uint8Array {
    if (job !== this.job) {
      this.job = job;
      this.known.clear();
    }
    const known = this.known.get(session);
    if (known) return known;
    const proof = this.of(job, session)!;
    this.known.set(session, proof);
    if (this.known.size > MAX_KNOWN) this.known.delete(this.known.keys().next().value!);
    return proof;
  }
}
