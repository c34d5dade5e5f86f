/**
 * Users set the policy of the table whose rows go by themselves, one after the other. Workers that were
 * started with earlier policies come again and change nothing, and copies of questions that were answered
 * come late. Governors draw from randomness of their own.
 */
import { isSamePolicy, type TablePolicy } from '../engine/policies.js';
import type { SavedTable } from '../protocol/checkpoints.js';
import { SCHEDULER } from '../protocol/map.js';
import type { Message, MessageOf } from '../protocol/messages.js';
import { type Asked, Asking } from './asking.js';
import type { SimulatedCluster } from './cluster.js';
import { LEARNERS } from './learners.js';
import { Random } from './random.js';
import { type SimTable, specOf } from './tables.js';
import { Violation } from './violation.js';

/** Chance per step. */
const RATE = 0.01;
/** Questions of others have other numbers. */
const FIRST_QUESTION = 1_500_000;
const LAST_QUESTION = 1_999_999;

/** The policy when 0, 1, ... were set. A row begins to learn with its second sighting under each. */
const POLICIES: readonly TablePolicy[] = [
  LEARNERS.e.policy!,
  { ttl: 1, counter: 2 },
  { ttl: 40, minFrequency: { sightings: 4, ttl: 30 }, counter: 2 },
  { ttl: 2, minFrequency: { sightings: 2, ttl: 1 }, counter: 2 },
  { l2Below: { norm: 0.3, ttl: 3 }, counter: 2 },
  { ttl: 20, l2Below: { norm: 0.05, ttl: 2 }, counter: 2 },
];

/** Draws the seed of the governors of a schedule; 0: it has none. */
export function policiesOf(seed: number): { policies: number } {
  const random = new Random(seed + 0x90c1);
  return { policies: random.chance(0.2) ? 1 + random.below(1 << 30) : 0 };
}

export class Governors {
  /** Policies that were set, as somebody was told. */
  told = 0;
  /** Policies that somebody has asked to set. */
  private asked = 0;
  private readonly random: Random;
  private readonly table: SimTable | undefined;
  private readonly asking: Asking<MessageOf<'setTable'>>;
  private answered: Asked<MessageOf<'setTable'>>[] = [];
  private next = FIRST_QUESTION;

  constructor(
    private readonly cluster: SimulatedCluster,
    tables: readonly SimTable[],
  ) {
    const { policies } = cluster.config;
    this.random = new Random(policies);
    this.asking = new Asking(cluster);
    this.table = policies === 0 ? undefined : tables.find(({ learner }) => learner === LEARNERS.e);
  }

  get finished(): boolean {
    return this.asking.current === undefined;
  }

  /** Policies of which one holds in a shard that has applied a push which began when so many were set. */
  possible(since: number): readonly TablePolicy[] {
    return POLICIES.slice(since, this.asked + 1);
  }

  /** Called once per step. */
  strike(): void {
    const { cluster, random, asking, table } = this;
    if (!table || cluster.phase !== 'running' || asking.goesOn() || !random.chance(RATE)) return;
    const index = 1 + cluster.nodes.length + random.below(cluster.config.clients);
    const client = cluster.clientAt(index)?.id;
    if (client === undefined) return;
    if (this.told > 0 && random.chance(0.3)) this.repeat(index, table);
    else if (this.told < POLICIES.length - 1) {
      this.asked = Math.max(this.asked, this.told + 1);
      const policy = { ...POLICIES[this.told + 1]! };
      asking.ask(index, client, { t: 'setTable', id: this.next++, name: table.name, policy });
    }
  }

  /** A question that was answered comes again, or a worker that was started with an earlier policy. */
  private repeat(index: number, table: SimTable): void {
    const { cluster, random, answered, asking } = this;
    if (answered.length > 0 && random.chance(0.5)) {
      if (asking.comeLate(random.pick(answered))) cluster.count('oldPolicyQuestion');
      return;
    }
    cluster.count('oldPolicy');
    const specs = [{ ...specOf(table), policy: { ...POLICIES[random.below(this.told)]! } }];
    cluster.transmit(index, SCHEDULER, { t: 'createTables', id: this.next++, specs }, []);
  }

  /** True if the message was for a governor. */
  received(index: number, message: Message): boolean {
    if (message.t !== 'tableSet' && message.t !== 'tablesCreated') return false;
    if (message.id < FIRST_QUESTION || message.id > LAST_QUESTION) return false;
    if (message.code) throw new Violation(`a policy cannot be set: ${message.message}`);
    const asked = this.asking.answeredBy(index, message);
    if (!asked) return true;
    this.asking.current = undefined;
    this.told++;
    this.answered.push(asked);
    this.cluster.count('policySet');
    return true;
  }

  /** The job is restored from a checkpoint with these tables. */
  rewind(tables: readonly SavedTable[]): void {
    this.asking.current = undefined;
    this.answered = [];
    const saved = tables.find(({ name }) => name === this.table?.name);
    if (!saved) return;
    this.told = this.asked = POLICIES.findIndex((policy) => isSamePolicy(policy, saved.policy));
    if (this.told < 0) throw new Violation(`table ${saved.name} is saved with a policy that nobody set`);
  }
}
