/**
 * `kintsugi local`: a whole job on one machine as real processes, with failures on purpose, and the proof
 * afterwards that nothing was lost. The order: scheduler, PS, what is to be resumed, workers; then wait for
 * redundancy; then evaluate, check and digest; then stop everything.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { KintsugiError } from '../../common/errors.js';
import { type Client, connect } from '../../library/client/client.js';
import { Dataset } from '../../library/client/dataset.js';
import { appender } from '../../library/observe/aside.js';
import { LoadEvents } from '../../library/observe/load-events.js';
import { Observer } from '../../library/observe/observer.js';
import { checkPushes } from '../../library/tools/audit.js';
import { digest } from '../../library/tools/digest.js';
import { load } from '../../library/tools/load.js';
import { checkParity } from '../../library/tools/parity.js';
import { monotonicMs } from '../../net/log.js';
import type { JobStatus } from '../../protocol/messages.js';
import { LocalAutoscale } from './autoscale.js';
import { RunCheckpoints } from './checkpoints.js';
import type { Display } from './display.js';
import { numberOf, type RoleEvent } from './events.js';
import { goodputReport } from './goodput.js';
import { KeptEvents } from './kept-events.js';
import { JobKilled } from './killed.js';
import { type Kill, KillPlan, type KillRole } from './kills.js';
import { Narrator } from './narrator.js';
import { checkLocalOptions, type LocalOptions } from './options.js';
import { Processes, psName } from './processes.js';
import { withReasons } from './reasons.js';
import {
  crashesOf,
  detectionOf,
  endOf,
  failuresOf,
  inOrder,
  type KillRecord,
  type PushCheck,
  type RunReport,
  summarize,
  trainingSpan,
} from './report.js';
import { samplesOf, samplesReport } from './samples.js';
import { checkSave, saveRun } from './saving.js';
import { Scalings } from './scaling.js';
import { scalingsOf } from './scaling-report.js';
import { countText, percentText, timeText } from './text.js';

/** Name of the data set. */
const RUN = 'local';
const FORM_LIMIT_MS = 60_000;
/** After the last sample the job gets so long to become redundant, or to know that it cannot. */
const SETTLE_LIMIT_MS = 10 * 60_000;
const SETTLE_POLL_MS = 20;
/** How often recovery is asked about for the display, and the span that live throughput is taken over. */
const WATCH_MS = 250;
const RATE_SPAN_MS = 2000;

export interface LocalRun {
  report: RunReport;
  /** Records of the roles, in the order of their clocks; of a long run not all progress (kept-events.ts). */
  events: RoleEvent[];
  kills: KillRecord[];
}

/** A kill of one process. */
type Strike = Kill & { role: KillRole };
class LocalJob {
  private readonly directory = mkdtempSync(join(tmpdir(), 'kintsugi-'));
  private readonly processes: Processes;
  private readonly narrator: Narrator;
  private readonly append: (text: string) => void;
  private readonly checkpoints: RunCheckpoints;
  private readonly autoscale: LocalAutoscale | undefined;
  private readonly told = new KeptEvents();
  private readonly kills: KillRecord[] = [];
  private readonly crashed = new Set<string>();
  /** Kills of processes that are down at the moment, by name: due when they are back. */
  private readonly deferred: { kill: Strike; name: string }[] = [];
  /** Samples of each worker, by name. `before`: those of earlier processes of that name. */
  private readonly samples = new Map<string, { before: number; now: number }>();
  /** Client ids of the workers that train, by name. */
  private readonly clients = new Map<string, number>();
  private rates: { mono: number; samples: number }[] = [];
  private plan: KillPlan | undefined;
  private scalings: Scalings | undefined;
  private client: Client | undefined;
  private board: LoadEvents | undefined;
  private observer: Observer | undefined;
  private total = 0;
  private loss = Number.NaN;
  private cluster = 'starting';
  private watch: NodeJS.Timeout | undefined;
  private hide: (() => Promise<void>) | undefined;

  constructor(
    private readonly options: LocalOptions,
    private readonly display: Display,
  ) {
    this.checkpoints = new RunCheckpoints(options);
    this.autoscale = options.autoscale && new LocalAutoscale(options.autoscale);
    this.narrator = new Narrator((text) => display.line(text));
    this.append = appender('--log', options.log, (text) => display.line(text));
    this.processes = new Processes({
      options,
      directory: this.directory,
      onEvent: (event, line) => this.onEvent(event, line),
      onBack: (name) => this.onBack(name),
      onCrash: (name, death, pauseMs) => this.onCrash(name, death, pauseMs),
    });
  }

  async run(signal: AbortSignal | undefined): Promise<LocalRun> {
    const abort = () => this.processes.fail(new KintsugiError('ABORTED', 'interrupted'));
    signal?.addEventListener('abort', abort);
    if (signal?.aborted) abort();
    try {
      const run = await this.processes.race(this.story());
      this.display.end();
      await this.client?.close();
      await this.processes.stop();
      return { ...run, report: await this.checkpoints.atEnd(run.report) };
    } catch (error) {
      this.display.end();
      if (error instanceof JobKilled) throw await this.killed(error);
      const told = await withReasons(error, this.client);
      await this.processes.abandon();
      await this.client?.close();
      throw told;
    } finally {
      clearInterval(this.watch);
      await this.hide?.();
      void this.observer?.stop();
      void this.autoscale?.stop();
      signal?.removeEventListener('abort', abort);
      rmSync(this.directory, { recursive: true, force: true });
    }
  }

  /** The error of a run whose processes were all killed: only its checkpoints are left. */
  private async killed({ report }: JobKilled): Promise<JobKilled> {
    await this.processes.abandon();
    await this.client?.close();
    await this.checkpoints.keep(this.told.all, this.display);
    const events = inOrder(this.told.all);
    const checkpoints = await this.checkpoints.report(events, trainingSpan(events)?.start);
    return new JobKilled({ ...report, goodput: goodputReport(events), checkpoints });
  }

  private async story(): Promise<LocalRun> {
    const { options, processes } = this;
    await checkSave(options);
    const rows = await samplesOf(options);
    this.total = rows * options.epochs;
    const restored = await this.checkpoints.begin();
    processes.restore = restored;
    if (restored) this.display.line(`beginning with checkpoint ${restored.number} of ${restored.url}`);
    this.plan = new KillPlan(options.kills, this.total, options.seed);
    this.scalings = new Scalings(options.scales, this.total, {
      client: () => this.client!,
      startPs: () => processes.startAnotherPs(),
      returning: () => processes.returning,
      tell: (text) => this.display.line(text),
    });
    await this.form();
    const client = this.client!;
    this.checkpoints.formed(client.clusterMap.pools);
    if (options.resume) await load(client, options.resume.url, { number: options.resume.number });
    await this.train();
    const status = await this.settle();
    if (options.test.length > 0) await this.evaluate();
    const saved = await saveRun(client, options);
    this.display.line('checking pushes, parity and digest');
    const pushes = await this.checkPushes(client);
    const samples = samplesReport({
      ...{ inFiles: rows, epochs: options.epochs, pushes },
      status: await Dataset.status(client, RUN),
      told: this.checkpoints.ranges(this.told.all).length,
      untold: this.checkpoints.untold(RUN, this.told.all),
    });
    const parity = await checkParity(client);
    const { sha256, rows: digestRows } = await digest(client);
    await this.checkpoints.last(client, this.told.all, this.display);
    processes.check();
    const events = inOrder(this.told.all);
    const tested = events.find((event) => event.event === 'worker.test');
    const report: RunReport = {
      ...summarize(events),
      samples,
      goodput: goodputReport(events),
      testAuc: tested ? numberOf(tested, 'auc') : null,
      testLogLoss: tested ? numberOf(tested, 'logloss') : null,
      digest: sha256,
      rows: digestRows,
      pushes,
      parity,
      redundancy: status.redundancy,
      failures: failuresOf(events, this.kills),
      crashes: crashesOf(events),
      scalings: scalingsOf(events, this.scalings.records),
      autoscale: this.autoscale?.report(trainingSpan(events)?.start) ?? null,
      checkpoints: await this.checkpoints.report(events, trainingSpan(events)?.start),
      restored: this.checkpoints.restoredReport(events),
      saved,
      ...endOf(await client.observe()),
    };
    return { report, events, kills: this.kills };
  }

  // ---- chapters

  private async form(): Promise<void> {
    const { options, processes } = this;
    await processes.startScheduler();
    this.hide = await options.show?.(processes.address);
    const nodes = Array.from({ length: options.ps + options.standby }, (_, index) => index);
    await Promise.all(nodes.map((index) => processes.startPs(index)));
    this.client = await connect(processes.address, { token: options.token, connectTimeoutMs: FORM_LIMIT_MS });
    this.cluster = 'redundant';
    const standby = options.standby > 0 ? ` and ${options.standby} standby` : '';
    const where = `scheduler ${processes.address}`;
    this.display.line(`${options.ps} PS${standby} are up, code ${options.code}, ${where}`);
    if (options.tensorboard !== undefined) this.board = this.observeFor(options.tensorboard);
    this.watch = setInterval(() => void this.look(), WATCH_MS);
  }

  private observeFor(directory: string): LoadEvents {
    const board = new LoadEvents(directory, (text) => this.display.line(text));
    const observer = new Observer(this.client!, { keep: 2 });
    observer.on((snapshot) => board.add(snapshot));
    observer.start();
    this.observer = observer;
    return board;
  }

  private boardArgs(): string[] {
    const { tensorboard } = this.options;
    return tensorboard === undefined ? [] : ['--tensorboard', tensorboard];
  }

  private async train(): Promise<void> {
    const { options, processes } = this;
    if (this.total > 0) {
      const args = ['--run', RUN, '--data', ...options.data, '--epochs', `${options.epochs}`];
      args.push(...options.workerArgs, ...this.boardArgs());
      if (options.audit) args.push('--audit');
      const names = Array.from({ length: options.workers }, (_, index) => `worker-${index}`);
      for (const name of names) processes.train(name, args).catch((error: Error) => processes.fail(error));
      this.autoscale?.start(this.client!, processes.crew(args), (text) => this.display.line(text));
      await processes.trained();
      await this.autoscale?.stop();
      processes.check();
      await this.checkTrained();
    }
    this.strike(this.total);
  }

  private async checkTrained(): Promise<void> {
    const status = await Dataset.status(this.client!, RUN);
    if (status?.complete) return;
    const trained = status?.samples.reduce((sum, samples) => sum + samples, 0) ?? 0;
    throw new KintsugiError(
      'ABORTED',
      `no worker is left: ${countText(trained)} of ${countText(this.total)} samples were trained`,
    );
  }

  /** Waits until every failure was noticed and redundancy is back, or cannot come back. */
  private async settle(): Promise<JobStatus> {
    const deadline = monotonicMs() + SETTLE_LIMIT_MS;
    for (;;) {
      const status = await this.client!.status();
      const open = this.deferred.length > 0 && this.processes.returning > 0;
      // Training is over, so lost workers need not be noticed.
      const lasting = this.kills.filter((kill) => kill.role !== 'worker');
      const noticed = lasting.every((kill) => detectionOf(this.told.all, kill) !== undefined);
      const final =
        status.redundancy === 'lost' || (status.redundancy === 'degraded' && this.processes.returning === 0);
      const changing = status.scaling.changes.some((change) => change.state === 'running');
      const still = this.scalings?.idle !== false && !changing;
      if (noticed && still && !open && (status.redundancy === 'full' || final)) {
        for (const { name } of this.deferred) this.display.line(`${name} was down when it was to be killed`);
        if (status.redundancy !== 'full')
          this.display.line(`${status.redundancy}: ${status.reasons.join('; ')}`);
        return status;
      }
      if (monotonicMs() > deadline) {
        throw new KintsugiError(
          'TIMEOUT',
          `no redundancy after ${SETTLE_LIMIT_MS / 1000} s: ${status.reasons.join('; ')}`,
        );
      }
      await new Promise((resolve) => setTimeout(resolve, SETTLE_POLL_MS));
    }
  }

  private async evaluate(): Promise<void> {
    await this.observer?.look();
    const args = ['--evaluate', ...this.options.workerArgs, '--test', ...this.options.test];
    const tested = await this.processes.startWorker('evaluation', args).event('worker.test');
    this.board?.tested(Number(tested.auc), Number(tested.logloss));
  }

  private async checkPushes(client: Client): Promise<PushCheck> {
    const counts = this.checkpoints.ranges(this.told.all);
    if (this.options.audit) return checkPushes(client, counts);
    const acked = counts.flatMap((each) => each.counts).reduce((sum, each) => sum + each.acknowledged, 0);
    return { acked, lost: null, duplicated: null };
  }

  // ---- while it runs

  private onEvent(event: RoleEvent, line: string): void {
    this.append(`${line}\n`);
    this.told.add(event);
    this.narrator.event(event);
    // A damaged checkpoint stays damaged; any other failure is tried again.
    if (event.event === 'restore.failed' && event.code === 'BAD_CHECKPOINT')
      this.processes.fail(new KintsugiError('BAD_CHECKPOINT', String(event.message)));
    if (event.event === 'redundancy' && event.state === 'full') this.cluster = 'redundant';
    const known = this.samples.get(event.source) ?? { before: 0, now: 0 };
    if (event.event === 'worker.training') {
      this.clients.set(event.source, numberOf(event, 'client'));
      this.samples.set(event.source, { before: known.before + known.now, now: 0 });
    }
    if (event.event !== 'worker.progress') return;
    this.samples.set(event.source, { ...known, now: numberOf(event, 'samples') });
    this.loss = numberOf(event, 'loss');
    const told = [...this.samples.values()].reduce((sum, { before, now }) => sum + before + now, 0);
    const done = this.checkpoints.samplesBefore + told;
    this.rates.push({ mono: event.mono, samples: done });
    while (this.rates[0] && this.rates[0].mono < event.mono - RATE_SPAN_MS) this.rates.shift();
    this.strike(done);
    this.show();
  }

  private show(): void {
    const first = this.rates[0];
    const last = this.rates.at(-1);
    if (!first || !last) return;
    const span = (last.mono - first.mono) / 1000;
    const samplesPerSecond = span > 0 ? (last.samples - first.samples) / span : 0;
    const { total, loss, cluster } = this;
    this.display.progress({ samples: last.samples, total, samplesPerSecond, loss, cluster });
  }

  private async look(): Promise<void> {
    if (!this.narrator.busy) return;
    const status = await this.client?.status().catch(() => undefined);
    if (!status) return;
    const lost = status.recoveries.reduce((sum, each) => sum + each.blocksLost, 0);
    const present = status.recoveries.reduce((sum, each) => sum + each.blocksPresent, 0);
    if (status.redundancy === 'full') this.cluster = 'redundant';
    else if (status.redundancy !== 'recovering') this.cluster = status.redundancy;
    else if (lost === 0) this.cluster = 'recovering';
    else if (present < lost) this.cluster = `recovering ${percentText(present / lost)}`;
    else this.cluster = 'rebuilding parity';
    this.show();
  }

  // ---- failures on purpose

  private strike(samples: number): void {
    this.scalings?.reach(samples);
    for (const each of this.plan?.due(samples) ?? []) {
      const { role } = each;
      if (role === 'all') return this.strikeAll(each, samples);
      const kill = { ...each, role };
      const name = kill.role === 'scheduler' ? 'scheduler' : this.victim(kill);
      if (name === undefined)
        this.display.line(`no ${kill.role === 'ps' ? 'PS' : kill.role} is left to be killed`);
      else if (this.processes.isReady(name)) this.strikeNow(kill, name);
      else this.deferred.push({ kill, name });
    }
  }

  private strikeAll({ percent }: Kill, samples: number): void {
    this.processes.killAll();
    const start = trainingSpan(this.told.all)?.start ?? monotonicMs();
    const atSeconds = Math.round(monotonicMs() - start) / 1000;
    const killed = { percent, samples, expected: this.total, atSeconds };
    this.processes.fail(new JobKilled({ killed, goodput: goodputReport([]), checkpoints: null }));
  }

  /** Name of the process to kill: the one asked for, or one that holds shards, chosen by the seed. */
  private victim({ role, index }: Strike): string | undefined {
    if (role === 'worker') {
      const names = Array.from({ length: this.options.workers }, (_, i) => `worker-${i}`);
      if (index !== undefined) return names[index];
      return this.plan?.choose(names.filter((name) => this.processes.isReady(name)));
    }
    if (index !== undefined) return psName(index);
    const live = this.processes.readyPs();
    const map = this.client!.clusterMap;
    const holders = new Set(
      map.groups.flatMap((group) => [...group.data, ...group.sinks]).map((entry) => entry.node),
    );
    const holding = live.filter((name) =>
      map.nodes.some((node) => node.name === name && holders.has(node.id)),
    );
    return this.plan?.choose(holding.length > 0 ? holding : live);
  }

  private strikeNow(kill: Strike, name: string): void {
    const map = this.client!.clusterMap;
    const node = kill.role === 'ps' ? map.nodes.find((entry) => entry.name === name) : undefined;
    const shards = map.groups.flatMap((group) =>
      group.data.flatMap((entry, member) =>
        node && entry.node === node.id && entry.inc === node.inc
          ? [{ group: group.id, member, gen: entry.gen }]
          : [],
      ),
    );
    const inc = node?.inc ?? this.clients.get(name) ?? 0;
    const record: KillRecord = { role: kill.role, name, inc, mono: monotonicMs(), shards };
    this.processes.kill(kill.role, name);
    this.kills.push(record);
    this.narrator.killed(record, kill.percent);
  }

  private onCrash(name: string, { message }: KintsugiError, pauseMs: number): void {
    this.crashed.add(name);
    this.display.line(`${message}; it is started again after ${timeText(pauseMs)}`);
  }

  private onBack(name: string): void {
    // The narrator tells of a scheduler that was killed on purpose.
    if (name !== 'scheduler' || this.crashed.delete(name))
      this.display.line(`${name} was started again${name.startsWith('ps') ? ', empty' : ''}`);
    const at = this.deferred.findIndex((each) => each.name === name);
    const [due] = at < 0 ? [] : this.deferred.splice(at, 1);
    if (due) this.strikeNow(due.kill, name);
  }
}

/**
 * Runs a job to its end. Leaves no process behind, whatever happens.
 * @throws BAD_ARGUMENT, NOT_ENOUGH_NODES, BAD_DATA, ... and ABORTED after the signal; an error of a role
 * names the role; JobKilled when every process was killed as asked
 */
export async function runLocal(
  options: LocalOptions,
  display: Display,
  signal?: AbortSignal,
): Promise<LocalRun> {
  checkLocalOptions(options);
  return new LocalJob(options, display).run(signal);
}
