/**
 * Machines of the cluster vanish, are cut off and come back, by commands, which get the name of a node:
 * KINTSUGI_TEST_LOSE; KINTSUGI_TEST_CUT and KINTSUGI_TEST_JOIN; and KINTSUGI_TEST_ADD, which also gets the
 * zone and makes a machine in place of one that was lost. Without the last one, tests that follow lack the
 * lost machines. KINTSUGI_TEST_STOP and KINTSUGI_TEST_START get the name of a process of the control plane.
 */
import { setTimeout as pause } from 'node:timers/promises';
import { afterEach } from 'vitest';
import type { KubeNode } from '../../src/fleet/operator/objects.js';
import { get, kubectl, MINUTES, present, run } from './cluster.js';

const { KINTSUGI_TEST_LOSE, KINTSUGI_TEST_CUT, KINTSUGI_TEST_JOIN, KINTSUGI_TEST_ADD } = process.env;
const { KINTSUGI_TEST_STOP, KINTSUGI_TEST_START } = process.env;
export const canLose = present && Boolean(KINTSUGI_TEST_LOSE);
export const canCut = present && Boolean(KINTSUGI_TEST_CUT && KINTSUGI_TEST_JOIN);
export const canAdd = canLose && Boolean(KINTSUGI_TEST_ADD);
export const canRestart = present && Boolean(KINTSUGI_TEST_STOP && KINTSUGI_TEST_START);
if (present && !canLose) console.warn('SKIPPED: no node is lost, KINTSUGI_TEST_LOSE names no command');
if (present && !canCut)
  console.warn('SKIPPED: no node is cut off, KINTSUGI_TEST_CUT and KINTSUGI_TEST_JOIN name no commands');

async function command(line: string, ...more: string[]): Promise<void> {
  const [program = '', ...args] = line.split(' ');
  await run(program, [...args, ...more]);
}

/** Nodes that were lost, and those that are cut off, with their zones. */
const lost = new Map<string, string>();
const apart = new Set<string>();

/** Machines that were lost and have no other in their place. */
export const missing = (): string[] => [...lost.keys()];

const ZONE = 'topology.kubernetes.io/zone';
const zoneOf = ({ metadata }: KubeNode): string => metadata.labels?.[ZONE] ?? '';
const nodes = async (): Promise<KubeNode[]> => (await get<{ items: KubeNode[] }>('nodes')).items;

/** Has machines vanish: nobody says goodbye, and Kubernetes is not told. */
export async function lose(...names: string[]): Promise<void> {
  for (const node of (await nodes()).filter(({ metadata }) => names.includes(metadata.name)))
    lost.set(node.metadata.name, zoneOf(node));
  for (const name of names) await command(KINTSUGI_TEST_LOSE!, name);
}

/** Deletes the Node, as a cloud does when it finds that a machine is gone. */
export async function forget(name: string): Promise<void> {
  await kubectl('delete', 'node', name, '--ignore-not-found');
}

export async function cut(name: string): Promise<void> {
  apart.add(name);
  await command(KINTSUGI_TEST_CUT!, name);
}
export async function join(name: string): Promise<void> {
  await command(KINTSUGI_TEST_JOIN!, name);
  apart.delete(name);
}

/** Brings back machines that were cut off, and makes one for each that was lost. */
export async function mend(): Promise<void> {
  for (const name of [...apart]) await join(name);
  for (const [name, zone] of lost) {
    await forget(name);
    if (KINTSUGI_TEST_ADD) await command(KINTSUGI_TEST_ADD, name, zone);
  }
  lost.clear();
}

/** Mends all machines after each test. */
export function mendMachines(): void {
  afterEach(mend, 3 * MINUTES);
}

/** Ends a process of the control plane, with its connections, and starts it again after a while. */
export async function restart(component: 'kube-apiserver' | 'etcd', awayMs: number): Promise<void> {
  await command(KINTSUGI_TEST_STOP!, component);
  await pause(awayMs);
  await command(KINTSUGI_TEST_START!, component);
  for (;;) {
    const answer = await kubectl('get', '--raw', '/readyz').catch(() => '');
    if (answer === 'ok') return;
    await pause(500);
  }
}

/** True: new Pods find no machine from now on. */
export const full = (on: boolean): Promise<string> =>
  kubectl('taint', 'nodes', '--all', on ? 'kintsugi-test=full:NoSchedule' : 'kintsugi-test:NoSchedule-');

/** Names of nodes that take Pods. */
export async function readyNodes(): Promise<string[]> {
  return (await ready()).map(({ metadata }) => metadata.name);
}

/** The same by zone. */
export async function zones(): Promise<Map<string, string[]>> {
  const found = new Map<string, string[]>();
  for (const node of (await ready()).filter((one) => zoneOf(one) !== ''))
    found.set(zoneOf(node), [...(found.get(zoneOf(node)) ?? []), node.metadata.name]);
  return found;
}

async function ready(): Promise<KubeNode[]> {
  const isReady = ({ spec, status }: KubeNode): boolean =>
    !spec?.unschedulable &&
    (status?.conditions?.some((one) => one.type === 'Ready' && one.status === 'True') ?? false);
  return (await nodes()).filter(isReady);
}
