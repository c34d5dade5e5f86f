/** The status of a job for somebody who only looks: without a session, so also while decisions wait. */

import type { Logger } from '../net/log.js';
import type { ClientTls } from '../net/transport/index.js';
import { Uplink } from '../net/uplink.js';
import type { JobStatus } from '../protocol/messages.js';

export interface AskOptions {
  /** host:port of the scheduler; of several, with commas between. */
  scheduler: string;
  token?: string | undefined;
  tls?: ClientTls | undefined;
  connectTimeoutMs: number;
}

const SILENT: Logger = { info: () => {}, warn: () => {}, error: () => {} };

/** @throws UNREACHABLE, UNAUTHORIZED, TIMEOUT */
export async function askStatus(options: AskOptions): Promise<JobStatus> {
  let status: JobStatus | undefined;
  const uplink = await Uplink.open({
    ...options,
    role: 'client',
    introduce: () => ({ t: 'status', id: 1 }),
    onWelcome: () => {},
    onMessage: (message) => {
      if (message.t === 'statusReply') status = message.status;
    },
    onStale: () => {},
    log: SILENT,
  });
  uplink.close();
  return status!;
}
