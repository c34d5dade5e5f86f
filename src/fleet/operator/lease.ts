/**
 * Leader election: of several operators the holder of the Lease leads. It renews the Lease again and again.
 * Another operator takes it when it has seen no renewal for the whole duration, by its own clock: clocks of
 * machines differ. A leader that could not renew for two thirds of the duration stops at once, before another
 * one may begin.
 * Why not client-node (1.4.0, 2.0.1): it has no leader election.
 */
import { describe } from '../../common/errors.js';
import { type Api, hasStatus } from './api/api.js';
import { pause } from './api/pause.js';
import type { KubeObject } from './objects.js';

export interface LeaseOptions {
  api: Api;
  namespace: string;
  name: string;
  /** Name of this process, different from all others. */
  identity: string;
  durationMs?: number;
  onError(message: string): void;
}

interface LeaseObject extends KubeObject {
  spec?: {
    holderIdentity?: string;
    leaseDurationSeconds?: number;
    acquireTime?: string;
    renewTime?: string;
    leaseTransitions?: number;
  };
}

const DURATION_MS = 15_000;

export class Leadership {
  private readonly stopping = new AbortController();
  private readonly durationMs: number;
  /** Version of the Lease that was read last, and when it was first seen. */
  private seen: { version: string | undefined; at: number } | undefined;

  constructor(private readonly options: LeaseOptions) {
    this.durationMs = options.durationMs ?? DURATION_MS;
  }

  /**
   * Resolves when this process leads; `lost` resolves when it does not any more. Undefined: it was released.
   */
  async lead(): Promise<{ lost: Promise<void> } | undefined> {
    const { signal } = this.stopping;
    while (!signal.aborted) {
      const at = performance.now();
      const held = await this.attempt();
      if (held) return { lost: this.keep(at) };
      await pause(this.durationMs / 5, signal);
    }
    return undefined;
  }

  /** Gives the Lease back, so that another operator may lead at once. */
  async release(): Promise<void> {
    this.stopping.abort();
    const { api, namespace, name, identity } = this.options;
    try {
      const lease = await api.get<LeaseObject>('Lease', namespace, name);
      if (lease.spec?.holderIdentity !== identity) return;
      await api.replace('Lease', { ...lease, spec: { ...lease.spec, holderIdentity: '' } } as LeaseObject);
    } catch (error) {
      this.options.onError(`the lease was not released: ${describe(error)}`);
    }
  }

  private async keep(since: number): Promise<void> {
    const { signal } = this.stopping;
    let written = since;
    while (!signal.aborted) {
      await pause(this.durationMs / 5, signal);
      if (signal.aborted) return;
      const at = performance.now();
      const answered = new AbortController();
      const late = pause((this.durationMs * 2) / 3 - (at - written), answered.signal).then(() => undefined);
      const held = await Promise.race([this.attempt(), late]).finally(() => answered.abort());
      if (held) written = at;
      else if (held === false || performance.now() - written >= (this.durationMs * 2) / 3) return;
    }
  }

  /**
   * Takes or renews the Lease. True: this process holds it. False: another one does. Undefined: nobody knows.
   */
  private async attempt(): Promise<boolean | undefined> {
    const { api, namespace, name, identity } = this.options;
    const now = new Date().toISOString().replace('Z', '000Z');
    const mine = {
      ...{ holderIdentity: identity, leaseDurationSeconds: Math.ceil(this.durationMs / 1000) },
      renewTime: now,
    };
    try {
      const lease = await api.get<LeaseObject>('Lease', namespace, name).catch((error: unknown) => {
        if (hasStatus(error, 404)) return undefined;
        throw error;
      });
      if (!lease) {
        const metadata = { name, namespace };
        const spec = { ...mine, acquireTime: now, leaseTransitions: 0 };
        const { apiVersion, kind } = { apiVersion: 'coordination.k8s.io/v1', kind: 'Lease' };
        await api.create('Lease', { apiVersion, kind, metadata, spec });
        return true;
      }
      const { spec = {} } = lease;
      const held = spec.holderIdentity === identity;
      if (!held && spec.holderIdentity && !this.expired(lease)) return false;
      const taken = { acquireTime: now, leaseTransitions: (spec.leaseTransitions ?? 0) + 1 };
      await api.replace('Lease', {
        ...lease,
        spec: { ...spec, ...mine, ...(held ? {} : taken) },
      } as LeaseObject);
      return true;
    } catch (error) {
      if (hasStatus(error, 409)) return false;
      this.options.onError(`the lease: ${describe(error)}`);
      return undefined;
    }
  }

  private expired({ metadata }: LeaseObject): boolean {
    const version = metadata.resourceVersion;
    if (!this.seen || this.seen.version !== version) this.seen = { version, at: performance.now() };
    return performance.now() - this.seen.at > this.durationMs;
  }
}
