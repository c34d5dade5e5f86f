/** Builds and runs the native micro-benchmarks (native/bench): C++ programs that print one JSON object. */
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { describe, KintsugiError } from '../../src/common/errors.js';
import { PACKAGE_ROOT } from '../../src/common/package-root.js';
import type { BenchReport, Result } from './report.js';

const root = PACKAGE_ROOT;
const build = join(root, 'build/native-bench');

function run(command: string, args: string[]): string {
  const done = spawnSync(command, args, { cwd: root, encoding: 'utf8', maxBuffer: 1 << 24 });
  if (done.error || done.status !== 0) {
    const why = done.error ? describe(done.error) : `${done.stdout}\n${done.stderr}`.trim().slice(-2000);
    throw new KintsugiError('DEPENDENCY_MISSING', `${command} ${args.join(' ')} failed: ${why}`);
  }
  return done.stdout;
}

/** Adds the results of `native/bench/<name>_bench.cc` to the report. Needs cmake and a C++20 compiler. */
export function runNative(
  name: 'code' | 'rows' | 'growth' | 'snapshot',
  smoke: boolean,
  report: BenchReport,
): void {
  run('cmake', ['-S', 'native/bench', '-B', build, '-DCMAKE_BUILD_TYPE=Release']);
  run('cmake', ['--build', build, '--target', `${name}_bench`]);
  const output = JSON.parse(run(join(build, `${name}_bench`), smoke ? ['--smoke'] : [])) as {
    isa: string;
    hash: string;
    skipped: string;
    results: Result[];
  };
  report.parameters.isa = output.isa;
  report.parameters[name === 'code' || name === 'rows' ? 'hash' : `${name}Hash`] = output.hash;
  for (const result of output.results) report.add(result);
  if (output.skipped) report.skip(output.skipped);
}
