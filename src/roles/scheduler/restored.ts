/** The beginning of a job that goes on from a checkpoint. */

import { KintsugiError } from '../../common/errors.js';
import type { PoolOptions } from '../../core/placement/job.js';
import { type DurableState, restoredJob } from '../../core/scheduler/scheduler.js';
import type { Manifest } from '../../protocol/checkpoints.js';
import { checkFiles, readManifest } from '../../stores/checkpoint/checkpoints.js';
import { withExistingPlace } from '../../stores/checkpoint/open.js';
import type { RestoreOptions } from './scheduler-options.js';

/**
 * The manifest of a checkpoint, all of whose files are there with their sizes. Their content is checked when
 * they are loaded. @throws CHECKPOINT_MISSING, BAD_CHECKPOINT with the name of the file, PLACE_FAILED,
 * BAD_ARGUMENT, DEPENDENCY_MISSING
 */
export function readRestorable({ url, number }: RestoreOptions): Promise<Manifest> {
  return withExistingPlace(url, async (place) => {
    const manifest = await readManifest(place, number);
    refuseLost(manifest, url);
    await checkFiles(place, manifest);
    return manifest;
  });
}

/** Shards of a partial save would come back empty, as if they had never had rows. @throws BAD_ARGUMENT */
function refuseLost({ number, lost = [] }: Manifest, url: string): void {
  if (lost.length === 0) return;
  const names = lost.map(({ pool, shard }) => `${shard} of pool "${pool}"`).slice(0, 10);
  const text = `checkpoint ${number} of ${url} lacks ${lost.length} shards: ${names.join(', ')}`;
  throw new KintsugiError('BAD_ARGUMENT', `${text}; "kintsugi load" fills a job with the others`);
}

/** @throws what `readRestorable` throws */
export async function restoredState(
  job: string,
  nodes: number,
  pools: readonly PoolOptions[],
  restore: RestoreOptions,
): Promise<DurableState> {
  const manifest = await readRestorable(restore);
  return restoredJob(job, nodes, restore.groups ? pools : sameGroups(pools, manifest), restore.url, manifest);
}

/** As many groups as the checkpoint has, where the code has the same number of data shards. */
function sameGroups(pools: readonly PoolOptions[], manifest: Manifest): PoolOptions[] {
  return pools.map((pool) => {
    const saved = manifest.pools.find(({ name, k }) => name === pool.name && k === pool.k);
    return saved ? { ...pool, groups: saved.groups } : pool;
  });
}
