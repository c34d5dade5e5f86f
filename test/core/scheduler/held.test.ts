/** The effects that wait for the store have a limit: beyond it requests are refused. */
import { beforeEach, expect, it } from 'vitest';
import type { Message } from '../../../src/protocol/messages.js';
import { BareScheduler, type Identity } from './bare.js';

const LIMIT = 8;
let job: BareScheduler;
let client: Identity;
let nodes: Identity[];
let asked = 0;

const table = (name: string) => ({
  ...{ name, pool: 'embedding', dim: 4, seed: 1 },
  optimizer: { kind: 'sgd' as const, lr: 0.1 },
  initializer: { kind: 'zeros' as const },
});
const decide = (): void => {
  asked++;
  job.hear(client.id, { t: 'createTables', id: asked, specs: [table(`t${asked}`)] });
};
const answers = (): Message[] =>
  job.effects.flatMap((effect) =>
    effect.kind === 'send' || effect.kind === 'reply' ? [effect.message] : [],
  );

beforeEach(() => {
  asked = 0;
  job = new BareScheduler(1, 1, 1, { maxHeldEffects: LIMIT });
  nodes = [job.join('ps-0'), job.join('ps-1')];
  for (const node of nodes) job.complete(node);
  client = job.attach();
  job.tick(50);
  job.leaveStore();
});

/** Decisions are asked for until one is refused at once. */
function fill(): void {
  for (let i = 0; i < LIMIT && answers().length === 0; i++) decide();
}

it('a request is refused with LIMIT, and nothing is decided', () => {
  fill();
  job.step({ kind: 'store', problem: 'it is away' });
  const { epoch } = job.scheduler.map;
  decide();
  expect(answers()).toEqual([
    { t: 'tablesCreated', id: asked, tables: [], code: 'LIMIT', message: expect.stringContaining('store') },
  ]);
  job.hear(client.id, { t: 'rebalance', id: 77, dryRun: false, timeoutMs: 0 });
  expect(answers()).toMatchObject([{ t: 'changeReply', id: 77, code: 'LIMIT' }]);
  expect(job.scheduler.map.epoch).toBe(epoch);
  expect(job.scheduler.status().warnings).toContainEqual(expect.stringContaining('requests are refused'));
});

it('what has no answer to refuse it with is not answered: whoever asked asks again', () => {
  fill();
  job.hear(client.id, { t: 'acquire', id: 5, name: 'none', clock: 0 });
  expect(answers()).toEqual([]);
});

it('a new client is refused, and one that comes back is not answered', () => {
  fill();
  job.step({ kind: 'attach', link: 900, message: { t: 'attach' } });
  expect(answers()).toEqual([{ t: 'stale', code: 'LIMIT' }]);
  job.step({
    kind: 'attach',
    link: 901,
    message: { t: 'attach', id: client.id, job: job.scheduler.map.job },
  });
  expect(answers()).toEqual([]);
});

it('nodes are heard, and the status is told', () => {
  fill();
  job.tick(50);
  for (const node of nodes) job.complete(node);
  expect(job.scheduler.status().nodes.every(({ alive }) => alive)).toBe(true);
  job.hear(client.id, { t: 'status', id: 9 });
  expect(answers()).toMatchObject([{ t: 'statusReply', id: 9 }]);
});

it('everything that was decided is told when it is durable, and requests are taken again', () => {
  fill();
  const refused = asked;
  job.returnStore();
  const created = answers().filter(({ t }) => t === 'tablesCreated');
  expect(created).toHaveLength(refused - 1);
  decide();
  expect(answers()).toMatchObject([{ t: 'tablesCreated', id: asked, tables: [{ name: `t${asked}` }] }]);
});
