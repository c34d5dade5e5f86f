/** The library: connect to a job, create tables, pull rows, push gradients. */

import { KintsugiError } from '../../common/errors.js';
import {
  checkFields,
  checkFloat,
  checkInteger,
  checkOptions,
  checkPolicy,
  checkTimeout,
} from '../../common/options.js';
import { DEFAULT_CLIENT_POLICY } from '../../core/client/client.js';
import { CLIENT_TLS } from '../../net/transport/index.js';
import type { Client } from './api.js';
import { ConnectedClient } from './connected.js';
import { CONNECT_OPTIONS, type ConnectOptions, REPLICA_OPTIONS, type ReplicaOptions } from './options.js';
import { ReplicaReads, type ReplicaReadsHost } from './replica-reads.js';
import { Session } from './session.js';

export type { Client } from './api.js';
export type { EventsOptions } from './events.js';
export type { JobSnapshot, ObservedNode, ObserveOptions } from './observe.js';
export type {
  CheckpointResult,
  ConnectOptions,
  EvictionBatch,
  EvictionPosition,
  EvictionsOptions,
  PullInto,
  PullOptions,
  PullRequest,
  PushCounts,
  PushOptions,
  PushRequest,
  ReplicaAnswer,
  ReplicaOptions,
  RequestOptions,
  ScanBatch,
  ScanOptions,
  Table,
  TableChanges,
  TableOptions,
} from './options.js';
export type { RestoredLost, RestoreLostOptions } from './restore.js';

/**
 * Connects to a running job.
 *
 * @example
 * ```ts
 * const client = await connect('scheduler-host:7077', { token: process.env.KINTSUGI_TOKEN });
 * ```
 * @param scheduler address of the scheduler, host:port; of several, a list or one text with commas between
 * @throws UNREACHABLE, UNAUTHORIZED, NOT_ENOUGH_NODES (the job has not started), BAD_ARGUMENT,
 * ADDON_NOT_LOADED, ABORTED
 */
export async function connect(
  scheduler: string | readonly string[],
  options: ConnectOptions = {},
): Promise<Client> {
  checkFields('connect', options, CONNECT_OPTIONS);
  const { connectTimeoutMs, maxInFlightBytes } = options;
  if (connectTimeoutMs !== undefined) checkTimeout('connect: connectTimeoutMs', connectTimeoutMs);
  if (maxInFlightBytes !== undefined) checkInteger('connect: maxInFlightBytes', maxInFlightBytes, 1);
  checkOptions('connect: tls', options.tls, CLIENT_TLS);
  checkPolicy('connect: policy', options.policy, DEFAULT_CLIENT_POLICY);
  const reads = replicaOptions(options.replica);
  // The caller may change its objects while these are used.
  const { tls, policy } = options;
  const own = { ...options, ...(tls && { tls: { ...tls } }), ...(policy && { policy: { ...policy } }) };
  const session = await Session.open([scheduler].flat().join(','), own);
  const replicas = reads && new ReplicaReads(hostOf(session, own), reads);
  const client = new ConnectedClient(session, own.audit ?? false, replicas);
  try {
    if (own.audit) await client.createAuditTables();
  } catch (error) {
    await client.close();
    throw error;
  }
  return client;
}

/** @throws BAD_ARGUMENT */
function replicaOptions(given: ConnectOptions['replica']): ReplicaOptions | undefined {
  if (given === undefined || typeof given === 'boolean') return given ? {} : undefined;
  checkFields('connect: replica', given, REPLICA_OPTIONS);
  if (given.maxLagMs !== undefined) checkInteger('connect: replica: maxLagMs', given.maxLagMs, 0);
  if (given.missing !== undefined) checkFloat('connect: replica: missing', given.missing);
  if (given.owners && given.missing !== undefined)
    throw new KintsugiError(
      'BAD_ARGUMENT',
      'connect: replica: owners answer with initial values, so missing needs owners: false',
    );
  return { ...given };
}

/** A client that looks for replicas waits so long for the scheduler. */
const LOOK_LIMIT_MS = 2000;

function hostOf(session: Session, { token, tls }: ConnectOptions): ReplicaReadsHost {
  return {
    get map() {
      return session.map;
    },
    access: () => ({ peer: session.id, job: session.map.job, token, tls }),
    replicas: async () => (await session.status(LOOK_LIMIT_MS)).replicas ?? [],
  };
}
