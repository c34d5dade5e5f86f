/**
 * A place in an object store that speaks S3: `s3://bucket/prefix`. `@aws-sdk/client-s3` does the requests; it
 * is loaded when the first such place is opened. Region and credentials are found as its users expect; a
 * server of another maker is named by `KINTSUGI_S3_ENDPOINT` or `AWS_ENDPOINT_URL_S3`.
 *
 * A file is one request, because segments are small: an object appears as a whole or not at all. What is
 * written carries its SHA-256, which the server checks. A request that fails is repeated with growing pauses.
 * A conditional write whose answer was lost finds its own content when it is repeated.
 */
import { Readable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import type { S3Client } from '@aws-sdk/client-s3';
import { describe, KintsugiError } from '../../common/errors.js';
import { importInPieces } from '../../common/optional.js';
import { byteLength, sha256Of, slices } from './bytes.js';
import {
  checkName,
  type GetOptions,
  MAX_GET_BYTES,
  nameTaken,
  noSuchFile,
  type Place,
  type PutOptions,
  placeFailed,
  refuseAborted,
  type StoredFile,
  type StoredObject,
  tooLarge,
} from './place.js';

type Sdk = typeof import('@aws-sdk/client-s3');

/** How an object store is used. */
export interface S3Options {
  /** `http://host:port` of a server; default: KINTSUGI_S3_ENDPOINT, then what the SDK reads. */
  endpoint?: string | undefined;
  /** Times that a request is made before it fails. Default: 8. */
  attempts?: number | undefined;
  /** Pause after the first failure; it doubles up to 5 s. Half of it is random. Default: 100. */
  backoffMs?: number | undefined;
  /** A connection on which nothing arrives for so long is given up. Default: 30,000. */
  idleMs?: number | undefined;
  /** Files in an answer to `list`. Default: as many as the server likes, mostly 1,000. */
  pageFiles?: number | undefined;
  /** Names of files may be any that the store takes, and not only those of checkpoints. */
  anyNames?: boolean | undefined;
  /** The package; default: `@aws-sdk/client-s3`. */
  sdk?: string | undefined;
}

const MAX_BACKOFF_MS = 5_000;
const CONNECT_MS = 5_000;
/** Requests under way to remove files. */
const REMOVALS = 8;
const URL_FORM = /^s3:\/\/([A-Za-z0-9][A-Za-z0-9._-]{1,254})(?:\/(.*))?$/i;
/** Signed requests name their region; servers of other makers mostly take any. */
const ANY_REGION = 'us-east-1';

const nothing = (): void => undefined;
/** The SDK would write on the console that it does not repeat a request. */
const QUIET = { trace: nothing, debug: nothing, info: nothing, warn: nothing, error: nothing };

/** Errors that say that the request did not arrive in one piece, or that the server is busy. */
const TRANSIENT = new Set([
  'BadDigest',
  'ConditionalRequestConflict',
  'IncompleteBody',
  'InvalidDigest',
  'OperationAborted',
  'RequestTimeout',
  // The SDK signs the next one with the clock of the server.
  'RequestTimeTooSkewed',
  'SlowDown',
  'Throttling',
  'ThrottlingException',
  'XAmzContentSHA256Mismatch',
]);

/** An answer that is not what its headers say, such as one that was cut. */
class BrokenAnswer extends Error {}

export class S3Place implements Place {
  readonly url: string;
  private readonly prefix: string;
  private readonly attempts: number;
  private readonly backoffMs: number;
  private readonly pageFiles: number | undefined;
  private readonly anyNames: boolean;

  private constructor(
    private readonly sdk: Sdk,
    private readonly client: S3Client,
    private readonly bucket: string,
    path: string,
    options: S3Options,
  ) {
    this.prefix = path === '' ? '' : `${path}/`;
    this.url = `s3://${bucket}${path === '' ? '' : `/${path}`}`;
    this.attempts = options.attempts ?? 8;
    this.backoffMs = options.backoffMs ?? 100;
    this.pageFiles = options.pageFiles;
    this.anyNames = options.anyNames ?? false;
  }

  /** @throws BAD_ARGUMENT, DEPENDENCY_MISSING without the SDK */
  static async open(url: string, options: S3Options = {}): Promise<S3Place> {
    const [, bucket, path = ''] = URL_FORM.exec(url) ?? [];
    const parts = path.split('/').filter((part) => part !== '');
    if (bucket === undefined || parts.some((part) => /^\.\.?$|[?#\s]/.test(part))) {
      throw new KintsugiError('BAD_ARGUMENT', `${url}: an object store is s3://BUCKET/PREFIX`);
    }
    const sdk = await importInPieces<Sdk>('@aws-sdk/client-s3', options.sdk);
    return new S3Place(sdk, await clientOf(sdk, options), bucket, parts.join('/'), options);
  }

  async put(name: string, parts: readonly Uint8Array[], options: PutOptions = {}): Promise<StoredObject> {
    checkName(name);
    const { ifAbsent, signal } = options;
    const sha256 = await sha256Of(parts, signal);
    const bytes = byteLength(parts);
    await this.repeatedly(name, signal, async (attempt) => {
      // The answer to the first attempt may be lost. A server that refuses a body without reading it may
      // also close the connection before the refusal arrives.
      if (ifAbsent && attempt > 1 && (await this.isStored(name, sha256, bytes, signal))) return;
      const command = new this.sdk.PutObjectCommand({
        ...this.object(name),
        Body: Readable.from(flat(parts), { objectMode: false }),
        ContentLength: bytes,
        ContentType: name.endsWith('.json') ? 'application/json' : 'application/octet-stream',
        ...(ifAbsent && { IfNoneMatch: '*' }),
      });
      // The signature covers this header, so the server knows what the body has to be.
      command.middlewareStack.add(
        (next) => (args) => {
          const { headers } = args.request as { headers: Record<string, string> };
          headers['x-amz-content-sha256'] = sha256;
          return next(args);
        },
        { step: 'build', name: 'contentSha256' },
      );
      try {
        await this.client.send(command, { ...(signal && { abortSignal: signal }) });
      } catch (error) {
        if (!ifAbsent || statusOf(error) !== 412) throw error;
        if (await this.isStored(name, sha256, bytes, signal)) return;
        throw new BrokenAnswer('the file that was in the way is gone');
      }
    });
    return { bytes, sha256 };
  }

  /** The file is there with this content. @throws CHECKPOINT_TAKEN when it has another one */
  private async isStored(
    name: string,
    sha256: string,
    bytes: number,
    signal: AbortSignal | undefined,
  ): Promise<boolean> {
    try {
      const file = await this.getOnce(name, { atMost: bytes, signal });
      if ((await sha256Of([file], signal)) === sha256) return true;
    } catch (error) {
      if (isMissing(error)) return false;
      const isLarger = error instanceof KintsugiError && error.code === 'BAD_CHECKPOINT';
      if (!isLarger) throw error;
    }
    throw nameTaken(name);
  }

  async get(name: string, options: GetOptions = {}): Promise<Uint8Array<ArrayBuffer>> {
    if (!this.anyNames) checkName(name);
    return this.repeatedly(name, options.signal, async () => {
      try {
        return await this.getOnce(name, options);
      } catch (error) {
        if (isMissing(error)) throw noSuchFile(name);
        // The range begins behind the end of the file.
        if (statusOf(error) === 416) return new Uint8Array(0);
        if (statusOf(error) === 412 && options.version !== undefined)
          throw new KintsugiError('BAD_DATA', `${this.url}/${name}: was written again while it was read`);
        throw error;
      }
    });
  }

  private async getOnce(name: string, options: GetOptions): Promise<Uint8Array<ArrayBuffer>> {
    const { from = 0, to, atMost = MAX_GET_BYTES, version, signal } = options;
    if (to !== undefined && to <= from) return new Uint8Array(0);
    const range =
      from > 0 || to !== undefined ? `bytes=${from}-${to === undefined ? '' : to - 1}` : undefined;
    const command = new this.sdk.GetObjectCommand({
      ...this.object(name),
      ...(range && { Range: range }),
      ...(version !== undefined && { IfMatch: version }),
    });
    const answer = await this.client.send(command, { ...(signal && { abortSignal: signal }) });
    const body = answer.Body as Readable;
    try {
      const bytes = answer.ContentLength;
      if (bytes === undefined) throw new BrokenAnswer('an answer without a length');
      if (range !== undefined && answer.ContentRange === undefined) {
        throw new BrokenAnswer('an answer with more than the range that was asked for');
      }
      if (bytes > atMost) throw tooLarge(name, bytes, atMost);
      return await collect(body, bytes);
    } finally {
      body.destroy();
    }
  }

  async *list(prefix: string): AsyncGenerator<StoredFile> {
    let token: string | undefined;
    do {
      const command = new this.sdk.ListObjectsV2Command({
        Bucket: this.bucket,
        Prefix: `${this.prefix}${prefix}`,
        ...(this.pageFiles !== undefined && { MaxKeys: this.pageFiles }),
        ...(token !== undefined && { ContinuationToken: token }),
      });
      const page = await this.repeatedly(prefix, undefined, () => this.client.send(command));
      for (const { Key: key, Size: bytes, ETag: version } of page.Contents ?? []) {
        if (key !== undefined && bytes !== undefined)
          yield { name: key.slice(this.prefix.length), bytes, version };
      }
      token = page.IsTruncated ? page.NextContinuationToken : undefined;
    } while (token !== undefined);
  }

  async remove(names: readonly string[]): Promise<void> {
    for (const name of names) checkName(name);
    const rest = names.values();
    // One request for each: the one for many needs checksums on which servers do not agree.
    const remover = async (): Promise<void> => {
      for (const name of rest) {
        const command = new this.sdk.DeleteObjectCommand(this.object(name));
        await this.repeatedly(name, undefined, async () => {
          await this.client.send(command).catch((error: unknown) => {
            if (!isMissing(error)) throw error;
          });
        });
      }
    };
    await Promise.all(Array.from({ length: Math.min(REMOVALS, names.length) }, remover));
  }

  /**
   * True: versions of files that are removed stay in the bucket. A server that does not know the question
   * keeps none. Many who may read a bucket may not ask for its settings: `unknown`. @throws PLACE_FAILED
   */
  async keepsRemoved(): Promise<boolean | 'unknown'> {
    const command = new this.sdk.GetBucketVersioningCommand({ Bucket: this.bucket });
    return this.repeatedly('', undefined, () =>
      this.client.send(command).then(
        ({ Status: status }) => status !== undefined,
        (error: unknown) => {
          const status = statusOf(error);
          if (status === 401 || status === 403) return 'unknown';
          if (status !== 501 && (isTransient(error) || status === undefined)) throw error;
          return false;
        },
      ),
    );
  }

  async close(): Promise<void> {
    this.client.destroy();
  }

  private object(name: string): { Bucket: string; Key: string } {
    return { Bucket: this.bucket, Key: `${this.prefix}${name}` };
  }

  private async repeatedly<T>(
    name: string,
    signal: AbortSignal | undefined,
    work: (attempt: number) => Promise<T>,
  ): Promise<T> {
    for (let attempt = 1; ; attempt++) {
      refuseAborted(signal);
      try {
        return await work(attempt);
      } catch (error) {
        refuseAborted(signal);
        if (error instanceof KintsugiError) throw error;
        if (attempt === this.attempts || !isTransient(error))
          throw placeFailed(this.url, name, saying(error));
      }
      const pauseMs = Math.min(MAX_BACKOFF_MS, this.backoffMs * 2 ** (attempt - 1));
      await sleep(pauseMs * (0.5 + Math.random() / 2), undefined, { ...(signal && { signal }) }).catch(() =>
        refuseAborted(signal),
      );
    }
  }
}

// ---- the SDK

async function clientOf(sdk: Sdk, options: S3Options): Promise<S3Client> {
  const { KINTSUGI_S3_ENDPOINT: own, AWS_ENDPOINT_URL_S3: s3, AWS_ENDPOINT_URL: all } = process.env;
  const given = options.endpoint || own;
  const client = (more: { region?: string }) =>
    new sdk.S3Client({
      ...(given && { endpoint: given }),
      // Servers of other makers have no host name for each bucket.
      forcePathStyle: Boolean(given || s3 || all),
      // Requests are repeated here, and bodies that are streams cannot be repeated there.
      maxAttempts: 1,
      logger: QUIET,
      // Checksums of newer kinds are unknown to many servers; SHA-256 is checked at both ends anyway.
      requestChecksumCalculation: 'WHEN_REQUIRED',
      responseChecksumValidation: 'WHEN_REQUIRED',
      // A server that does not know this header would make every write wait for seconds.
      expectContinueHeader: false,
      requestHandler: { connectionTimeout: CONNECT_MS, socketTimeout: options.idleMs ?? 30_000 },
      ...more,
    });
  const usual = client({});
  const hasRegion = await usual.config.region().then(Boolean, () => false);
  if (hasRegion || !(given || s3 || all)) return usual;
  usual.destroy();
  return client({ region: ANY_REGION });
}

function* flat(parts: readonly Uint8Array[]): Generator<Uint8Array> {
  for (const slice of slices(parts)) yield* slice;
}

/** The whole body, which must have `bytes` bytes. */
async function collect(body: Readable, bytes: number): Promise<Uint8Array<ArrayBuffer>> {
  const data = new Uint8Array(Buffer.allocUnsafeSlow(bytes).buffer);
  let done = 0;
  for await (const chunk of body as AsyncIterable<Uint8Array>) {
    if (done + chunk.byteLength > bytes) break;
    data.set(chunk, done);
    done += chunk.byteLength;
  }
  if (done !== bytes) throw new BrokenAnswer(`${done} of ${bytes} bytes arrived`);
  return data;
}

// ---- errors

interface SdkError {
  name?: string;
  $metadata?: { httpStatusCode?: number };
  $response?: { statusCode?: number };
}

function statusOf(error: unknown): number | undefined {
  const { $metadata, $response } = (error ?? {}) as SdkError;
  return $metadata?.httpStatusCode ?? $response?.statusCode;
}

function isMissing(error: unknown): boolean {
  return statusOf(error) === 404 && (error as SdkError).name !== 'NoSuchBucket';
}

/** Another attempt makes sense: the server did not decide, or no answer came. */
function isTransient(error: unknown): boolean {
  const { name = '' } = (error ?? {}) as SdkError;
  if (TRANSIENT.has(name)) return true;
  // Without credentials no request is made.
  if (name === 'CredentialsProviderError' || error instanceof TypeError) return false;
  const status = statusOf(error);
  return status === undefined || status >= 500 || status === 408 || status === 429 || status < 300;
}

/** With the name of the error, where its message has none. */
function saying(error: unknown): Error {
  const { name = 'Error' } = (error ?? {}) as SdkError;
  const text = describe(error);
  const named = name === 'Error' || text.includes(name) ? text : `${name}: ${text}`;
  return new Error(named, { cause: error });
}
