/** Commands that talk to a running job share this: a client made from the flags, closed whatever happens. */
import { type Client, type ConnectOptions, connect } from '../library/client/client.js';
import { clientTlsOf, type SharedFlags, tokenOf } from './flags.js';

export interface ConnectFlags extends SharedFlags {
  scheduler: string;
  connectTimeout: number;
}

export async function withClient<T>(
  flags: ConnectFlags,
  work: (client: Client) => Promise<T>,
  options: ConnectOptions = {},
): Promise<T> {
  const client = await connect(flags.scheduler, {
    token: tokenOf(flags),
    tls: clientTlsOf(flags),
    connectTimeoutMs: flags.connectTimeout,
    ...options,
  });
  try {
    return await work(client);
  } finally {
    await client.close();
  }
}
