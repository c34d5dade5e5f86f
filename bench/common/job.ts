/** A job of processes for as long as a benchmark's story runs. None of them is left behind. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { RoleEvent } from '../../src/fleet/local/events.js';
import { Processes } from '../../src/fleet/local/processes.js';
import { localOptions } from './training/cluster.js';
import type { TrainingMode } from './training/modes.js';

export interface JobShape {
  ps: number;
  mode: TrainingMode;
  /** As many as the scheduler chooses, unless given. */
  groups?: number;
  /** `--memory` of each PS. */
  memory?: string;
  onEvent?: (event: RoleEvent) => void;
}

/**
 * Runs `story` with a job and resolves as it does. @throws what it throws, and the end of a process that
 * should run
 */
export async function withJob<T>(
  { ps, mode, groups, memory, onEvent = () => {} }: JobShape,
  story: (cluster: Processes) => Promise<T>,
): Promise<T> {
  const directory = mkdtempSync(join(tmpdir(), 'kintsugi-bench-'));
  const options = { ...localOptions({ ps }, mode), groups, memory };
  const cluster = new Processes({ options, directory, onEvent, onBack: () => {} });
  try {
    await cluster.startScheduler();
    await Promise.all(Array.from({ length: ps }, (_, index) => cluster.startPs(index)));
    const result = await cluster.race(story(cluster));
    await cluster.stop();
    return result;
  } finally {
    await cluster.abandon();
    rmSync(directory, { recursive: true, force: true });
  }
}
