/**
 * A whole cluster in one process: for tests, notebooks and trying things out. Real sockets, real roles, one
 * event loop.
 */
import { randomUUID } from 'node:crypto';
import { KintsugiError } from '../common/errors.js';
import {
  checkFunction,
  checkInteger,
  checkLogger,
  checkOptions,
  checkPolicy,
  checkSecret,
  type OptionKeys,
} from '../common/options.js';
import { parseCode, poolsFor } from '../core/placement/job.js';
import {
  DEFAULT_POLICY,
  DEFAULT_SCHEDULER_POLICY,
  type Policy,
  type SchedulerPolicy,
} from '../core/shared/policy.js';
import { createLogger, type Logger } from '../net/log.js';
import { ROLE_TLS, type RoleTls } from '../net/transport/index.js';
import { MemoryStore } from '../stores/decisions/index.js';
import { type RunningPs, startPs } from './ps/ps.js';
import { type RunningScheduler, startScheduler } from './scheduler/scheduler.js';

/** Options of {@link startLocalCluster}. */
export interface LocalClusterOptions {
  /** Number of PS nodes; default k + r. */
  ps?: number | undefined;
  /** `k+r`, or `none`; default 4+1. */
  code?: string | undefined;
  /** Groups of the embedding pool; default: as many as give a PS 4 to 16 data shards. */
  groups?: number | undefined;
  /** Further PS without shards, to take over when a node is lost. Default: 0. */
  standby?: number | undefined;
  /** Shared secret of the job. Default: none. */
  token?: string | undefined;
  /** Second secret, of the scheduler and the PS alone; clients are told `token` only. Default: none. */
  nodeToken?: string | undefined;
  /** Opens /metrics of all roles; default: they are open, because they are on loopback. */
  metricsToken?: string | undefined;
  /** One certificate for all roles; it must hold for 127.0.0.1, or for `serverName`. */
  tls?: RoleTls | undefined;
  /** Limit of each PS for tables and parity; 0: none. Default: 0. */
  memoryBytes?: number | undefined;
  /** Limits and times of each PS. */
  policy?: Partial<Policy> | undefined;
  /** Limits and times of the scheduler. */
  schedulerPolicy?: Partial<SchedulerPolicy> | undefined;
  /** Takes what the roles tell. Default: nobody. */
  log?: Logger | undefined;
  /**
   * Called when a role ended because an invariant is broken: "scheduler", or the name of the node, and an
   * error with code INTERNAL. The role has stopped as in a crash; this process and the other roles live on.
   */
  onFailed?: ((role: string, error: KintsugiError) => void) | undefined;
}

const CLUSTER_OPTIONS = {
  ps: true,
  code: true,
  groups: true,
  standby: true,
  token: checkSecret,
  nodeToken: checkSecret,
  metricsToken: checkSecret,
  tls: true,
  memoryBytes: true,
  policy: true,
  schedulerPolicy: true,
  log: checkLogger,
  onFailed: checkFunction,
} satisfies OptionKeys<LocalClusterOptions>;

/** A running cluster of {@link startLocalCluster}. */
export interface LocalCluster {
  /** host:port for `connect` */
  readonly address: string;
  /** Nodes by index, killed ones too. */
  readonly nodes: readonly RunningPs[];
  /**
   * Stops node `index` without a word, as a crash would.
   * @throws BAD_ARGUMENT when there is no such node
   */
  kill(index: number): Promise<void>;
  /**
   * Starts a node that has ended again, empty, under the same name.
   * @throws BAD_ARGUMENT when there is no such node, or it is up; CLOSED
   */
  restart(index: number): Promise<void>;
  /**
   * Starts one more node; it gets its share of a running job.
   * @throws CLOSED
   */
  add(): Promise<RunningPs>;
  /** Stops every role; nothing is kept. */
  close(): Promise<void>;
}

/**
 * Starts a scheduler and PS nodes in this process: real sockets, one event loop, state in memory.
 *
 * @example
 * ```ts
 * const cluster = await startLocalCluster({ ps: 5, code: '4+1' });
 * const client = await connect(cluster.address);
 * ```
 * @throws NOT_ENOUGH_NODES, BAD_ARGUMENT, ADDON_NOT_LOADED
 */
export async function startLocalCluster(given: LocalClusterOptions = {}): Promise<LocalCluster> {
  checkOptions('startLocalCluster', given, CLUSTER_OPTIONS);
  checkOptions('startLocalCluster: tls', given.tls, ROLE_TLS);
  checkPolicy('startLocalCluster: policy', given.policy, DEFAULT_POLICY);
  checkPolicy('startLocalCluster: schedulerPolicy', given.schedulerPolicy, DEFAULT_SCHEDULER_POLICY);
  // Nodes are started later, too, and the caller may change its objects meanwhile.
  const options = {
    ...given,
    ...{ policy: { ...given.policy }, schedulerPolicy: { ...given.schedulerPolicy } },
    tls: given.tls && { ...given.tls },
  };
  const { standby = 0, memoryBytes = 0 } = options;
  checkInteger('startLocalCluster: standby', standby, 0);
  checkInteger('startLocalCluster: memoryBytes', memoryBytes, 0);
  const code = parseCode(options.code ?? '4+1');
  const ps = options.ps ?? code.k + code.r;
  checkInteger('startLocalCluster: ps', ps, 1);
  if (options.groups !== undefined) checkInteger('startLocalCluster: groups', options.groups, 1);
  const pools = poolsFor(code, ps, options.groups);
  const log = options.log ?? createLogger('none', {});
  const scheduler: RunningScheduler = await startScheduler({
    store: new MemoryStore(),
    job: randomUUID(),
    nodes: ps,
    pools,
    token: options.token,
    nodeToken: options.nodeToken,
    metricsToken: options.metricsToken,
    tls: options.tls,
    policy: options.schedulerPolicy,
    log,
    onFailed: (error) => options.onFailed?.('scheduler', error),
  });
  const onStandby = (index: number) => index >= ps && index < ps + standby;
  const start = async (index: number) => {
    let node: RunningPs | undefined;
    const running = await startPs({
      scheduler: scheduler.address,
      name: `ps-${index}`,
      hostLabel: `host-${index}`,
      standby: onStandby(index),
      token: options.token,
      nodeToken: options.nodeToken,
      metricsToken: options.metricsToken,
      tls: options.tls,
      memoryBytes,
      policy: options.policy,
      log,
      onFailed: (error) => {
        if (node) ended.add(node);
        options.onFailed?.(`ps-${index}`, error);
      },
    });
    const close = () => {
      ended.add(one);
      return running.close();
    };
    const one: RunningPs = { ...running, close };
    node = one;
    // An ending that a supervisor answers by a new start does so here, too; any other ends the node.
    void one.left.then(async ({ restart }) => {
      await one.close();
      if (restart) await again(index);
    });
    return one;
  };
  const again = async (index: number) => {
    try {
      if (!closing) nodes[index] = await start(index);
      if (closing) await nodes[index]?.close();
    } catch (error) {
      if (!closing) options.onFailed?.(`ps-${index}`, error as KintsugiError);
    }
  };
  const nodes: RunningPs[] = [];
  /** Nodes whose processes would be gone; to the others a second one of their name would be a rival. */
  const ended = new WeakSet<RunningPs>();
  const nodeAt = (where: string, index: number) => {
    const node = Number.isInteger(index) ? nodes[index] : undefined;
    if (node) return node;
    throw new KintsugiError('BAD_ARGUMENT', `${where}: there is no node ${String(index)}`);
  };
  const checkOpen = () => {
    if (closing) throw new KintsugiError('CLOSED', 'the cluster is closed');
  };
  let closing = false;
  /**
   * Index of the next node that is added; never given twice, because a name belongs to one process at a time.
   */
  let nextIndex = ps + standby;
  const close = async () => {
    closing = true;
    // First: to a scheduler that lives, nodes that end are losses, which it would begin to recover.
    await scheduler.close();
    // An index without a node: adding it failed, or is under way.
    for (const node of nodes) await node?.close();
  };
  try {
    for (let index = 0; index < ps + standby; index++) nodes.push(await start(index));
  } catch (error) {
    await close();
    throw error;
  }
  return {
    address: scheduler.address,
    nodes,
    kill: async (index) => nodeAt('kill', index).close(),
    restart: async (index) => {
      const node = nodeAt('restart', index);
      checkOpen();
      if (!ended.delete(node))
        throw new KintsugiError('BAD_ARGUMENT', `restart: node ${index} is up; kill it first`);
      try {
        nodes[index] = await start(index);
      } catch (error) {
        ended.add(node);
        throw error;
      }
    },
    add: async () => {
      checkOpen();
      const index = nextIndex++;
      const node = await start(index);
      nodes[index] = node;
      return node;
    },
    close,
  };
}
