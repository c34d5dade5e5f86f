/**
 * Proofs of sessions. The scheduler gives a proof with every session that it opens: in the welcome of a
 * client, and with the lease of a range. A client that says hello, reconnects or pushes under that session
 * shows the proof. Nodes verify it without asking anybody, because it is a mac of the session's id under the
 * token of nodes. No process keeps it, so it survives every restart.
 *
 * With one token for all, every client could make proofs itself: proofs then guard against mistakes, and not
 * against malice. Without any token there are no proofs.
 */
import { createHmac, timingSafeEqual } from 'node:crypto';
import type { PeerId } from '../protocol/map.js';

const CONTEXT = 'kintsugi session 1 ';
/** Bytes of a proof: with 128 bits it cannot be guessed. */
const PROOF_BYTES = 16;
/** Proofs that are remembered, because each push under the session of a range shows one. */
const MAX_KNOWN = 4096;

export interface ProofSecrets {
  /** Token of the job, which every process has. */
  token?: string | undefined;
  /** Token of nodes, which only the scheduler and the PS have. */
  nodeToken?: string | undefined;
}

/** The token with which a scheduler or a PS dials. */
export function ownToken({ token, nodeToken }: ProofSecrets): string | undefined {
  return nodeToken || token;
}

export class SessionProofs {
  /** Key of the macs; undefined in a job without tokens. */
  private readonly secret: string | undefined;
  /** Job of the proofs in `known`. */
  private job = '';
  /** Session -> its proof, of the newest `MAX_KNOWN` that were asked for. */
  private readonly known = new Map<PeerId, Uint8Array>();

  constructor(secrets: ProofSecrets) {
    this.secret = ownToken(secrets);
  }

  /** The proof of a session; undefined in a job without tokens. */
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
