/**
 * The real scheduler behind the real codec and validators. All frames that arrive within a turn of virtual
 * time are decoded, handled and answered together, so that the clock is read only a few times a turn.
 */
import { Packr } from 'msgpackr';
import {
  DEFAULT_SCHEDULER_POLICY,
  newJob,
  Scheduler,
  type SchedulerEffect,
  type SchedulerInput,
} from '../../core/scheduler/scheduler.js';
import { decodeFrame, encodeFrame } from '../../protocol/frame.js';
import type { ClusterMap, PeerId } from '../../protocol/map.js';
import type { Message } from '../../protocol/messages.js';
import { maySend } from '../../protocol/senders.js';
import { toMessage } from '../../protocol/validate.js';
import type { ScaleConfig } from './config.js';
import type { ScaleMeter } from './meter.js';

/** The scheduler's runtime ticks in this interval. */
const TICK_MS = 50;
/** Frames with the same map differ in a few bytes: a few are made, and their mean stands for the others. */
const SAMPLES = 3;

/** A message of the scheduler to some links. */
export interface ControlLetter {
  links: readonly number[];
  message: Message;
  frame: Uint8Array;
}

/** Frames of one kind with the same map. */
interface Sampled {
  /** Frames that were made. */
  frames: number;
  /** Processor time that they took. */
  ms: number;
  frame: Uint8Array;
}

export class ControlActor {
  readonly scheduler: Scheduler;
  /** Nodes whose port the scheduler probes. */
  probes: { node: PeerId; inc: number }[] = [];
  readonly events = new Map<string, number>();
  private frames: { link: number; frame: Uint8Array }[] = [];
  private inputs: SchedulerInput[] = [];
  /** Link -> peer, of connections that were admitted. */
  private readonly peers = new Map<number, PeerId>();
  private readonly nodes = new Set<PeerId>();
  private readonly links = new Map<PeerId, number>();
  private readonly packr = new Packr({ useRecords: false });
  private sampled = new WeakMap<ClusterMap, Map<string, Sampled>>();
  /** PS that come back stay empty, so that one phase does not run into the next. */
  private readonly policy = { ...DEFAULT_SCHEDULER_POLICY, balanceJoining: false };

  constructor(
    config: ScaleConfig,
    private readonly meter: ScaleMeter,
  ) {
    const { k, r, groups, ps } = config;
    const job = newJob('scale', ps, [{ name: 'embedding', k, r, groups }]);
    this.scheduler = new Scheduler(job, this.policy, false);
  }

  arrived(link: number, frame: Uint8Array): void {
    this.frames.push({ link, frame });
  }

  input(input: SchedulerInput): void {
    this.inputs.push(input);
  }

  peerOf(link: number): PeerId | undefined {
    return this.peers.get(link);
  }

  closed(link: number, inc: number): void {
    const peer = this.peers.get(link);
    this.peers.delete(link);
    if (peer === undefined || this.links.get(peer) !== link) return;
    this.links.delete(peer);
    this.input({ kind: 'closed', peer, inc, link });
  }

  /** Handles the frames that have arrived, and ticks when it is time. */
  turn(now: number): ControlLetter[] {
    const { frames, meter } = this;
    this.frames = [];
    const messages = meter.on('scheduler', 'decode', () =>
      frames.map(({ link, frame }) => ({ link, message: toMessage(decodeFrame(frame).header) })),
    );
    const inputs = this.inputs;
    this.inputs = [];
    for (const { link, message } of messages) {
      const input = this.inputOf(link, message);
      if (input) inputs.push(input);
    }
    if (now % TICK_MS === 0) inputs.push({ kind: 'tick', now });
    const effects = meter.on('scheduler', 'core', () =>
      inputs.flatMap((input) => this.scheduler.step(input)),
    );
    return effects.flatMap((effect) => this.execute(effect));
  }

  private inputOf(link: number, message: Message): SchedulerInput | undefined {
    if (message.t === 'join' || message.t === 'attach')
      return { kind: message.t, link, message } as SchedulerInput;
    const from = this.peers.get(link);
    if (from === undefined) return undefined;
    return { kind: 'message', from, role: this.nodes.has(from) ? 'node' : 'client', message };
  }

  private execute(effect: SchedulerEffect): ControlLetter[] {
    switch (effect.kind) {
      case 'send': {
        const link = this.links.get(effect.to);
        return link === undefined
          ? []
          : [{ links: [link], message: effect.message, frame: this.encode(effect.message) }];
      }
      case 'reply': {
        const { link, message, admit } = effect;
        if (admit) {
          this.peers.set(link, admit.peer);
          if (admit.inc > 0) this.nodes.add(admit.peer);
          this.links.set(admit.peer, link);
        }
        return [{ links: [link], message, frame: this.encode(message) }];
      }
      case 'broadcast': {
        const { message } = effect;
        const roleOf = (peer: PeerId) => (this.nodes.has(peer) ? 'node' : 'client');
        const receivers = [...this.links].filter(([peer]) => maySend('scheduler', roleOf(peer), message.t));
        const links = receivers.map(([, link]) => link);
        return links.length === 0 ? [] : [{ links, message, frame: this.encode(message) }];
      }
      case 'probe':
        this.probes.push(effect);
        return [];
      case 'persist':
        this.meter.on('scheduler', 'store', () => this.packr.pack(effect.changes));
        this.input({ kind: 'persisted', version: effect.version });
        return [];
      case 'abandon':
      case 'publish':
        return [];
      case 'event':
        this.events.set(effect.name, (this.events.get(effect.name) ?? 0) + 1);
        return [];
    }
  }

  private encode(message: Message): Uint8Array {
    if (!('map' in message)) return this.meter.on('scheduler', 'encode', () => encodeFrame(message));
    let kinds = this.sampled.get(message.map);
    if (!kinds) {
      kinds = new Map();
      this.sampled.set(message.map, kinds);
    }
    const known = kinds.get(message.t) ?? { frames: 0, ms: 0, frame: new Uint8Array(0) };
    kinds.set(message.t, known);
    if (known.frames === SAMPLES) {
      this.meter.charge('scheduler', 'encode', known.ms / known.frames);
      return known.frame;
    }
    const before = this.meter.counts.scheduler.parts.encode;
    known.frame = this.meter.on('scheduler', 'encode', () => encodeFrame(message));
    known.ms += this.meter.counts.scheduler.parts.encode - before;
    known.frames++;
    return known.frame;
  }

  /** Forgets the samples, so that frames with the newest map are made, and measured, again. */
  forgetSamples(): void {
    this.sampled = new WeakMap();
  }

  /** True if a decision is not durable yet, or a probe has not answered. */
  get busy(): boolean {
    return this.inputs.length > 0 || this.probes.length > 0;
  }
}
