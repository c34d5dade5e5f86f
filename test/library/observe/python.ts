/** A Python that has the real `tensorboard` package: of KINTSUGI_TEST_PYTHON, of build/python, or any. */
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { PACKAGE_ROOT } from '../../../src/common/package-root.js';

const own = join(PACKAGE_ROOT, 'build/python/bin/python');
const candidates = [process.env.KINTSUGI_TEST_PYTHON, existsSync(own) ? own : undefined, 'python3'];

/** Undefined: none has it. */
export const PYTHON = candidates.find(
  (python) => python && spawnSync(python, ['-c', 'import tensorboard'], { stdio: 'ignore' }).status === 0,
);

if (!PYTHON)
  console.error(
    'LEFT OUT: no Python here has tensorboard (python3 -m venv build/python, pip install tensorboard)',
  );

const READ = `
import json, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
runs = {}
for directory in sys.argv[1:]:
    events = EventAccumulator(directory).Reload()
    tags = events.Tags()['scalars']
    runs[directory] = {tag: [[e.step, e.value] for e in events.Scalars(tag)] for tag in tags}
print(json.dumps(runs))
`;

export type Scalars = Record<string, [step: number, value: number][]>;

/** Scalars that TensorBoard finds in these directories. */
export function readScalars(directories: readonly string[]): Record<string, Scalars> {
  const done = spawnSync(PYTHON!, ['-c', READ, ...directories], { encoding: 'utf8' });
  if (done.status !== 0) throw new Error(done.stderr);
  return JSON.parse(done.stdout) as Record<string, Scalars>;
}
