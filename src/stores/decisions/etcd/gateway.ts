/**
 * etcd's HTTP/JSON gateway (v3): one request at a time to one of several endpoints. Nothing here knows what
 * is stored. Keys and values are base64 in its JSON, 64-bit numbers are decimal strings.
 */
import { Agent as HttpAgent, request as httpRequest } from 'node:http';
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https';
import { describe } from '../../../common/errors.js';
import type { EtcdLocation } from './location.js';

/** etcd does not answer, or cannot serve now. Whether a write was carried out is unknown. */
export class Unavailable extends Error {
  /** `refused`: not by an outage, but a certificate, a user or the request is not accepted. */
  constructor(
    message: string,
    readonly refused = false,
  ) {
    super(message);
  }
}

/** In codes of Node and OpenSSL: the certificate of etcd is wrong, or an alert says that of this side is. */
const UNTRUSTED = /CERT|_CA$|LEAF_SIGNATURE|HOSTNAME_MISMATCH|INVALID_PURPOSE/;

/** Codes of gRPC that say what is wrong with a request: invalid, not found, precondition, and so on. */
const FINAL = new Set([3, 5, 6, 9, 11, 12]);
const NOT_FOUND = 5;
const DENIED = 7;
const UNAUTHENTICATED = 16;

interface EtcdFailure {
  code?: number;
  message?: string;
  error?: string;
}

export class EtcdGateway {
  private readonly agent: HttpAgent | HttpsAgent;
  private at = 0;
  private token: string | undefined;

  constructor(private readonly location: EtcdLocation) {
    const { tls } = location;
    this.agent = tls ? new HttpsAgent({ ...tls, keepAlive: true }) : new HttpAgent({ keepAlive: true });
  }

  /**
   * One attempt. After `Unavailable` the next one goes to the next endpoint. Undefined: etcd answers that
   * there is no such lease. @throws Unavailable
   */
  async call<T>(path: string, body: object, timeoutMs: number): Promise<T | undefined> {
    const { at } = this;
    try {
      return await this.attempt<T>(path, body, timeoutMs, true);
    } catch (error) {
      // When several requests fail together, only the first one moves on to the next endpoint.
      if (error instanceof Unavailable && this.at === at) this.at = (at + 1) % this.location.endpoints.length;
      throw error;
    }
  }

  private async attempt<T>(
    path: string,
    body: object,
    timeoutMs: number,
    again: boolean,
  ): Promise<T | undefined> {
    const { user } = this.location;
    if (user && this.token === undefined) {
      const answer = await this.post('/v3/auth/authenticate', user, timeoutMs);
      this.token = (this.checked(answer) as { token: string }).token;
    }
    const answer = await this.post(path, body, timeoutMs);
    const code = (answer.json as EtcdFailure | undefined)?.code;
    const text = (answer.json as EtcdFailure | undefined)?.message ?? '';
    const expired = code === UNAUTHENTICATED || /revision of auth store is old/.test(text);
    if (answer.status !== 200 && expired && user && again) {
      this.token = undefined;
      return this.attempt(path, body, timeoutMs, false);
    }
    if (answer.status !== 200 && code === NOT_FOUND) return undefined;
    return this.checked(answer) as T;
  }

  get endpoints(): number {
    return this.location.endpoints.length;
  }

  private get where(): string {
    const { host, port } = this.location.endpoints[this.at]!;
    return `etcd at ${host.includes(':') ? `[${host}]` : host}:${port}`;
  }

  private checked({ status, json, text }: EtcdAnswer): unknown {
    if (status === 200 && json !== undefined) return json;
    const failure = (json ?? {}) as EtcdFailure;
    const message = failure.message ?? failure.error ?? text.slice(0, 200);
    if (failure.code === UNAUTHENTICATED || failure.code === DENIED || status === 401 || status === 403)
      throw new Unavailable(`${this.where} does not let this scheduler in: ${message}`, true);
    if (failure.code !== undefined && FINAL.has(failure.code))
      throw new Unavailable(`${this.where} refuses: ${message}`, true);
    if (failure.code === undefined && status >= 400 && status < 500)
      throw new Unavailable(`${this.where} is no etcd with its v3 gateway (HTTP ${status})`, true);
    throw new Unavailable(`${this.where}: ${message || `HTTP ${status}`}`);
  }

  private post(path: string, body: object, timeoutMs: number): Promise<EtcdAnswer> {
    const { tls, endpoints } = this.location;
    const { where } = this;
    const data = Buffer.from(JSON.stringify(body));
    const { token } = this;
    return new Promise((resolve, reject) => {
      const fail = (error: unknown): void => {
        clearTimeout(timer);
        const { code = '' } = error as { code?: string };
        reject(new Unavailable(`${where}: ${describe(error) || code}`, UNTRUSTED.test(code)));
      };
      const request = (tls ? httpsRequest : httpRequest)(
        {
          ...endpoints[this.at]!,
          agent: this.agent,
          method: 'POST',
          path,
          headers: {
            'content-type': 'application/json',
            'content-length': data.length,
            ...(token !== undefined && path !== '/v3/auth/authenticate' && { authorization: token }),
          },
        },
        (response) => {
          const parts: Buffer[] = [];
          response.on('data', (part: Buffer) => parts.push(part));
          response.on('error', fail);
          response.on('aborted', () => fail(new Error('the answer broke off')));
          response.on('end', () => {
            clearTimeout(timer);
            const text = Buffer.concat(parts).toString();
            resolve({ status: response.statusCode ?? 0, text, json: parsed(text) });
          });
        },
      );
      const timer = setTimeout(
        () => request.destroy(new Error(`no answer within ${timeoutMs} ms`)),
        timeoutMs,
      );
      request.on('error', fail);
      request.end(data);
    });
  }

  close(): void {
    this.agent.destroy();
  }
}

interface EtcdAnswer {
  status: number;
  text: string;
  json: unknown;
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
