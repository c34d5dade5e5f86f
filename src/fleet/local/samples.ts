/**
 * Checks that every sample of every epoch was trained exactly once. Four independent counts must agree: lines
 * in the files, ranges as the scheduler knows them, ranges as workers reported them, and the audit rows that
 * only applied pushes change.
 */

import { KintsugiError } from '../../common/errors.js';
import { countSamples } from '../../data/source.js';
import type { PushCounts } from '../../library/client/client.js';
import type { DatasetStatus } from '../../library/client/dataset.js';
import type { ClientCounts } from '../../library/tools/audit.js';
import { openSource } from '../../training/loop/source.js';
import { loadSchema } from '../../training/models/plugin.js';
import { numberOf, type RoleEvent } from './events.js';
import type { LocalOptions } from './options.js';

/** Number of samples of one epoch. @throws BAD_DATA where there are none, also for test data */
export async function samplesOf({ data, test, source: file, ...options }: LocalOptions): Promise<number> {
  const schema = await loadSchema(options.schema, options.model);
  let samples = 0;
  for (const [flag, paths] of [['--test', test] as const, ['--data', data] as const]) {
    if (flag === '--test' && test.length === 0) continue;
    const source = await openSource({ file, paths, schema });
    samples = await countSamples(source);
    await source.close?.();
    if (samples > 0) continue;
    throw new KintsugiError('BAD_DATA', `${flag} ${paths.join(' ')}: there are no samples in it`);
  }
  return samples;
}

export interface SamplesReport {
  inFiles: number;
  epochs: number;
  /** inFiles x epochs */
  expected: number;
  /** Samples in ranges that were finished. */
  trained: number;
  /** Trained samples in batches that one worker had begun and another did again. */
  redone: number;
  /** Ranges that failed again and again and were left out. */
  setAside: number;
  ranges: number;
  /** Null without an audit: nobody has looked at what was applied. */
  exactlyOnce: boolean | null;
  /** How `exactlyOnce` is known, or why it is not so. */
  evidence: string;
  /** One line for each way in which the run is not what it should be. */
  problems: string[];
}

/** A range that a worker finished, with the pushes of its session. */
export interface FinishedRange extends ClientCounts {
  range: number;
}

/**
 * Ranges that were finished. Two workers may finish one, because the first was lost before that was known:
 * then the last one's counts stand. `before`: ranges of the run whose checkpoint this one began with.
 */
export function finishedRanges(
  events: readonly RoleEvent[],
  before: readonly FinishedRange[] = [],
): FinishedRange[] {
  const ranges = new Map(before.map((each) => [each.range, each]));
  for (const event of events) {
    if (event.event !== 'worker.range' || event.outcome !== 'finished') continue;
    const range = numberOf(event, 'range');
    // Every number that was sent and not refused was used for a durable push, whoever made it.
    const counts = (event.counts as PushCounts[]).map((each) => ({
      ...each,
      acknowledged: each.sent - each.refused,
    }));
    ranges.set(range, { range, client: numberOf(event, 'session'), counts });
  }
  return [...ranges.values()];
}

export interface SampleBooks {
  inFiles: number;
  epochs: number;
  status: DatasetStatus | undefined;
  /** Ranges that workers have told of. */
  told: number;
  /** Finished ranges that were begun before this run, and whose pushes are unknown. */
  untold?: number;
  pushes: { acked: number; lost: number | null; duplicated: number | null };
}

export function samplesReport(books: SampleBooks): SamplesReport {
  const { inFiles, epochs, status, told, pushes, untold = 0 } = books;
  const expected = inFiles * epochs;
  const perEpoch = status?.samples ?? [];
  const trained = perEpoch.reduce((sum, samples) => sum + samples, 0);
  const setAside = status?.setAside ?? [];
  const finished = status?.finished ?? 0;
  const problems: string[] = [];
  for (const { fileName, begin, end, epoch, batch, attempts, message } of setAside) {
    const where = `bytes ${begin} to ${end} of ${fileName} in epoch ${epoch}`;
    problems.push(`samples in ${where} were set aside: batch ${batch} failed ${attempts} times: ${message}`);
  }
  if (setAside.length === 0) {
    for (const [epoch, samples] of perEpoch.entries())
      if (samples !== inFiles) problems.push(`epoch ${epoch} trained ${samples} samples of ${inFiles}`);
  }
  if (told + untold !== finished)
    problems.push(`${finished} ranges are finished, and workers told of ${told}`);
  const audited = pushes.lost !== null && pushes.duplicated !== null && untold === 0;
  const exact = problems.length === 0 && trained === expected && pushes.lost === 0 && pushes.duplicated === 0;
  const evidence = audited
    ? `${finished} ranges with ${trained} samples of ${inFiles} in the files x ${epochs} epochs; ` +
      `audit rows: of ${pushes.acked} pushes of their batches to shards ${pushes.lost} are missing ` +
      `and ${pushes.duplicated} were applied again`
    : untold > 0
      ? `${untold} ranges were begun before, and nobody knows what was pushed for them to these shards`
      : 'not audited: what was applied has not been counted';
  return {
    ...{ inFiles, epochs, expected, trained, redone: status?.redone ?? 0, setAside: setAside.length },
    ...{ ranges: finished, exactlyOnce: audited ? exact : null, evidence, problems },
  };
}
