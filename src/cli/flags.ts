/**
 * Flags that several commands share, and their parsers. A parser says in one line what is wrong
 * (BAD_ARGUMENT). It gets the flag's name, because its message must make sense without the help text.
 */
import { readFileSync } from 'node:fs';
import { type Command, Option } from 'commander';
import { causedBy, KintsugiError } from '../common/errors.js';
import {
  isOptimizerKind,
  OPTIMIZER_KINDS,
  type OptimizerSpec,
  optimizerOf,
  optimizerProblem,
  roundedProblem,
} from '../engine/optimizers.js';
import { mixesClocks, parsedPolicy, type TablePolicy } from '../engine/policies.js';
import { policyProblem } from '../engine/policy-checks.js';
import { SCHEDULE_KINDS, type ScheduleSpec } from '../engine/schedules.js';
import { UNBOUNDED } from '../library/client/dataset.js';
import { createLogger, type LogFields, type LogFormat, type Logger } from '../net/log.js';
import { sparing } from '../net/sparing.js';
import type { ClientTls, RoleTls, ServerTls } from '../net/transport/index.js';
import { MODEL_NAMES } from '../training/models/dlrm.js';
import { COMMON_OPTIONS } from '../training/models/trainer.js';
import { repeatable } from './given-once.js';
import { warnOfReadable } from './secret-files.js';
import { bad, decimal, duration, integer, positive } from './values.js';

export const DEFAULT_SCHEDULER = '127.0.0.1:7077';
export const DEFAULT_CODE = '4+1';

/** An optimizer by name, with the usual parameters. @throws BAD_ARGUMENT */
export function optimizerSpec(kind: string, lr: number, flag = '--optimizer'): OptimizerSpec {
  if (isOptimizerKind(kind)) return optimizerOf(kind, lr);
  throw bad(`${flag} must be one of ${OPTIMIZER_KINDS.join(', ')}, not "${kind}"`);
}

/** Learning rates of new tables, where no flag gives another one. */
const USUAL_LR = 0.05;
const USUAL_DENSE_LR = 1e-3;

export interface OptimizerFlags {
  optimizer: string;
  /** Undefined: `USUAL_LR`. */
  lr?: number;
  clipNorm?: number;
  lrSchedule?: string;
}

/** The optimizer of the embedding, with its clipping and its schedule. @throws BAD_ARGUMENT */
export function embeddingOptimizer(flags: OptimizerFlags): OptimizerSpec {
  const { optimizer, lr, clipNorm, lrSchedule } = flags;
  const spec: OptimizerSpec = {
    ...optimizerSpec(optimizer, lr ?? USUAL_LR),
    ...(clipNorm !== undefined && { clipNorm }),
    ...(lrSchedule !== undefined && { schedule: scheduleSpec(lrSchedule) }),
  };
  const problem = optimizerProblem(spec) ?? roundedProblem(spec);
  if (problem) throw bad(problem);
  return spec;
}

/** The optimizer of the dense parameters. @throws BAD_ARGUMENT */
export function denseOptimizerOf(flags: Pick<TrainingFlags, 'denseOptimizer' | 'denseLr'>): OptimizerSpec {
  return optimizerSpec(flags.denseOptimizer, flags.denseLr ?? USUAL_DENSE_LR, '--dense-optimizer');
}

/** A schedule, for example "cosine,warmup=10,steps=1000". Its parameters are checked by its optimizer. */
export function scheduleSpec(text: string, flag = '--lr-schedule'): ScheduleSpec {
  const [kind, ...parameters] = text.split(',');
  const fields = parameters.map((parameter) => {
    const [, name, value] = /^(\w+)=(.+)$/.exec(parameter) ?? [];
    const number = decimal(value ?? '');
    if (name !== undefined && !Number.isNaN(number)) return [name, number] as const;
    const wanted = `KIND,NAME=NUMBER,... with KIND one of ${SCHEDULE_KINDS.join(', ')}`;
    throw bad(`${flag} must be ${wanted}, not "${text}"`);
  });
  const names = fields.map(([name]) => name);
  const twice = names.find((name, i) => names.indexOf(name) < i);
  if (twice !== undefined) throw bad(`${flag} "${text}": ${twice} is given twice`);
  return { kind, ...Object.fromEntries(fields) } as ScheduleSpec;
}

const CLAUSE_TEXT =
  'admit=counter(N), admit=bloom(N), admit=bloom(N,CAPACITY,ERROR), admit=probability(P), admit=likely(N), ' +
  'evict=ttl(TTL), evict=minFrequency(N,TTL), evict=minFrequency(N,TTL,FACTOR,EVERY), ' +
  'evict=l2Below(NORM,TTL), evict=keep(N), evict=maxRows(N), evict=memory, evict=score, ' +
  'each at most once; TTL and EVERY are steps, or times like 24h';
const MIXED_TEXT = 'all of its ttls have a unit (s, m, h or d), or none has, and they are steps';

/** A policy, for example "admit=counter(2),evict=ttl(2000)". @throws BAD_ARGUMENT */
export function policyOf(text: string): TablePolicy {
  const policy = parsedPolicy(text);
  const unread = mixesClocks(text) ? MIXED_TEXT : `it has one or more of ${CLAUSE_TEXT}`;
  const problem = policy ? policyProblem(policy) : unread;
  if (policy && !problem) return policy;
  throw bad(`--table-policy "${text}": ${problem}`);
}

/** `name=value`, for flags that only a model knows; numbers and booleans become such. */
export function modelOption(text: string, before: Record<string, unknown> = {}): Record<string, unknown> {
  const at = text.indexOf('=');
  if (at < 1) throw bad(`--model-option must be name=value, not "${text}"`);
  const flag = COMMON_OPTIONS.get(text.slice(0, at));
  if (flag !== undefined) throw bad(`--model-option ${text}: every model has that of ${flag}`);
  if (Object.hasOwn(before, text.slice(0, at)))
    throw bad(`--model-option ${text.slice(0, at)} is given twice`);
  const raw = text.slice(at + 1);
  const value =
    raw === 'true' || raw === 'false' ? raw === 'true' : Number.isNaN(decimal(raw)) ? raw : decimal(raw);
  return { ...before, [text.slice(0, at)]: value };
}

// ---- options that commands share

/** The heading that commander gives to options without a group. */
export const OWN_FLAGS = 'Options:';

/** The text of a flag in the help and in docs/commands.md. A flag that is off by default has no default. */
export function flagText({ description, defaultValue, defaultValueDescription, argChoices }: Option): string {
  const standard = defaultValueDescription ?? (typeof defaultValue === 'boolean' ? undefined : defaultValue);
  const choices = argChoices ? ` (${argChoices.join(', ')})` : '';
  return `${description}${choices}${standard === undefined ? '' : ` (default: ${standard})`}`;
}

/** Options that `add` adds have a heading of their own, in the help and in docs/commands.md. */
export function grouped(command: Command, heading: string, add: (command: Command) => Command): Command {
  return add(command.optionsGroup(`${heading}:`)).optionsGroup('');
}

export interface SharedFlags {
  tokenFile?: string;
  nodeTokenFile?: string;
  metricsTokenFile?: string;
  tlsCert?: string;
  tlsKey?: string;
  tlsCa?: string;
  tlsName?: string;
  logFormat?: LogFormat;
}

export function withToken(command: Command): Command {
  return grouped(command, 'Connection', (it) =>
    it.option('--token-file <file>', 'file with the token of the job (default: $KINTSUGI_TOKEN, else none)'),
  );
}

/** For scheduler and PS, which have a token that clients lack. */
export function withNodeToken(command: Command): Command {
  return grouped(command, 'Roles', (it) =>
    it.option(
      '--node-token-file <file>',
      'file with the token of scheduler and PS (default: $KINTSUGI_NODE_TOKEN, else --token-file)',
    ),
  );
}

export function withLogFormat(command: Command): Command {
  return grouped(command, 'Roles', (it) =>
    it.addOption(
      new Option(
        '--log-format <format>',
        'form of log records on standard error (default: text on a terminal, else json)',
      ).choices(['text', 'json']),
    ),
  );
}

/** For roles that listen. */
export function withMetricsToken(command: Command): Command {
  return grouped(command, 'Roles', (it) =>
    it.option(
      '--metrics-token-file <file>',
      'file with the bearer token of /metrics (default: $KINTSUGI_METRICS_TOKEN, else loopback only)',
    ),
  );
}

/** For commands that dial. */
export function withTls(command: Command): Command {
  return grouped(command, 'Connection', (it) =>
    it
      .option(
        '--tls-ca <file|system>',
        'speak TLS; verify by these authorities, or by public ones (default: $KINTSUGI_TLS_CA, else no TLS)',
      )
      .option(
        '--tls-name <name>',
        'name in the certificates of others (default: $KINTSUGI_TLS_NAME, else the host dialed)',
      ),
  );
}

/** For roles that listen. */
export function withCertificate(command: Command): Command {
  return grouped(command, 'Roles', (it) =>
    it
      .option('--tls-cert <file>', 'certificate (PEM) of this role: its port speaks TLS')
      .option('--tls-key <file>', 'private key (PEM) of --tls-cert'),
  );
}

export function withScheduler(command: Command): Command {
  return grouped(withTls(withToken(command)), 'Connection', (it) =>
    it
      .option(
        '--scheduler <host:port,...>',
        'address of the scheduler, or of all schedulers',
        DEFAULT_SCHEDULER,
      )
      .addOption(
        new Option('--connect-timeout <time>', 'wait so long for the scheduler and for the job')
          .argParser(duration('--connect-timeout'))
          .default(10_000, '10s'),
      ),
  );
}

export function withSchedule(command: Command): Command {
  return grouped(command, 'Training', (it) =>
    it.option(
      '--lr-schedule <kind,name=value,...>',
      `change --lr with the steps of a row: ${SCHEDULE_KINDS.join(', ')} (default: as the tables have it)`,
    ),
  );
}

/** Clipping and schedule of the embedding, for commands with --optimizer and --lr. */
export function withRates(command: Command): Command {
  return withSchedule(
    grouped(command, 'Training', (it) =>
      it.option(
        '--clip-norm <x>',
        'largest norm of the gradient of an embedding row (default: any, or as the tables have it)',
        positive('--clip-norm'),
      ),
    ),
  );
}

/** The training flags of `worker` and `local`; `local` hands them on to the workers it starts. */
export function withTraining(command: Command): Command {
  return grouped(withRates(command), 'Training', (it) =>
    it
      .option('--test <file...>', 'data to evaluate on after training (AUC, log loss)')
      .option(
        '--schema <file.json>',
        'columns of the data (default: as the model file says, else the Criteo layout)',
      )
      .option('--source <file>', 'program that reads --data and --test, as a source of your own')
      .option('--epochs <n>', 'passes over the data', integer('--epochs', 0), 1)
      .option('--batch <n>', 'rows per step', integer('--batch', 1, 1 << 20), 256)
      .option('--dim <n>', 'width of an embedding row', integer('--dim', 1, 65_536), 16)
      .option('--optimizer <name>', `of the embedding: ${OPTIMIZER_KINDS.join(', ')}`, 'adagrad')
      .option(
        '--lr <rate>',
        `learning rate of the embedding (default: ${USUAL_LR}, or as the tables of the job have it)`,
        positive('--lr'),
      )
      .option(
        '--table-policy <policy>',
        'of new embedding tables: "admit=counter(2),evict=ttl(2000)"',
        policyOf,
      )
      .option(
        '--count-duplicates',
        'for policies: a key is seen as often as a batch names it (default: once in each batch)',
        false,
      )
      .option('--dense-optimizer <name>', 'of the dense parameters, one of the same', 'adam')
      .option(
        '--dense-lr <rate>',
        `learning rate of the dense parameters (default: ${USUAL_DENSE_LR}, or as the job has it)`,
        positive('--dense-lr'),
      )
      .option('--bottom <widths>', 'layers of the bottom MLP (default: 64-<dim>)')
      .option('--top <widths>', 'layers of the top MLP (default: 256-64-1)')
      .option('--model <file.js>', 'a model of your own: a file that exports a model factory')
      .addOption(
        new Option('--model-name <name>', 'built-in model (default: dlrm)').choices([...MODEL_NAMES]),
      )
      .addOption(
        repeatable(new Option('--model-option <name=value>', 'flag for the model')).argParser(modelOption),
      )
      .option('--tensorboard <dir>', 'write events for TensorBoard, in a directory for each process')
      .option('--seed <n>', 'seed of the initial values', integer('--seed', 0), 1)
      .option('--in-flight <n>', 'pushes that need not be durable yet', integer('--in-flight', 1, 1024), 4)
      .option('--threads <n>', 'threads for dense math in a worker', integer('--threads', 1, 1024), 1)
      .option(
        '--range-batches <n>',
        'batches of the ranges that workers lease (default: 32, or 4 to 31 when the data are few)',
        integer('--range-batches', 1, 1 << 20),
      )
      .option(
        '--staleness <n>',
        'batches that a worker may be ahead of the slowest (default: any number)',
        integer('--staleness', 0, 1 << 20),
      )
      .option('--sync', 'workers wait for each other after each batch: --staleness 0', false)
      .option('--deterministic', 'the same bits every time: one step at a time, one thread', false),
  );
}

export interface TrainingFlags extends OptimizerFlags {
  test?: string[];
  schema?: string;
  source?: string;
  epochs: number;
  batch: number;
  dim: number;
  tablePolicy?: TablePolicy;
  countDuplicates: boolean;
  denseOptimizer: string;
  denseLr?: number;
  bottom?: string;
  top?: string;
  model?: string;
  modelName?: string;
  modelOption?: Record<string, unknown>;
  tensorboard?: string;
  seed: number;
  inFlight: number;
  threads: number;
  rangeBatches?: number;
  staleness?: number;
  sync: boolean;
  deterministic: boolean;
}

/** A run that trains nothing and tests nothing is a mistake. @throws BAD_ARGUMENT */
export function checkEpochs({ epochs, test = [] }: TrainingFlags): void {
  if (epochs > 0 || test.length > 0) return;
  throw new KintsugiError('BAD_ARGUMENT', '--epochs 0 trains nothing: it needs --test');
}

/** @throws BAD_ARGUMENT when --sync and --staleness contradict each other */
export function stalenessOf({ staleness, sync }: TrainingFlags): number {
  if (sync && (staleness ?? 0) > 0) throw bad(`--sync is --staleness 0, not ${staleness}`);
  return sync ? 0 : (staleness ?? UNBOUNDED);
}

/** The token of the job, from the flag, else from the environment. @throws BAD_ARGUMENT */
export function tokenOf({ tokenFile }: SharedFlags): string | undefined {
  return secretOf('--token-file', tokenFile, process.env.KINTSUGI_TOKEN);
}

/** The token of scheduler and PS, found as above. @throws BAD_ARGUMENT also without a token for clients */
export function nodeTokenOf(flags: SharedFlags): string | undefined {
  const secret = secretOf('--node-token-file', flags.nodeTokenFile, process.env.KINTSUGI_NODE_TOKEN);
  const token = tokenOf(flags);
  if (secret && !token) throw bad('--node-token-file needs --token-file: clients have a token, too');
  if (secret && secret === token) throw bad('--node-token-file and --token-file hold the same token');
  return secret;
}

/** The token that opens /metrics, from the flag, else from the environment. @throws BAD_ARGUMENT */
export function metricsTokenOf({ metricsTokenFile }: SharedFlags): string | undefined {
  return secretOf('--metrics-token-file', metricsTokenFile, process.env.KINTSUGI_METRICS_TOKEN);
}

/** The token that opens pulls over HTTP, from the flag, else from the environment. @throws BAD_ARGUMENT */
export function pullTokenOf(flags: { pullTokenFile?: string }): string | undefined {
  return secretOf('--pull-token-file', flags.pullTokenFile, process.env.KINTSUGI_PULL_TOKEN);
}

function secretOf(flag: string, file: string | undefined, fallback: string | undefined): string | undefined {
  if (file === undefined) return fallback || undefined;
  let secret: string;
  try {
    secret = readFileSync(file, 'utf8').trim();
  } catch (error) {
    throw causedBy(error, 'BAD_ARGUMENT', `${flag} ${file} cannot be read`);
  }
  if (secret === '') throw bad(`${flag} ${file} is empty`);
  return secret;
}

/** How this process verifies the peers that it dials; undefined: no TLS. @throws BAD_ARGUMENT */
export function clientTlsOf(flags: SharedFlags): ClientTls | undefined {
  const ca = flags.tlsCa ?? (process.env.KINTSUGI_TLS_CA || undefined);
  if (ca === undefined && flags.tlsCert === undefined) {
    if (flags.tlsName !== undefined) throw bad('--tls-name needs --tls-ca');
    return undefined;
  }
  const serverName = flags.tlsName ?? (process.env.KINTSUGI_TLS_NAME || undefined);
  return { caFile: ca === 'system' ? undefined : ca, serverName };
}

/**
 * The certificate of a role, and how it verifies the peers that it dials; undefined: no TLS.
 * @throws BAD_ARGUMENT also for authorities without a certificate: such a role would listen unencrypted in a
 * job that is meant to be encrypted
 */
export function roleTlsOf(flags: SharedFlags): RoleTls | undefined {
  const certificate = certificateOf(flags);
  const client = clientTlsOf(flags);
  if (certificate) return { ...client, ...certificate };
  if (client) throw bad('--tls-ca and KINTSUGI_TLS_CA need --tls-cert and --tls-key: this role listens, too');
  return undefined;
}

/** The certificate that a listener shows, if any. @throws BAD_ARGUMENT */
export function certificateOf({ tlsCert, tlsKey }: SharedFlags): ServerTls | undefined {
  if (tlsCert !== undefined && tlsKey !== undefined) return { certFile: tlsCert, keyFile: tlsKey };
  if (tlsCert !== undefined) throw bad('--tls-cert needs --tls-key');
  if (tlsKey !== undefined) throw bad('--tls-key needs --tls-cert');
  return undefined;
}

/**
 * The log of a role, on standard error. It begins with warnings about files of secrets. A role lives on when
 * its log cannot be written, because the reader has ended or the disk is full. A command whose output cannot
 * be written ends.
 */
export function loggerOf(flags: SharedFlags, base: LogFields): Logger {
  for (const stream of [process.stdout, process.stderr]) stream.on('error', () => {});
  const log = sparing(createLogger(flags.logFormat ?? (process.stderr.isTTY ? 'text' : 'json'), base));
  warnOfReadable(flags, log);
  return log;
}
