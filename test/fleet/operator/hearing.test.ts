/** Conditions about a scheduler come from its answers, and not from the readiness of Pods. */
import { createServer, type Server, type Socket } from 'node:net';
import { describe, expect, it, onTestFinished } from 'vitest';
import type { ObservedJob } from '../../../src/fleet/operator/reconcile/observed.js';
import { reconcile } from '../../../src/fleet/operator/reconcile/reconcile.js';
import { startLocalCluster } from '../../../src/roles/cluster.js';
import { linkTo } from './links.js';
import { nodeOf, running, START, schedulerPod, step } from './support.js';

const LATER = START + 10_000;
const at = (ms: number): string => new Date(ms).toISOString().replace('.000Z', 'Z');

/** A job whose scheduler Pod is ready, after a pass. */
function served(more: Partial<ObservedJob> = {}): ObservedJob {
  const observed = running();
  const all = { ...observed, pods: [...observed.pods, schedulerPod()], heardAt: START, ...more };
  return step(all, reconcile(all));
}
const pass = (observed: ObservedJob): ObservedJob => step(observed, reconcile(observed));
const told = ({ job }: ObservedJob) =>
  Object.fromEntries(
    (job.status?.conditions ?? []).map(({ type, status, reason }) => [type, [status, reason]]),
  );
const messageOf = ({ job }: ObservedJob, of: string) =>
  job.status?.conditions?.find(({ type }) => type === of)?.message;

describe('a job that answers', () => {
  it('is reachable', () => {
    const observed = served();
    expect(told(observed)).toMatchObject({
      Reachable: ['True', 'Answers'],
      SchedulerReady: ['True', 'Serving'],
      Running: ['True', 'Running'],
    });
    expect(observed.job.status!.lastHeard).toBe(at(START));
  });

  it('has the time of an answer written seldom', () => {
    const observed = served();
    expect(reconcile({ ...observed, now: LATER, heardAt: LATER })).toEqual([]);
    const minutes = START + 5 * 60_000;
    expect(pass({ ...observed, now: minutes, heardAt: minutes }).job.status!.lastHeard).toBe(at(minutes));
  });

  it('says which PS it does not hear, whatever their kubelets last said', () => {
    const observed = served();
    const nodes = observed.report!.nodes.map((one) => ({ ...one, alive: one.name !== 'movies-ps-1' }));
    expect(pass({ ...observed, report: { ...observed.report!, nodes } }).job.status!.ps).toBe('3/4');
  });
});

describe('a job that does not answer', () => {
  it('says so at once, and since when, though its Pod is ready', () => {
    const silent = pass({ ...served(), report: undefined, now: LATER, heardAt: START + 4000 });
    expect(told(silent)).toMatchObject({
      Reachable: ['False', 'NoAnswer'],
      SchedulerReady: ['False', 'NoAnswer'],
      Running: ['Unknown', 'NoAnswer'],
      Redundant: ['Unknown', 'Unknown'],
    });
    const since = `no answer since ${at(START + 4000)}`;
    expect([messageOf(silent, 'Reachable'), messageOf(silent, 'Running')]).toEqual([since, since]);
    expect(silent.job.status).toMatchObject({ lastHeard: at(START + 4000), redundancy: 'unknown' });
    // Silence that lasts is not written again. An operator that begins knows the time from the status.
    expect(reconcile({ ...silent, now: LATER + 60_000 })).toEqual([]);
    expect(pass({ ...silent, heardAt: undefined }).job.status!.lastHeard).toBe(at(START + 4000));
  });

  it('is not doubted by an operator that begins, before that has asked', () => {
    const observed = served();
    const begins = { ...observed, report: undefined, heardAt: undefined, asking: true };
    expect(pass(begins).job.status).toEqual(observed.job.status);
    expect(told(pass({ ...begins, asking: false })).Reachable).toEqual(['False', 'NoAnswer']);
  });

  it('counts no Pod as ready on a machine that does not answer', () => {
    const observed = served();
    const lost = pass({ ...observed, report: undefined, nodes: [nodeOf('n1', false)] });
    expect(lost.job.status).toMatchObject({ ps: '0/4', workers: '0/2' });
    expect(told(lost).SchedulerReady).toEqual(['False', 'NotReady']);
  });
});

/** A way to a scheduler that can be cut without a word, as when its machine vanishes. */
async function wayTo(address: string): Promise<{ address: string; cut(): void }> {
  const { connect } = await import('node:net');
  const [host, port] = address.split(':') as [string, string];
  const sockets: Socket[] = [];
  const server: Server = createServer((near) => {
    const far = connect(Number(port), host);
    sockets.push(near, far);
    near.pipe(far).pipe(near);
    for (const socket of [near, far]) socket.on('error', () => {});
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  const own = server.address() as { port: number };
  return {
    address: `127.0.0.1:${own.port}`,
    cut: () => {
      for (const socket of sockets) socket.unpipe().pause();
    },
  };
}

it('a link notices within seconds that a scheduler has vanished', async () => {
  const cluster = await startLocalCluster({ code: '1+1', token: 'secret' });
  onTestFinished(() => cluster.close());
  const way = await wayTo(cluster.address);
  const { link, until } = linkTo(way.address);
  expect([link.looked, link.heardAt]).toEqual([false, undefined]);
  await until(() => link.report?.redundancy === 'full');
  expect(link.looked).toBe(true);
  const begun = performance.now();
  way.cut();
  await until(() => link.report === undefined);
  expect(performance.now() - begun).toBeLessThan(6000);
  expect(Date.now() - link.heardAt!).toBeGreaterThan(1000);
});

it('each condition says of which generation of the spec it tells', () => {
  const generations = ({ job }: ObservedJob) =>
    Object.fromEntries(job.status!.conditions!.map((one) => [one.type, one.observedGeneration]));
  const observed = served();
  const first = generations(observed);
  expect(Object.keys(first).length).toBeGreaterThan(3);
  expect(new Set(Object.values(first))).toEqual(new Set([1]));
  const { job } = observed;
  const edited = { ...observed, job: { ...job, metadata: { ...job.metadata, generation: 2 } } };
  expect(new Set(Object.values(generations(pass(edited))))).toEqual(new Set([2]));
  // A new operator has not asked the job yet: what an answer made true is of the spec of before.
  const { report: _, ...silent } = edited;
  const known = generations(pass({ ...silent, asking: true }));
  expect(known).toMatchObject({ Reachable: 1, Redundant: 1, Scaling: 2 });
});
