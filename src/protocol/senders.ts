/**
 * The roles that may send each kind of message, and to which role. Every receiver asks this table about every
 * message before it looks at anything else, so a message from the wrong role changes nothing. A kind without
 * an entry does not compile.
 *
 * The role of a sender belongs to its connection and is fixed when the connection introduces itself: a
 * process that joins, or says hello with an incarnation, is a node; a process that attaches, or says hello
 * without one, is a client. With a token of nodes, the handshake must have proved the same role.
 */
import { KintsugiError } from '../common/errors.js';
import type { Message, MessageOf } from './messages.js';

/** Roles of connections. To the scheduler and the nodes a replica is a client; to its readers, a replica. */
export type Role = 'scheduler' | 'node' | 'client' | 'replica';
export type Flow = `${Role}>${Role}`;

export const ROLES: readonly Role[] = ['scheduler', 'node', 'client', 'replica'];

type Flows = { readonly [K in Message['t']]: readonly Flow[] };

const TABLE = {
  hello: ['client>node', 'node>node', 'client>replica'],
  // Requests, and their answers.
  push: ['client>node'],
  skipTo: ['client>node'],
  pull: ['client>node'],
  keys: ['client>node'],
  evictions: ['client>node'],
  shardStats: ['client>node'],
  check: ['client>node'],
  pushAck: ['node>client'],
  gap: ['node>client'],
  rows: ['node>client'],
  reject: ['node>client'],
  lost: ['node>client'],
  keysPage: ['node>client'],
  evicted: ['node>client'],
  shardStatsReply: ['node>client'],
  checked: ['node>client'],
  // The stream of a shard.
  open: ['node>node'],
  openAck: ['node>node'],
  start: ['node>node'],
  startAck: ['node>node'],
  delta: ['node>node'],
  committed: ['node>node'],
  applied: ['node>node'],
  want: ['node>node'],
  content: ['node>node'],
  lacking: ['node>node'],
  recover: ['node>node'],
  equation: ['node>node'],
  install: ['node>node'],
  // Membership and reports.
  join: ['node>scheduler'],
  heartbeat: ['node>scheduler'],
  sessions: ['node>scheduler'],
  stalled: ['node>scheduler'],
  shardRefused: ['node>scheduler'],
  unrecoverable: ['node>scheduler'],
  moveProgress: ['node>scheduler'],
  reached: ['node>scheduler'],
  pulse: ['node>scheduler'],
  // Decisions.
  welcome: ['scheduler>node', 'scheduler>client'],
  stale: ['scheduler>node', 'scheduler>client'],
  redirect: ['scheduler>node', 'scheduler>client'],
  map: ['scheduler>node', 'scheduler>client'],
  mapDiff: ['scheduler>node', 'scheduler>client'],
  openSessions: ['scheduler>node'],
  sessionsEnded: ['scheduler>node'],
  confirmedLost: ['scheduler>node'],
  movePace: ['scheduler>node'],
  time: ['scheduler>node'],
  reach: ['scheduler>node'],
  leave: ['scheduler>node'],
  // Sessions, tables, changes.
  attach: ['client>scheduler'],
  mapRequest: ['client>scheduler'],
  detach: ['client>scheduler'],
  createTables: ['client>scheduler'],
  tablesCreated: ['scheduler>client'],
  setTable: ['client>scheduler'],
  tableSet: ['scheduler>client'],
  dropTable: ['client>scheduler'],
  tableDropped: ['scheduler>client'],
  status: ['client>scheduler'],
  statusReply: ['scheduler>client'],
  scale: ['client>scheduler'],
  // A node asks to be drained itself.
  drain: ['client>scheduler', 'node>scheduler'],
  rebalance: ['client>scheduler'],
  changeReply: ['scheduler>client', 'scheduler>node'],
  replaceSink: ['client>scheduler'],
  sinkReplaced: ['scheduler>client'],
  // Telemetry.
  observe: ['client>node', 'client>scheduler'],
  observed: ['node>client', 'scheduler>client'],
  workerReport: ['client>scheduler'],
  // Samples.
  openDataset: ['client>scheduler'],
  datasetOpened: ['scheduler>client'],
  extendDataset: ['client>scheduler'],
  datasetExtended: ['scheduler>client'],
  acquire: ['client>scheduler'],
  acquired: ['scheduler>client'],
  rangeProgress: ['client>scheduler'],
  rangeLost: ['scheduler>client'],
  release: ['client>scheduler'],
  released: ['scheduler>client'],
  advance: ['client>scheduler'],
  advanced: ['scheduler>client'],
  datasetStatus: ['client>scheduler'],
  datasetReply: ['scheduler>client'],
  // Checkpoints.
  saveShards: ['scheduler>node'],
  saveProgress: ['node>scheduler'],
  shardSaved: ['node>scheduler'],
  saveFailed: ['node>scheduler'],
  saveEnded: ['scheduler>node'],
  hold: ['scheduler>client'],
  held: ['client>scheduler'],
  resume: ['scheduler>client'],
  loadShard: ['scheduler>node'],
  shardLoaded: ['node>scheduler'],
  loadFailed: ['node>scheduler'],
  restoreLost: ['client>scheduler'],
  restoreReply: ['scheduler>client'],
  setPlan: ['client>scheduler'],
  planSet: ['scheduler>client'],
  saveNow: ['client>scheduler'],
  saveDone: ['scheduler>client'],
  // Replicas.
  follow: ['client>node'],
  followWant: ['client>node'],
  followProbe: ['client>node'],
  followed: ['node>client'],
  followDelta: ['node>client'],
  followContent: ['node>client'],
  followProbed: ['node>client'],
  replicaReport: ['client>scheduler'],
  replicaHeard: ['scheduler>client'],
  read: ['client>replica'],
  readRows: ['replica>client'],
  readRefused: ['replica>client'],
  // Events.
  events: ['client>scheduler'],
  eventsReply: ['scheduler>client'],
  tellEvent: ['client>scheduler'],
  eventTold: ['scheduler>client'],
} as const satisfies Flows;

export const FLOWS: Flows = TABLE;

/** The kinds of messages of a flow. */
export type KindOf<F extends Flow> = {
  [K in Message['t']]: F extends (typeof TABLE)[K][number] ? K : never;
}[Message['t']];

/** The messages that a role receives, from any other. */
export type MessageTo<R extends Role> = MessageOf<KindOf<`${Role}>${R}`>>;

type Kinds = ReadonlySet<Message['t']>;

function kindsOf(flow: Flow): Kinds {
  const kinds = Object.keys(FLOWS) as Message['t'][];
  return new Set(kinds.filter((kind) => FLOWS[kind].includes(flow)));
}

function byRole<T>(of: (role: Role) => T): Record<Role, T> {
  return Object.fromEntries(ROLES.map((role) => [role, of(role)])) as Record<Role, T>;
}

/** Kinds by sender and receiver, ready for the question that every message asks. */
const ALLOWED = byRole((from) => byRole((to) => kindsOf(`${from}>${to}`)));

export function maySend(from: Role, to: Role, kind: Message['t']): boolean {
  return ALLOWED[from][to].has(kind);
}

/** Called by a receiver for every message, before anything else. @throws FORBIDDEN */
export function checkMessage<R extends Role>(
  from: Role,
  to: R,
  message: Message,
): asserts message is MessageTo<R> {
  checkSender(from, to, message.t);
}

/** `checkMessage` of a kind alone. @throws FORBIDDEN */
export function checkSender(from: Role, to: Role, kind: Message['t']): void {
  if (maySend(from, to, kind)) return;
  throw new KintsugiError('FORBIDDEN', `a ${from} may not send "${kind}" to a ${to}`);
}
