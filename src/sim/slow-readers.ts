/**
 * Clients whose sockets take the answers of nodes late, or never: those are hung up. What the network has not
 * delivered to a client is what the link of its node holds. A pull of any other client is answered before a
 * schedule ends (Traffic.checked). Without a seed every socket takes everything
 * at once, and nothing else of a schedule depends on this file.
 */
import type { PsNode } from '../core/node/node.js';
import type { LinkBytes } from '../core/shared/content-bytes.js';
import type { PeerId } from '../protocol/map.js';
import type { NodeActor } from './actors.js';
import { type SimConfig, silentClients } from './config.js';
import type { Network } from './network.js';
import { Random } from './random.js';
import { Violation } from './violation.js';

/** Chance that a client takes nothing from a node for a spell, and the length of a spell in retry times. */
const SILENCE = 0.3;
const SPELL = 6;

/** The parts of the cluster that slow readers use. */
interface SlowReadersHost {
  readonly config: SimConfig;
  readonly network: Network;
  readonly nodes: readonly NodeActor[];
  readonly clients: readonly unknown[];
  readonly now: number;
  readonly retry: number;
  readonly stormy: boolean;
  readonly actorOf: ReadonlyMap<PeerId, number>;
  count(name: string): void;
  isNode(actor: number): boolean;
  stepNode(actor: number, input: Parameters<PsNode['step']>[0]): void;
}

export class SlowReaders {
  constructor(private readonly cluster: SlowReadersHost) {}

  /** True: the socket of `to` takes nothing from a node now. */
  isSilent(from: number, to: number): boolean {
    const { config, stormy, now, retry } = this.cluster;
    if (config.answers === 0 || !this.cluster.isNode(from) || to === 0 || this.cluster.isNode(to))
      return false;
    if (this.isSilentClient(to)) return true;
    if (!stormy) return false;
    const spell = Math.floor(now / (SPELL * retry));
    const seed = config.answers + Math.imul(from * 64 + to, 7919) + Math.imul(spell, 104_729);
    return new Random(seed).chance(SILENCE);
  }

  /** True for a client that takes nothing from nodes as long as the schedule lasts. */
  isSilentClient(actor: number): boolean {
    const { config, clients, nodes } = this.cluster;
    return actor > nodes.length + clients.length - silentClients(config);
  }

  /** Reports to a node what its links to these clients, and to other nodes, hold. */
  report(index: number, which: 'charged' | 'clients'): void {
    const { config, network, actorOf } = this.cluster;
    const { node } = this.cluster.nodes[index - 1]!;
    if (config.answers !== 0) this.reportNodes(index);
    const clients = node?.answers[which]() ?? [];
    if (!node || clients.length === 0) return;
    const links = clients.map((client) => {
      const target = actorOf.get(client);
      const held = config.answers === 0 || target === undefined ? 0 : network.bytesFrom(index, target);
      return [client, held] as const;
    });
    const waited = node.waiting.count;
    this.cluster.stepNode(index, { kind: 'taken', links });
    if (config.answers === 0) return;
    for (const [, held] of links) if (held > 0) this.cluster.count('slowReader');
    if (node.waiting.count < waited) this.cluster.count('waitingAnswers');
    this.check(index, node, links);
  }

  private reportNodes(index: number): void {
    const { actorOf, network, nodes } = this.cluster;
    const links = new Map<PeerId, LinkBytes>();
    for (const [id, actor] of actorOf)
      if (this.cluster.isNode(actor) && actor !== index) links.set(id, network.linkBytes(index, actor));
    nodes[index - 1]!.node?.reportOutgoing(links);
  }

  /** The connection between two actors ended, as each of them sees it. */
  disconnected(a: number, b: number): void {
    const { answers, turns } = this.cluster.config;
    if (answers === 0 && turns === 0) return;
    for (const [index, other] of [[a, b] as const, [b, a] as const]) {
      if (!this.cluster.isNode(index) || this.cluster.isNode(other) || other === 0) continue;
      for (const [client, actor] of this.cluster.actorOf) {
        if (actor !== other) continue;
        this.cluster.stepNode(index, { kind: 'gone', client });
        const { node } = this.cluster.nodes[index - 1]!;
        if (node?.queuedBytes(client))
          throw new Violation(`node ${index} keeps requests of client ${client} whose link is closed`);
        if (node?.answers.heldBy(client))
          throw new Violation(`node ${index} charges client ${client} what went with its link`);
      }
    }
  }

  /**
   * A client is charged at most what its link holds and what is being gathered for it, and all of the latter,
   * after a report on it; what was served since has been reported, too.
   */
  private check(index: number, { answers }: PsNode, links: readonly (readonly [PeerId, number])[]): void {
    const { network, actorOf } = this.cluster;
    for (const [client] of links) {
      const target = actorOf.get(client);
      const gathering = answers.gatheringFor(client);
      const linkBytes = target === undefined ? 0 : network.bytesFrom(index, target);
      if (answers.heldBy(client) < gathering)
        throw new Violation(`node ${index} gathers for client ${client} what it has not charged`);
      if (answers.heldBy(client) > linkBytes + gathering)
        throw new Violation(`node ${index} charges client ${client} what its socket has taken`);
    }
    const held = answers.clients().reduce((sum, client) => sum + answers.heldBy(client), 0);
    if (held !== answers.used)
      throw new Violation(`node ${index} has ${answers.used} bytes of answers in use; clients hold ${held}`);
  }
}
