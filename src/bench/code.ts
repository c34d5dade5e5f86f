/**
 * `bench code`: Reed-Solomon encode with every instruction set against ISA-L, in the caches and in DRAM. The blocks of a
 * stripe lie at different offsets within a page; both sides use the same generator and their parities are compared first.
 */
import { runNative } from './native-bench.js';
import { type BenchOptions, BenchReport } from './report.js';

export async function run(options: BenchOptions): Promise<void> {
  const report = new BenchReport('code', options);
  runNative('code', options.smoke, report);
  const best = String(report.parameters.isa);
  const goals: [code: string, cached: number, dram: number][] = [
    ['(4,1)', 1.7, 1.1],
    ['(4,2)', 2.2, 1.1],
    ['(8,2)', 2.8, 1.1],
    ['(10,4)', 3.0, 1.4],
  ];
  for (const [code, cached, dram] of goals) {
    const near = `encode ${code} 64 KiB`;
    const far = `encode ${code} 16384 KiB`;
    report.goal(`${near}: ${best} / isa-l`, report.ratio(near, best, 'isa-l'), cached);
    report.goal(`${near}: avx2 / isa-l`, report.ratio(near, 'avx2', 'isa-l'), 1);
    report.goal(`${far}: ${best} / isa-l`, report.ratio(far, best, 'isa-l'), dram);
  }
  report.skip('@ronomon/reed-solomon: no comparison yet');
  report.finish();
}
