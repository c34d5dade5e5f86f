/**
 * A small recovery inside this process, at the start of a PS. V8 interprets code that has not run yet.
 * Without the rehearsal, compiling it would take the first second after a loss, in which requests wait. So
 * each PS loses a shard of a group of its own making and decodes it, with the same machines, engine and
 * frames as a real recovery.
 */

import { invariant } from '../../common/errors.js';
import { PsNode } from '../../core/node/node.js';
import type { Effect } from '../../core/shared/outbox.js';
import { DEFAULT_POLICY } from '../../core/shared/policy.js';
import { loadNative } from '../../engine/native.js';
import { decodeFrame, encodeFrame } from '../../protocol/frame.js';
import { packItems } from '../../protocol/items.js';
import {
  CAPABILITIES,
  type ClusterMap,
  INITIAL_GENERATION,
  type PeerId,
  SCHEDULER,
} from '../../protocol/map.js';
import type { Message } from '../../protocol/messages.js';
import type { Role } from '../../protocol/senders.js';
import { toMessage } from '../../protocol/validate.js';

const LOST = 1;
const OTHER = 2;
const PARITY = 3;
const SPARE = 4;
/** Numbers and times of the kinds that a job has: V8 throws code for small integers away for others. */
const CLIENT = 2 ** 47 + 5;
const BEGIN_MS = 1_000_000.25;
const TICK_MS = 20.125;
const SHARDS = 2;
const ROUNDS = 2;

const TABLE = 1;
const DIM = 16;
const ROWS = 8192;
const PUSHES = 32;
const MOST_TICKS = 1000;
/** Many small messages: V8 compiles what runs often, whatever the number of bytes. */
const POLICY = { ...DEFAULT_POLICY, recoveryChunk: 1, recoveryWindow: 64, maxAnswerBytes: 1 << 30 };

function roleOf(peer: PeerId): Role {
  if (peer === SCHEDULER) return 'scheduler';
  return peer === CLIENT ? 'client' : 'node';
}

class Rehearsal {
  private readonly native = loadNative();
  private readonly nodes = new Map<PeerId, PsNode>();
  private queue: { from: PeerId; to: PeerId; frame: Uint8Array }[] = [];
  private now = BEGIN_MS;

  constructor() {
    for (const id of [LOST, OTHER, PARITY, SPARE])
      this.nodes.set(id, new PsNode(id, 1, this.native, this.native.createMemory(0), POLICY));
  }

  /** Decodes the lost shard; true when all of it came back. */
  run(): boolean {
    this.announce(mapOf(1, LOST));
    for (let cseq = 1; cseq <= PUSHES; cseq++) {
      for (let m = 0; m < SHARDS; m++) {
        const owner = m === 0 ? LOST : OTHER;
        const rows = this.request(cseq - 1, new Float32Array((ROWS / PUSHES) * DIM).fill(cseq));
        const items = packItems('push', [[0, m, cseq, rows.byteLength]]);
        this.send(CLIENT, owner, { t: 'push', epoch: 1, items }, [rows]);
      }
      this.tick();
    }
    this.nodes.get(LOST)?.close();
    this.nodes.delete(LOST);
    this.announce(mapOf(2, SPARE));
    for (let tick = 0; tick < MOST_TICKS; tick++) {
      this.tick();
      if (this.nodes.get(SPARE)?.ownerAt(0, 0)?.complete) return true;
      // Requests for rows that are not back yet.
      const wanted = this.request(tick % PUSHES);
      const items = packItems('pull', [[0, 0, wanted.byteLength]]);
      this.send(CLIENT, SPARE, { t: 'pull', epoch: 2, id: tick, items }, [wanted]);
    }
    return false;
  }

  close(): void {
    for (const node of this.nodes.values()) node.close();
  }

  private announce(map: ClusterMap): void {
    for (const id of this.nodes.keys()) this.send(SCHEDULER, id, { t: 'map', map });
    this.deliver();
  }

  private tick(): void {
    this.now += TICK_MS;
    for (const [id, node] of this.nodes) this.carryOut(id, node.step({ kind: 'tick', now: this.now }));
    this.deliver();
  }

  private deliver(): void {
    while (this.queue.length > 0) {
      const arrived = this.queue;
      this.queue = [];
      for (const { from, to, frame } of arrived) {
        const { header, parts } = decodeFrame(frame);
        const message = toMessage(header);
        const input = { kind: 'message' as const, from, role: roleOf(from), message, parts };
        this.carryOut(to, this.nodes.get(to)?.step(input) ?? []);
      }
      for (const [id, node] of this.nodes) {
        this.carryOut(id, node.step({ kind: 'flush' }));
        if (node.needsTurn) this.carryOut(id, node.step({ kind: 'turn' }));
      }
    }
  }

  private carryOut(from: PeerId, effects: readonly Effect[]): void {
    for (const effect of effects)
      if (effect.kind === 'send') this.send(from, effect.to, effect.message, effect.parts);
  }

  private send(from: PeerId, to: PeerId, message: Message, parts: readonly Uint8Array[] = []): void {
    if (this.nodes.has(to)) this.queue.push({ from, to, frame: encodeFrame(message, parts) });
  }

  /** The `n`-th part of the keys, with gradients in a push. */
  private request(n: number, rows?: Float32Array): Uint8Array {
    const count = ROWS / PUSHES;
    const keys = BigUint64Array.from({ length: count }, (_, i) => BigInt(n * count + i));
    const order = Uint32Array.from({ length: count }, (_, i) => i);
    const part = { table: TABLE, width: DIM, keys, order, start: 0, end: count };
    return this.native.encodeRequest(0, [rows ? { ...part, rows } : part]);
  }
}

/** A group of two data shards and a parity; `owner` holds the first shard. */
function mapOf(epoch: number, owner: PeerId): ClusterMap {
  const init = owner === LOST;
  return {
    epoch,
    job: 'rehearsal',
    pools: [{ name: 'embedding', k: SHARDS, r: 1, firstGroup: 0, groups: 1 }],
    groups: [
      {
        id: 0,
        pool: 0,
        version: epoch,
        data: [
          { node: owner, inc: 1, gen: init ? INITIAL_GENERATION : epoch, init },
          { node: OTHER, inc: 1, gen: INITIAL_GENERATION, init: true },
        ],
        sinks: [{ sid: 1, kind: 'P', index: 0, node: PARITY, inc: 1, init: true, ...CAPABILITIES.P }],
      },
    ],
    nodes: [],
    tables: [
      {
        id: TABLE,
        name: 'rehearsal',
        pool: 'embedding',
        dim: DIM,
        optimizer: { kind: 'sgd', lr: 0.1 },
        initializer: { kind: 'zeros' },
        seed: 1,
      },
    ],
  };
}

/** Takes about a tenth of a second of processor time, once per process. */
export function rehearse(): void {
  for (let round = 0; round < ROUNDS; round++) {
    const rehearsal = new Rehearsal();
    const complete = rehearsal.run();
    rehearsal.close();
    invariant(complete, 'a rehearsed recovery ends', { round });
  }
}
