/**
 * `bench transports`: the library over `ws`, on a Node of your choice, against the library over
 * uWebSockets.js on the Node that runs this. Each side has a PS and a client of its own; they take turns.
 */
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { describe, KintsugiError } from '../../src/common/errors.js';
import type { MeasuredTurn } from '../common/loopback/measure.js';
import { BenchReport } from '../common/report.js';
import { median } from '../common/statistics.js';
import type { TransportsOptions } from './options.js';
import { KINDS, type Kind, type SideRequest } from './side.js';

const SIDE = fileURLToPath(new URL('./side.js', import.meta.url));
const GOAL = 0.8;

class TransportSide {
  readonly turns: Record<Kind, MeasuredTurn[]> = {
    pull: [],
    push: [],
    'pull of 64 rows': [],
    'push of 64 rows': [],
  };

  private constructor(
    private readonly child: ChildProcess,
    readonly name: string,
  ) {}

  /** @throws UNREACHABLE when it ends before it is ready, or the Node is not there */
  static async start(transport: 'uws' | 'ws', rows: number, node = process.execPath): Promise<TransportSide> {
    const child = fork(SIDE, [String(rows)], {
      execPath: node,
      execArgv: [],
      stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
      env: { ...process.env, KINTSUGI_TRANSPORT: transport },
    });
    const { node: version } = (await said(child)) as { node: string };
    return new TransportSide(child, `${transport === 'uws' ? 'uWebSockets.js' : 'ws'} on Node ${version}`);
  }

  async turn(kind: Kind, ms: number): Promise<MeasuredTurn> {
    this.send({ kind, ms });
    return (await said(this.child)) as MeasuredTurn;
  }

  private send(request: SideRequest): void {
    this.child.send(request);
  }

  async close(): Promise<void> {
    const gone = once(this.child, 'exit');
    this.send({ end: true });
    await gone;
  }
}

async function said(child: ChildProcess): Promise<unknown> {
  const over = new AbortController();
  const ended = (how: unknown) =>
    new KintsugiError('UNREACHABLE', `one side of the comparison ended: ${how}`);
  const exit = once(child, 'exit', { signal: over.signal }).then(([code, signal]): never => {
    throw ended(signal ?? code);
  });
  // The wait for the exit is aborted when the message is there.
  exit.catch(() => {});
  try {
    const [message] = (await Promise.race([once(child, 'message', { signal: over.signal }), exit])) as [
      unknown,
    ];
    return message;
  } catch (error) {
    throw error instanceof KintsugiError ? error : ended(describe(error));
  } finally {
    over.abort();
  }
}

/** @throws BAD_ARGUMENT, DEPENDENCY_MISSING, UNREACHABLE */
export async function run(options: TransportsOptions): Promise<void> {
  const { rows, rounds, turnMs, tell } = options;
  const report = new BenchReport('transports', options);
  Object.assign(report.parameters, { rows, rounds, turnMs });
  const sides: TransportSide[] = [];
  try {
    sides.push(await TransportSide.start('uws', rows));
    sides.push(await TransportSide.start('ws', rows, options.node));
    for (let round = 0; round <= rounds; round++) {
      tell(round === 0 ? 'warming up' : `round ${round} of ${rounds}`);
      for (const kind of KINDS)
        for (const side of round % 2 === 0 ? sides : sides.toReversed()) {
          const measured = await side.turn(kind, turnMs);
          if (round > 0) side.turns[kind].push(measured);
        }
    }
  } finally {
    await Promise.all(sides.map((side) => side.close()));
  }
  const [uws, ws] = sides as [TransportSide, TransportSide];
  const figures = [
    ['', 'requests/s', (each: MeasuredTurn) => each.requestsPerSecond],
    [' per server core', 'requests per CPU second', (each: MeasuredTurn) => each.perServerSecond],
    [' per client core', 'requests per CPU second', (each: MeasuredTurn) => each.perClientSecond],
  ] as const;
  for (const kind of KINDS)
    for (const [what, unit, of] of figures) {
      const values = Object.fromEntries(sides.map(({ name, turns }) => [name, median(turns[kind].map(of))]));
      report.add({ name: `${kind}${what}`, unit, values });
    }
  for (const kind of ['pull', 'push'] as const)
    report.goal(`${kind}: ${ws.name} / ${uws.name}`, report.ratio(kind, ws.name, uws.name), GOAL);
  report.finish();
}
