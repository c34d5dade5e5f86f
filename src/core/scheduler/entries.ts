/**
 * The durable state as entries of a key/value store, one for each thing that changes on its own, so that a
 * decision writes what it changed and not the whole job.
 *
 * | key | value |
 * | --- | --- |
 * | state | version of this layout |
 * | job, head, scaling | what is fixed; counters; wanted nodes and the number of the next change |
 * | owner | whose job it is, for whoever starts its schedulers |
 * | group/ID, node/ID, table/ID | entries of the map |
 * | saving, plan/NAME | number of the next attempt at a checkpoint; save plans |
 * | restore, load/G/M | the checkpoint that the job goes on from; a shard that is still to be loaded |
 * | name/NAME, session/ID, change/ID | identities of nodes; open sessions; changes |
 * | rates/ID/C | chunk C of the questions of session ID that set settings of tables |
 * | dataset/I, cursor/I | data set number I: its specification; its counters |
 * | run/NAME | sums of the workers of a run that are gone |
 * | event/N | the event at place N of the ring |
 * | epoch/I/E, file/I/F, aside/I/N, open/I/R | samples of an epoch, growth, ranges set aside, open ranges |
 */
import { KintsugiError } from '../../common/errors.js';
import type { JobEvent } from '../../protocol/events.js';
import { shardKey } from '../../protocol/items.js';
import type { ClusterMap, Group, NodeEntry, TableSpec } from '../../protocol/map.js';
import type { DatasetSpec, SetAside } from '../../protocol/samples.js';
import type { RunTelemetry } from '../../protocol/telemetry.js';
import type { FileGrowth } from './samples/ranges.js';
import type { DatasetState, OpenRange } from './samples/state.js';
import { type QuestionChunk, questionsOf } from './setting-questions.js';
import {
  byName,
  type Change,
  type DurableState,
  type Restore,
  type SessionEntry,
  type ShardToLoad,
  type StoredPlan,
  withCapabilities,
} from './state.js';

/** Values by key. In changes, undefined deletes the key. No value is changed in place. */
export type StateEntries = ReadonlyMap<string, unknown>;

const FORMAT = 3;
const FORMAT_KEY = 'state';
/** The layout before this one: the whole state was the value of one key. */
const WHOLE_FORMAT = 2;

export const HEAD_KEY = 'head';
export const OWNER_KEY = 'owner';
export const SCALING_KEY = 'scaling';
export const SAVING_KEY = 'saving';
export const RESTORE_KEY = 'restore';
export const loadKey = (g: number, m: number): string => `load/${g}/${m}`;
export const planKey = (name: string): string => `plan/${name}`;
export const nameKey = (name: string): string => `name/${name}`;
export const sessionKey = (id: number): string => `session/${id}`;
/** Stores have them by the name that they had when nothing but the learning rate could be set. */
export const questionsKey = (id: number, chunk: number): string => `rates/${id}/${chunk}`;
export const datasetKey = (dataset: number): string => `dataset/${dataset}`;
export const cursorKey = (dataset: number): string => `cursor/${dataset}`;
export const epochKey = (dataset: number, epoch: number): string => `epoch/${dataset}/${epoch}`;
export const fileKey = (dataset: number, file: number): string => `file/${dataset}/${file}`;
export const asideKey = (dataset: number, index: number): string => `aside/${dataset}/${index}`;
export const openKey = (dataset: number, range: number): string => `open/${dataset}/${range}`;
export const runKey = (run: string): string => `run/${run}`;
export const eventKey = (place: number): string => `event/${place}`;

type EntryReader = (state: DurableState, name: string, a: number, b: number) => unknown;

/** By the kind of a key: reads the value of the key from the state. Undefined: the state has none. */
const READ: Readonly<Record<string, EntryReader>> = {
  [FORMAT_KEY]: () => ({ format: FORMAT }),
  job: ({ map: { job, pools }, nodesWanted, firstPeer }) => ({
    ...{ job, pools, nodesWanted },
    ...(firstPeer !== undefined && { firstPeer }),
  }),
  head: ({ map: { epoch, lastTable }, nextPeer, nextSid }) => ({
    ...{ epoch, nextPeer, nextSid },
    ...(lastTable !== undefined && { lastTable }),
  }),
  [OWNER_KEY]: ({ owner }) => owner,
  scaling: ({ scaling }) => scaling && { wanted: scaling.wanted, nextChange: scaling.nextChange },
  saving: ({ saving }) => saving && { nextAttempt: saving.nextAttempt },
  restore: ({ restore }) => restore && headOf(restore),
  load: ({ restore }, _name, g, m) => restore?.shards.get(shardKey(g, m)),
  plan: ({ saving }, name) => saving?.plans.get(name),
  name: ({ names }, name) => names[name],
  session: ({ sessions }, _name, id) => sessions.get(id),
  rates: ({ settingQuestions }, _name, id, chunk) => settingQuestions.get(id)?.get(chunk),
  dataset: ({ datasets }, _name, index) => {
    const dataset = datasets[index];
    return dataset && { name: dataset.name, spec: dataset.spec };
  },
  cursor: ({ datasets }, _name, index) => {
    const dataset = datasets[index];
    return dataset && { next: dataset.next, finished: dataset.finished, redone: dataset.redone };
  },
  epoch: ({ datasets }, _name, index, epoch) => datasets[index]?.samples[epoch],
  file: ({ datasets }, _name, index, file) => copied(datasets[index]?.growth?.[file]),
  aside: ({ datasets }, _name, index, at) => datasets[index]?.setAside[at],
  run: ({ runs }, name) => runs.get(name),
  event: ({ events }, _name, place) => events.get(place),
  open: ({ datasets }, _name, index, range) => copied(datasets[index]?.open.get(range)),
};

function headOf({ shards: _, ...head }: Restore): Omit<Restore, 'shards'> {
  return head;
}

/** Open ranges and growth are changed in place. */
function copied<T extends object>(value: T | undefined): T | undefined {
  return value && { ...value };
}

/** The value of a key that was touched. */
export function entryOf(state: DurableState, key: string): unknown {
  const [kind, ...rest] = key.split('/');
  return READ[kind!]!(state, rest.join('/'), Number(rest[0]), Number(rest[1]));
}

/** All entries of the state: the first transaction of an empty store. */
export function entriesOf(state: DurableState): Map<string, unknown> {
  const keys = [FORMAT_KEY, 'job', HEAD_KEY, OWNER_KEY, SCALING_KEY, SAVING_KEY, RESTORE_KEY];
  keys.push(...[...(state.restore?.shards.values() ?? [])].map(({ g, m }) => loadKey(g, m)));
  keys.push(...[...(state.saving?.plans.keys() ?? [])].map(planKey));
  keys.push(...Object.keys(state.names).map(nameKey), ...[...state.sessions.keys()].map(sessionKey));
  for (const [id, chunks] of state.settingQuestions)
    for (const chunk of chunks.keys()) keys.push(questionsKey(id, chunk));
  keys.push(...[...state.runs.keys()].map(runKey), ...[...state.events.keys()].map(eventKey));
  for (const [index, { samples, growth, setAside, open }] of state.datasets.entries()) {
    keys.push(datasetKey(index), cursorKey(index));
    for (const [epoch, count] of samples.entries()) if (count > 0) keys.push(epochKey(index, epoch));
    for (const file of growth?.keys() ?? []) keys.push(fileKey(index, file));
    for (const at of setAside.keys()) keys.push(asideKey(index, at));
    for (const range of open.keys()) keys.push(openKey(index, range));
  }
  const entries = new Map<string, unknown>();
  for (const key of keys) {
    const value = entryOf(state, key);
    if (value !== undefined) entries.set(key, value);
  }
  const { groups, nodes, tables } = state.map;
  const listed = { group: groups, node: nodes, table: tables, change: state.scaling?.changes ?? [] };
  for (const [kind, list] of Object.entries(listed))
    for (const entry of list) entries.set(`${kind}/${entry.id}`, entry);
  return entries;
}

/**
 * Adds the entries that differ between two lists to `changes`. Entries are replaced and never changed in
 * place, so references are compared.
 */
export function compareLists<T extends { id: number }>(
  kind: 'group' | 'node' | 'table' | 'change',
  before: readonly T[],
  after: readonly T[],
  changes: Map<string, unknown>,
): void {
  if (before === after) return;
  const gone = new Map<number, T>();
  for (const [i, entry] of before.entries()) if (after[i] !== entry) gone.set(entry.id, entry);
  for (const [i, entry] of after.entries()) {
    if (before[i] === entry) continue;
    if (gone.get(entry.id) !== entry) changes.set(`${kind}/${entry.id}`, entry);
    gone.delete(entry.id);
  }
  for (const id of gone.keys()) changes.set(`${kind}/${id}`, undefined);
}

export interface StoredEntries {
  state: DurableState;
  /** The entries are of an older layout: the first write replaces them all. */
  outdated: boolean;
}

/**
 * The state that a store holds; undefined: none yet. @throws BAD_ARGUMENT when its layout is unknown
 */
export function stateOf(entries: StateEntries): StoredEntries | undefined {
  if (entries.size === 0) return undefined;
  const { format, value } = (entries.get(FORMAT_KEY) ?? {}) as { format?: number; value?: unknown };
  if (format === WHOLE_FORMAT) return { state: fromWhole(value as WholeState), outdated: true };
  if (format !== FORMAT)
    throw new KintsugiError('BAD_ARGUMENT', `a scheduler state of format ${format}, not ${FORMAT}`);
  return { state: fromEntries(entries), outdated: false };
}

/** The state in format 2. */
export type WholeState = Omit<
  DurableState,
  'sessions' | 'settingQuestions' | 'datasets' | 'runs' | 'events'
> & {
  sessions: SessionEntry[];
  datasets?: (Omit<DatasetState, 'open'> & { open: OpenRange[] })[];
};

function fromWhole(whole: WholeState): DurableState {
  const datasets = (whole.datasets ?? []).map((dataset) => ({
    ...dataset,
    open: new Map(dataset.open.map((range) => [range.number, range])),
  }));
  const sessions = new Map(whole.sessions.map((session) => [session.id, session]));
  const none = { settingQuestions: new Map(), runs: new Map(), events: new Map() };
  return withCapabilities({ ...whole, sessions, datasets, ...none });
}

function fromEntries(entries: StateEntries): DurableState {
  const one = <T>(key: string): T => entries.get(key) as T;
  const byKind = new Map<string, [path: string, value: unknown][]>();
  for (const [key, value] of entries) {
    const slash = key.indexOf('/');
    if (slash < 0) continue;
    const kind = key.slice(0, slash);
    if (!byKind.has(kind)) byKind.set(kind, []);
    byKind.get(kind)!.push([key.slice(slash + 1), value]);
  }
  const all = <T>(kind: string): [path: string, value: T][] =>
    (byKind.get(kind) ?? []) as [path: string, value: T][];
  const sorted = <T extends { id: number }>(kind: string): T[] =>
    all<T>(kind)
      .map(([, value]) => value)
      .sort((a, b) => a.id - b.id);
  type Fixed = Pick<ClusterMap, 'job' | 'pools'> & Pick<DurableState, 'nodesWanted' | 'firstPeer'>;
  const { job, pools, nodesWanted, firstPeer } = one<Fixed>('job');
  type Head = Pick<ClusterMap, 'epoch' | 'lastTable'> & Pick<DurableState, 'nextPeer' | 'nextSid'>;
  const { epoch, nextPeer, nextSid, lastTable } = one<Head>(HEAD_KEY);
  const owner = one<string | undefined>(OWNER_KEY);
  const nodes = sorted<NodeEntry>('node').sort(byName);
  const map = {
    epoch,
    job,
    pools,
    groups: sorted<Group>('group'),
    nodes,
    tables: sorted<TableSpec>('table'),
    ...(lastTable !== undefined && { lastTable }),
  };
  const scaling = one<{ wanted: number; nextChange: number } | undefined>(SCALING_KEY);
  const saving = one<{ nextAttempt: number } | undefined>(SAVING_KEY);
  const restore = one<Omit<Restore, 'shards'> | undefined>(RESTORE_KEY);
  const shards = all<ShardToLoad>('load').map(([, shard]): [number, ShardToLoad] => [
    shardKey(shard.g, shard.m),
    shard,
  ]);
  // Sessions had their questions themselves before there were chunks of them.
  type StoredSession = SessionEntry & { readonly rates?: QuestionChunk };
  const sessions = sorted<StoredSession>('session');
  const chunks = all<QuestionChunk>('rates').map(([path, chunk]) => {
    const [session, number] = path.split('/').map(Number) as [number, number];
    return [session, number, chunk] as const;
  });
  const whole = sessions.flatMap(({ id, rates }) => (rates ? [[id, rates] as const] : []));
  const plans = all<StoredPlan>('plan').map(([, plan]): [string, StoredPlan] => [plan.name, plan]);
  return {
    ...{ map, nodesWanted, nextPeer, nextSid, ...(firstPeer !== undefined && { firstPeer }) },
    ...(owner !== undefined && { owner }),
    names: Object.fromEntries(all<DurableState['names'][string]>('name')),
    sessions: new Map(sessions.map(({ id, leased }) => [id, { id, leased }])),
    settingQuestions: questionsOf(chunks, whole),
    ...(scaling && { scaling: { ...scaling, changes: sorted<Change>('change') } }),
    ...(restore && { restore: { ...restore, shards: new Map(shards) } }),
    ...(saving && { saving: { ...saving, plans: new Map(plans) } }),
    datasets: datasetsOf(all),
    runs: new Map(all<RunTelemetry>('run')),
    events: new Map(all<JobEvent>('event').map(([place, event]) => [Number(place), event])),
  };
}

type All = <T>(kind: string) => [path: string, value: T][];

function datasetsOf(all: All): DatasetState[] {
  const datasets: DatasetState[] = [];
  const specs = all<{ name: string; spec: DatasetSpec }>('dataset');
  for (const [path, { name, spec }] of specs) {
    const growth = spec.follow && { growth: spec.files.map(() => ({ size: 0, given: 0 })) };
    const samples = new Array<number>(spec.epochs).fill(0);
    const empty = { next: 0, open: new Map(), finished: 0, redone: 0, setAside: [] };
    datasets[Number(path)] = { name, spec, ...empty, samples, ...growth };
  }
  const each = <T>(kind: string, put: (dataset: DatasetState, value: T, at: number) => void): void => {
    const parts = all<T>(kind).map(([path, value]) => [...path.split('/').map(Number), value] as const);
    parts.sort((a, b) => (a[1] as number) - (b[1] as number));
    for (const [index, at, value] of parts) put(datasets[index as number]!, value as T, at as number);
  };
  for (const [path, cursor] of all<Pick<DatasetState, 'next' | 'finished' | 'redone'>>('cursor'))
    Object.assign(datasets[Number(path)]!, cursor);
  each<number>('epoch', ({ samples }, count, epoch) => {
    samples[epoch] = count;
  });
  each<FileGrowth>('file', ({ growth }, file, at) => {
    growth![at] = { ...file };
  });
  each<SetAside>('aside', ({ setAside }, aside) => setAside.push(aside));
  each<OpenRange>('open', ({ open }, range) => open.set(range.number, { ...range }));
  return datasets;
}
