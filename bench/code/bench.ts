/**
 * `bench code`: Reed-Solomon encode with every instruction set against ISA-L, in the caches and in DRAM, and
 * against an npm package. The blocks of a stripe lie at different offsets within a page; ISA-L uses the same
 * generator and its parities are compared first.
 */
import { runNative } from '../common/native.js';
import { type BenchOptions, BenchReport } from '../common/report.js';
import { loadRonomon, ronomonRates } from './ronomon.js';

const RONOMON = '@ronomon/reed-solomon';
const ENCODING = `${RONOMON}, encoding alone`;

interface Code {
  k: number;
  r: number;
  /** Goals against ISA-L: blocks of 64 KiB, and data in DRAM. */
  cached: number;
  dram: number;
}
const CODES: Code[] = [
  { k: 4, r: 1, cached: 1.7, dram: 1.1 },
  { k: 4, r: 2, cached: 2.2, dram: 1.1 },
  { k: 8, r: 2, cached: 2.8, dram: 1.1 },
  { k: 10, r: 4, cached: 3.0, dram: 1.4 },
];

async function addRonomon(report: BenchReport, smoke: boolean): Promise<void> {
  const peer = loadRonomon();
  if (!peer) {
    report.skip(`${RONOMON}: not installed (npm install --no-save ${RONOMON})`);
    return;
  }
  for (const { k, r } of CODES) {
    for (const kib of [64, 1024]) {
      const result = report.results.find((one) => one.name === `encode (${k},${r}) ${kib} KiB`);
      if (!result) continue;
      const { call, encoding } = await ronomonRates(peer, k, r, kib * 1024, smoke);
      result.values[RONOMON] = call;
      result.values[ENCODING] = encoding;
    }
  }
}

export async function run(options: BenchOptions): Promise<void> {
  const report = new BenchReport('code', options);
  runNative('code', options.smoke, report);
  await addRonomon(report, options.smoke);
  const best = String(report.parameters.isa);
  for (const { k, r, cached, dram } of CODES) {
    const near = `encode (${k},${r}) 64 KiB`;
    const middle = `encode (${k},${r}) 1024 KiB`;
    const far = `encode (${k},${r}) 16384 KiB`;
    report.goal(`${near}: ${best} / isa-l`, report.ratio(near, best, 'isa-l'), cached);
    report.goal(`${near}: avx2 / isa-l`, report.ratio(near, 'avx2', 'isa-l'), 1);
    report.goal(`${far}: ${best} / isa-l`, report.ratio(far, best, 'isa-l'), dram);
    for (const peer of [RONOMON, ENCODING]) {
      report.goal(`${near}: ${best} / ${peer}`, report.ratio(near, best, peer), 8);
      report.goal(`${middle}: ${best} / ${peer}`, report.ratio(middle, best, peer), 4);
    }
  }
  report.finish();
}
