/**
 * A load client as a process of its own: pushes, checks its own rows, and tells its parent how it goes.
 * Without `pushes` it goes on until it is told to stop; with it it repeats the first so many. It leaves when
 * its parent does.
 */

import { describe, KintsugiError } from '../../src/common/errors.js';
import { type Client, connect, type PushCounts, type PushRequest } from '../../src/library/client/client.js';
import { createLogger, monotonicMs } from '../../src/net/log.js';
import { pause } from './pause.js';
import { isZero, type PrefixCounts, ShardsOfPushes, takePart } from './prefix.js';
import { PushStream } from './pushes.js';
import { type AuditCounts, ReplicaAudit } from './replica-audit.js';

export interface ChaosLoadOptions {
  scheduler: string;
  seed: number;
  client: number;
  sharedRows: number;
  /** Undefined: until told to stop. */
  pushes?: number;
  /** Milliseconds between two pushes. */
  pauseMs: number;
  inFlight: number;
  /** The authority of the job's certificates; undefined: no TLS. The token comes in KINTSUGI_TOKEN. */
  caFile?: string | undefined;
  /** Will be killed: see crashers.ts. */
  crash?: boolean;
  /** Tells of every push before it is made and when it is acknowledged: the client may be killed. */
  tellsAll?: boolean;
  /** Repeats what a checkpoint held of a client: the first so many pushes of each shard. */
  held?: PrefixCounts;
  /** Own rows are read from replicas, too. */
  replicas?: boolean;
}

export type LoadReport =
  | { kind: 'progress'; id: number; acknowledged: number; stalledMs: number }
  | { kind: 'connected'; id: number }
  | { kind: 'sent'; push: number }
  /** `mono`: on the clock that the log records have. */
  | { kind: 'acknowledged'; push: number; mono: number }
  | { kind: 'wrong'; what: string; code: string }
  | {
      kind: 'done';
      id: number;
      pushes: number;
      checks: number;
      counts: PushCounts[];
      longestStallMs: number;
      longestPullMs: number;
      /** Undefined: there are no replicas. */
      audit: AuditCounts | undefined;
    };

const PROGRESS_MS = 250;
const CONNECT_MS = 60_000;
/** Between two questions to replicas that are behind or away. */
const AUDIT_PAUSE_MS = 20;
/** A check of own rows for every so many pushes. */
const CHECK_EVERY = 4;

function tell(report: LoadReport): void {
  process.send?.(report);
}

class ChaosLoad {
  private readonly stream: PushStream;
  private readonly open = new Set<Promise<void>>();
  private lastProgress = monotonicMs();
  private longestStallMs = 0;
  private longestPullMs = 0;
  private acknowledged = 0;
  private checks = 0;
  private checking: Promise<void> | undefined;
  private readonly audit: ReplicaAudit | undefined;
  private auditing: Promise<void> | undefined;
  stopped = false;

  constructor(
    private readonly client: Client,
    private readonly options: ChaosLoadOptions,
    /** Reads from replicas. */
    reader: Client | undefined,
  ) {
    this.stream = new PushStream(options.seed, options.client, options.sharedRows, options.crash);
    this.audit = reader && new ReplicaAudit(reader, this.stream.own);
  }

  async run(): Promise<void> {
    const { pushes, inFlight, pauseMs, held } = this.options;
    if (held) return this.repeat(held);
    tell({ kind: 'connected', id: this.client.id });
    const timer = setInterval(() => {
      const stalledMs = monotonicMs() - this.lastProgress;
      tell({ kind: 'progress', id: this.client.id, acknowledged: this.acknowledged, stalledMs });
    }, PROGRESS_MS);
    this.lastProgress = monotonicMs();
    while (!this.stopped && this.stream.count < (pushes ?? Number.POSITIVE_INFINITY)) {
      while (this.open.size >= inFlight) await Promise.race(this.open);
      this.push();
      if (this.stream.count % CHECK_EVERY === 0) this.checking ??= this.check();
      this.auditing ??= this.checkReplicas();
      if (pauseMs > 0) await new Promise((resolve) => setTimeout(resolve, pauseMs));
    }
    await Promise.all(this.open);
    await this.checking;
    await this.auditing;
    await this.untilReplicasHaveAll();
    const what = await this.stream.check(this.client, true);
    if (what !== undefined) tell({ kind: 'wrong', code: 'MISMATCH', what });
    clearInterval(timer);
    this.done();
  }

  /** Pushes exactly what the checkpoint held. Rows are not checked: they hold a part of the stream only. */
  private async repeat(held: PrefixCounts): Promise<void> {
    const shards = new ShardsOfPushes(this.client.clusterMap);
    while (!isZero(held)) {
      while (this.open.size >= this.options.inFlight) await Promise.race(this.open);
      const part = takePart(shards.of(this.stream.next().requests), held);
      if (part) this.send(part, () => {});
    }
    await Promise.all(this.open);
    this.done();
  }

  private done(): void {
    tell({
      kind: 'done',
      id: this.client.id,
      pushes: this.stream.count,
      checks: this.checks,
      counts: this.client.pushCounts(),
      longestStallMs: this.longestStallMs,
      longestPullMs: this.longestPullMs,
      audit: this.audit?.counts,
    });
  }

  private async checkReplicas(): Promise<void> {
    try {
      const found = await this.audit?.check();
      if (found?.wrong !== undefined) tell({ kind: 'wrong', code: 'MISMATCH', what: found.wrong });
      // Where there are none it is asked again at the next push.
      if (this.audit && !found?.complete) await pause(AUDIT_PAUSE_MS);
    } catch (error) {
      wrong(error, 'pull of a replica');
    }
    this.auditing = undefined;
  }

  /** No more is pushed: a little later all of it must be there. */
  private async untilReplicasHaveAll(): Promise<void> {
    for (;;) {
      const found = await this.audit?.check();
      if (found?.wrong !== undefined) tell({ kind: 'wrong', code: 'MISMATCH', what: found.wrong });
      if (!found || found.complete || found.wrong !== undefined) return;
      this.lastProgress = monotonicMs();
      await pause(AUDIT_PAUSE_MS);
    }
  }

  private push(): void {
    const { requests, rows, done } = this.stream.next();
    this.send(requests, () => {
      done();
      this.audit?.durable(rows);
    });
  }

  private send(requests: PushRequest[], done: () => void): void {
    const push = this.stream.count;
    const { tellsAll } = this.options;
    if (tellsAll) tell({ kind: 'sent', push });
    const pushed = this.client.push(requests).then(() => {
      done();
      this.acknowledged++;
      if (tellsAll) tell({ kind: 'acknowledged', push, mono: monotonicMs() });
      const now = monotonicMs();
      this.longestStallMs = Math.max(this.longestStallMs, now - this.lastProgress);
      this.lastProgress = now;
    });
    const settled = pushed
      .catch((error: unknown) => wrong(error, 'push'))
      .finally(() => {
        this.open.delete(settled);
      });
    this.open.add(settled);
  }

  private async check(): Promise<void> {
    const started = monotonicMs();
    try {
      const what = await this.stream.check(this.client);
      this.checks++;
      if (what !== undefined) tell({ kind: 'wrong', code: 'MISMATCH', what });
    } catch (error) {
      wrong(error, 'pull');
    }
    this.longestPullMs = Math.max(this.longestPullMs, monotonicMs() - started);
    this.checking = undefined;
  }
}

/** No request may fail while never more than r members lack. */
function wrong(error: unknown, what: string): void {
  const code = error instanceof KintsugiError ? error.code : 'INTERNAL';
  tell({ kind: 'wrong', code, what: `${what} failed: ${describe(error)}` });
}

async function main(): Promise<void> {
  const options = JSON.parse(process.argv[2]!) as ChaosLoadOptions;
  const log = createLogger(process.env.KINTSUGI_CHAOS_LOG ? 'json' : 'none', {
    role: 'load',
    name: `load-${options.client}`,
  });
  const { scheduler, caFile } = options;
  const tls = caFile === undefined ? undefined : { caFile };
  const token = process.env.KINTSUGI_TOKEN || undefined;
  const client = await connect(scheduler, { connectTimeoutMs: CONNECT_MS, audit: true, log, tls, token });
  const reading = { connectTimeoutMs: CONNECT_MS, log, tls, token, replica: true };
  const reader = options.replicas ? await connect(scheduler, reading) : undefined;
  const load = new ChaosLoad(client, options, reader);
  process.on('message', (message) => {
    if (message === 'stop') load.stopped = true;
  });
  await load.run();
  await reader?.close();
  await client.close();
}

process.on('disconnect', () => process.exit(1));
main().then(
  () => process.disconnect(),
  (error: unknown) => {
    wrong(error, 'client');
    process.disconnect();
  },
);
