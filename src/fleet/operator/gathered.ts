/** The last question to a job, before its Pods go: its books, its counters and its events. */
import { describeWithCode, KintsugiError } from '../../common/errors.js';
import { sumOf } from '../../common/statistics.js';
import { within } from '../../common/waiting.js';
import type { Client } from '../../library/client/client.js';
import { Dataset } from '../../library/client/dataset.js';
import type { JobSnapshot } from '../../library/client/observe.js';
import { digest } from '../../library/tools/digest.js';
import type { JobEvent } from '../../protocol/events.js';
import { goodputOf } from '../../protocol/goodput.js';
import type { DatasetStatus } from '../../protocol/samples.js';
import type { JobFindings } from './reconcile/observed.js';

/** The job has so long to tell everything but a digest. */
const GATHER_MS = 10_000;
/** A digest reads all rows. A job that cannot be read in this time has none. */
const DIGEST_MS = 600_000;

/** Samples that an epoch lacks and another one has. */
export function missingOf({ samples, setAside, complete }: DatasetStatus): number | undefined {
  if (!complete || setAside.length > 0) return undefined;
  return samples.length * Math.max(0, ...samples) - sumOf(samples, (each) => each);
}

/** @throws TIMEOUT */
async function inTime<T extends object>(work: Promise<T>, ms: number, what: string): Promise<T> {
  const result = await within(ms, work);
  if (result) return result;
  throw new KintsugiError('TIMEOUT', `${what} did not end in ${ms / 1000} s`);
}

async function eventsOf(client: Client): Promise<JobEvent[]> {
  const events: JobEvent[] = [];
  for await (const event of client.events()) events.push(event);
  return events;
}

function findingsOf(
  dataset: DatasetStatus | undefined,
  { scheduler }: JobSnapshot,
  run: string,
): JobFindings['results'] {
  const goodput = goodputOf(scheduler.runs.filter((each) => each.run === run));
  const lost = dataset && missingOf(dataset);
  return {
    ...(dataset
      ? {
          samples: sumOf(dataset.samples, (each) => each),
          ...{ redone: dataset.redone, setAside: dataset.setAside.length },
        }
      : {}),
    ...(lost === undefined ? {} : { lost }),
    ...(goodput === undefined ? {} : { goodput: Math.round(100 * goodput) }),
  };
}

/**
 * Everything that the job tells. A digest only if it is wanted: the rest stands when there is none.
 * @throws TIMEOUT and what the client throws
 */
export async function gather(client: Client, run: string, withDigest: boolean): Promise<JobFindings> {
  const asked = Promise.all([Dataset.status(client, run), client.observe(), eventsOf(client)]);
  const [dataset, snapshot, events] = await inTime(asked, GATHER_MS, 'what the job tells of its end');
  const { status, scheduler, nodes, workers } = snapshot;
  const { runs } = scheduler;
  const found: JobFindings = {
    results: findingsOf(dataset, snapshot, run),
    report: { dataset: dataset ?? null, runs, workers, status, nodes, events },
  };
  if (!withDigest) return found;
  try {
    const { sha256, rows } = await inTime(digest(client), DIGEST_MS, 'the digest of all rows');
    return { ...found, results: { ...found.results, digest: sha256, rows } };
  } catch (error) {
    return { ...found, problem: `there is no digest: ${describeWithCode(error)}` };
  }
}
