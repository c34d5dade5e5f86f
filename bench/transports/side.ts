/**
 * One side of `bench transports`, as a process of its own, because the version of Node is part of it: a PS, a
 * client of it, and turns of the requests that the parent names.
 */
import { OnePs } from '../common/loopback/cluster.js';
import { type MeasuredTurn, turn, WINDOW } from '../common/loopback/measure.js';
import { DIM, REQUEST_ROWS } from '../common/loopback/options.js';
import { keySets } from '../common/loopback/requests.js';

export const KINDS = ['pull', 'push', 'pull of 64 rows', 'push of 64 rows'] as const;
export type Kind = (typeof KINDS)[number];

const FEW = 64;

export type SideRequest = { kind: Kind; ms: number } | { end: true };
export type SideAnswer = { node: string } | MeasuredTurn;

async function side(rows: number): Promise<void> {
  const ps = await OnePs.start();
  const table = await ps.fill('t', rows);
  const many = keySets(REQUEST_ROWS, rows);
  const few = keySets(FEW, rows);
  const places = Array.from({ length: WINDOW }, () => new Float32Array(REQUEST_ROWS * DIM));
  const deltas = new Float32Array(REQUEST_ROWS * DIM).fill(0.01);
  let used = 0;
  const pull = (i: number) => {
    const into = places[used++ % WINDOW]!;
    return ps.client.pull([{ table, keys: many[i % many.length]!, into }]);
  };
  const contenders = {
    pull: ps.contender('pull', pull),
    push: ps.contender('push', (i) => table.push(many[i % many.length]!, deltas)),
    'pull of 64 rows': ps.contender('pull', (i) => table.pull(few[i % few.length]!)),
    'push of 64 rows': ps.contender('push', (i) =>
      table.push(few[i % few.length]!, deltas.subarray(0, FEW * DIM)),
    ),
  } satisfies Record<Kind, unknown>;
  const answer = (what: SideAnswer) => process.send!(what);
  process.on('message', async (request: SideRequest) => {
    if ('kind' in request) return answer(await turn(contenders[request.kind], request.ms));
    await ps.close();
    process.exit(0);
  });
  process.on('disconnect', () => process.exit(1));
  answer({ node: process.version });
}

if (process.send) await side(Number(process.argv[2]));
