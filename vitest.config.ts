import { defineConfig } from 'vitest/config';

/**
 * A compiled copy of src/ that tests import in its place: the simulator plants bugs in it
 * (src/sim/mutants.ts).
 */
const compiled = process.env.KINTSUGI_COMPILED;

export default defineConfig({
  resolve: { alias: compiled ? [{ find: /^(?:\.\.\/)+src\//, replacement: `${compiled}/` }] : [] },
  test: {
    include: ['test/**/*.test.ts'],
    testTimeout: 60_000,
    hookTimeout: 60_000,
    retry: 0,
    // Tests start real processes; more files at once than cores only makes them slower.
    maxWorkers: 2,
  },
});
