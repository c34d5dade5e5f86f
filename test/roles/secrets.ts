/** A job whose nodes have a token of their own, and peers of it that follow no rules. */
import { onTestFinished } from 'vitest';
import type { Client, Table } from '../../src/library/client/client.js';
import { GATE_HEADER, gatePass } from '../../src/net/transport/auth.js';
import type { MessageOf } from '../../src/protocol/messages.js';
import type { LocalCluster, LocalClusterOptions } from '../../src/roles/cluster.js';
import { RawClient } from '../net/transport/support.js';
import { COUNTING, client, cluster } from './support.js';

export const TOKEN = 'of clients';
export const NODE_TOKEN = 'of nodes';
export const SECRETS = { token: TOKEN, nodeToken: NODE_TOKEN };
/** Close code of the transport for FORBIDDEN. */
export const FORBIDDEN = 4403;

export interface Guarded {
  job: LocalCluster;
  trainer: Client;
  table: Table;
}

export async function guarded(options: LocalClusterOptions = {}): Promise<Guarded> {
  const job = await cluster({ code: '2+1', ...SECRETS, ...options });
  const trainer = await client(job.address, { token: TOKEN });
  return { job, trainer, table: await trainer.createTable({ name: 't', ...COUNTING }) };
}

/** A connection that has proved that it knows this token, and has said nothing else. */
export async function proven(address: string, token: string): Promise<RawClient> {
  const peer = new RawClient(Number(address.split(':').at(-1)), { [GATE_HEADER]: gatePass(token) });
  onTestFinished(() => peer.ws.terminate());
  return peer.prove(token);
}

/** A client of the job, with what it was told. */
export async function attached(address: string): Promise<RawClient & { welcome: MessageOf<'welcome'> }> {
  const peer = await proven(address, TOKEN);
  peer.send({ t: 'attach' });
  return Object.assign(peer, { welcome: (await peer.next()) as unknown as MessageOf<'welcome'> });
}

/** Why the other side closed; undefined when it has handled everything and did not. */
export async function closing(peer: RawClient): Promise<{ code: number; reason: string } | undefined> {
  return Promise.race([peer.closed, peer.heard().then(() => undefined)]);
}
