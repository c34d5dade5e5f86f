/** The other side: reference.py, an implementation with PyTorch that shares nothing with this project. */
import { execFile, spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { PACKAGE_ROOT } from '../../src/common/package-root.js';
import { FINAL_MLP } from '../../src/training/models/final-mlp-graph.js';
import { TWO_TOWERS } from '../../src/training/models/two-towers-graph.js';
import type { Contest, ContestResult } from './ours.js';

const SCRIPT = join(PACKAGE_ROOT, 'bench/accuracy/reference.py');

/** Why there is nothing to compare with; undefined where there is. */
export function whyNoTorch(python: string): string | undefined {
  if (!existsSync(SCRIPT)) return 'PyTorch: the reference is in the repository, and not in the package';
  const { status } = spawnSync(python, ['-c', 'import torch, numpy'], { stdio: 'ignore' });
  return status === 0 ? undefined : 'PyTorch: --python has no torch (pip install torch numpy)';
}

/** Trains from the initial values in this folder. `items`, `gates`: columns, see reference.py. */
export async function trainTorch(
  python: string,
  schemaFile: string,
  initialFolder: string,
  contest: Contest,
  special: { items: readonly string[]; gates: readonly string[] },
): Promise<ContestResult> {
  const { model, shape, epochs } = contest;
  const flags = {
    ...{ schema: schemaFile, train: contest.train, test: contest.test, model, initial: initialFolder },
    ...{ dim: shape.dim, batch: shape.batch, bottom: shape.bottom, top: shape.top, epochs },
    ...{ lr: shape.lr, 'dense-lr': shape.denseLr },
  };
  const args = Object.entries(flags).flatMap(([name, value]) => [`--${name}`, String(value)]);
  if (contest.group !== undefined) args.push('--group', String(contest.group));
  if (model === TWO_TOWERS) args.push('--items', ...special.items);
  if (model === FINAL_MLP) args.push('--gates', ...special.gates);
  const { stdout } = await promisify(execFile)(python, [SCRIPT, ...args], { maxBuffer: 2 ** 26 });
  const { aucs, losses } = JSON.parse(stdout) as { aucs: [number]; losses: number[] };
  return { auc: aucs[0], losses };
}
