/**
 * A job on virtual time: the real scheduler, one real PS beside a simulated one, and as many simulated PS and
 * workers as are asked for. A message of one turn arrives in the next; none is lost.
 */
import { DEFAULT_CLIENT_POLICY, PsClientCore } from '../../core/client/client.js';
import type { NativeAddon } from '../../engine/native.js';
import { decodeFrame, encodeFrame } from '../../protocol/frame.js';
import { EMPTY_MAP, SCHEDULER } from '../../protocol/map.js';
import { changeBy } from '../../protocol/map-diff.js';
import type { Message, MoveStatus } from '../../protocol/messages.js';
import { toMessage } from '../../protocol/validate.js';
import { Random } from '../random.js';
import type { ScaleConfig } from './config.js';
import { ControlActor, type ControlLetter } from './control.js';
import type { ScaleMeter } from './meter.js';
import { Nodes, type SimNode } from './nodes.js';
import { RealPs } from './real-ps.js';
import { ScaleWorkers, type SimWorker } from './workers.js';

const TURN_MS = 10;
/** Number of the question of a dry run. */
const DRY_RUN = 1 << 22;

type ScalePeer = { node: SimNode } | { worker: SimWorker };

export class ScaleWorld {
  now = 0;
  readonly control: ControlActor;
  readonly nodes: Nodes;
  readonly workers: ScaleWorkers;
  readonly real: RealPs | undefined;
  /** True: no process sends anything by itself, so that the cost of one event can be measured. */
  quiet = false;
  /** Maps that were sent since the start. */
  maps = 0;
  private readonly peers = new Map<number, ScalePeer>();
  /** The client code of one worker. */
  private readonly client = new PsClientCore(DEFAULT_CLIENT_POLICY);
  private nextLink = 1;
  /** Moves in the answer to a dry run. */
  private moves: MoveStatus[] | undefined;
  /** A client whose attaching is measured. */
  private visitor: { link: number; ms: number | undefined } | undefined;

  constructor(
    readonly config: ScaleConfig,
    readonly meter: ScaleMeter,
    native?: NativeAddon,
    seed = 1,
  ) {
    const random = new Random(seed);
    this.control = new ControlActor(config, meter);
    this.nodes = new Nodes(config, random, (node, message) => this.post('ps', node.link, message));
    this.workers = new ScaleWorkers(config, random, (worker, message) =>
      this.fromWorker(worker, worker.link, message),
    );
    this.real = native && new RealPs(native, meter, config.rows);
  }

  private fromWorker({ index }: SimWorker, link: number, message: Message): void {
    if (index > 0) return this.post('worker', link, message);
    const frame = this.meter.on('worker', 'encode', () => encodeFrame(message));
    this.post('worker', link, message, frame);
  }

  private post(role: 'ps' | 'worker', link: number, message: Message, frame = encodeFrame(message)): void {
    this.meter.toScheduler(role, frame.byteLength);
    this.control.arrived(link, frame);
  }

  // ---- membership

  join(node: SimNode): void {
    node.link = this.nextLink++;
    node.up = true;
    this.peers.set(node.link, { node });
    this.post('ps', node.link, this.nodes.join(node));
  }

  attach(worker: SimWorker): void {
    worker.link = this.nextLink++;
    this.peers.set(worker.link, { worker });
    this.fromWorker(worker, worker.link, { t: 'attach' });
  }

  /** Kills a process: the scheduler's connection to it ends. */
  kill(node: SimNode): void {
    this.control.closed(node.link, node.inc);
    this.peers.delete(node.link);
    this.nodes.die(node);
  }

  // ---- time

  turn(): void {
    if (!this.quiet) {
      this.nodes.turn(this.now);
      this.workers.turn(this.now);
      this.real?.tick(this.now);
    }
    for (const letter of this.control.turn(this.now)) this.deliver(letter);
    this.probe();
    this.now += TURN_MS;
  }

  private probe(): void {
    const { probes } = this.control;
    this.control.probes = [];
    for (const { node, inc } of probes) {
      const gone = this.nodes.byPeer(node)?.up !== true;
      this.control.input({ kind: gone ? 'refused' : 'listening', node, inc });
    }
  }

  run(ms: number, budgetMs = Number.POSITIVE_INFINITY): void {
    const end = this.now + ms;
    while (this.now < end && this.meter.counts.scheduler.cpuMs < budgetMs) this.turn();
  }

  /** Runs turns until `done`. @throws when it takes longer than `limitMs` */
  until(done: () => boolean, limitMs: number, what: string): void {
    const end = this.now + limitMs;
    while (!done()) {
      if (this.now >= end) throw new Error(`the scale simulation waited ${limitMs} ms for ${what}`);
      this.turn();
    }
  }

  get redundant(): boolean {
    return this.control.scheduler.summary().redundancy === 'full';
  }

  // ---- messages of the scheduler

  private deliver({ links, message, frame }: ControlLetter): void {
    if (message.t === 'map' || message.t === 'mapDiff') this.maps++;
    for (const link of links) this.hand(link, message, frame);
  }

  private hand(link: number, message: Message, frame: Uint8Array): void {
    const peer = this.peers.get(link);
    if (!peer) return;
    const role = 'node' in peer ? 'ps' : 'worker';
    this.meter.fromScheduler(role, link, frame.byteLength);
    if ('node' in peer) this.toNode(peer.node, message, frame);
    else this.toWorker(peer.worker, message, frame);
  }

  private toNode(node: SimNode, message: Message, frame: Uint8Array): void {
    if (node.index === 0) this.real?.receive(frame);
    if (message.t === 'welcome') this.nodes.welcome(node, message, this.now);
    if (message.t !== 'map' && message.t !== 'mapDiff') return;
    const change = changeBy(this.nodes.map ?? EMPTY_MAP, message);
    if (change === 'gap') return;
    if (change !== 'known') this.nodes.learn(change.map, this.now);
    node.epoch = Math.max(node.epoch, message.t === 'map' ? message.map.epoch : message.to);
  }

  private toWorker(worker: SimWorker, message: Message, frame: Uint8Array): void {
    if (worker.index === 0) this.read(frame, this.client);
    if (this.visitor?.link === worker.link && message.t === 'welcome') this.visitor.ms = this.visit(frame);
    if (message.t === 'changeReply' && message.id === DRY_RUN) this.moves = message.moves;
    if (message.t === 'acquired' && message.range) this.real?.train(message.session);
    this.workers.receive(worker, message, this.now);
  }

  /** Reads a frame with the real code of a client. */
  private read(frame: Uint8Array, client: PsClientCore): void {
    const read = this.meter.on('worker', 'decode', () => toMessage(decodeFrame(frame).header));
    if (read.t !== 'welcome' && read.t !== 'map' && read.t !== 'mapDiff') return;
    const map = read.t === 'mapDiff' ? read : { t: 'map' as const, map: read.map };
    const input = { kind: 'message' as const, from: SCHEDULER, message: map, parts: [] };
    this.meter.on('worker', 'core', () => client.step(input));
  }

  /** Sends a question of the first worker, without waiting for the answer. */
  ask(message: Message): void {
    const [worker] = this.workers.all;
    this.fromWorker(worker!, worker!.link, message);
  }

  /** The moves that `rebalance --dry-run` answers. */
  rebalance(): MoveStatus[] {
    this.moves = undefined;
    this.ask({ t: 'rebalance', id: DRY_RUN, dryRun: true, timeoutMs: 0 });
    this.until(() => this.moves !== undefined, 1000, 'a plan');
    return this.moves!;
  }

  /** Number of moves that are over. */
  get moved(): number {
    return this.control.events.get('move.done') ?? 0;
  }

  /** Attaches a client. Returns the milliseconds that both ends spend on its full map. */
  newcomer(): number {
    this.control.forgetSamples();
    const worker = this.workers.add();
    const { scheduler } = this.meter.counts;
    const before = scheduler.parts.encode;
    const visitor = { link: this.nextLink, ms: undefined as number | undefined };
    this.visitor = visitor;
    this.attach(worker);
    this.until(() => visitor.ms !== undefined, 1000, 'a welcome');
    const ms = scheduler.parts.encode - before + visitor.ms!;
    this.visitor = undefined;
    return ms;
  }

  /** Processor time of the client's first map, in milliseconds. */
  private visit(frame: Uint8Array): number {
    const { worker } = this.meter.counts;
    const before = worker.cpuMs;
    this.read(frame, new PsClientCore(DEFAULT_CLIENT_POLICY));
    return worker.cpuMs - before;
  }

  close(): void {
    this.real?.close();
  }
}
