import { defineConfig } from 'vitest/config';

/**
 * A compiled copy of src/ that tests import in its place: the simulator plants bugs in it
 * (src/sim/mutants).
 */
const compiled = process.env.KINTSUGI_COMPILED;

/** Whole jobs of real processes: `npm run test:jobs`. Everything else is `npm test`. */
const jobs = ['test/fleet/local/**/*.test.ts', 'test/bench/**/*.test.ts'];
/** The package in an empty folder, on every Node: `npm run test:install`. */
const install = ['test/install/**/*.test.ts'];
/** A broker, which one of them kills: `npm run test:kafka`. */
const kafka = ['test/kafka/**/*.test.ts'];
/** Real ratings, where a machine has them: `npm run test:movielens`. */
const movielens = ['test/movielens/**/*.test.ts'];

export default defineConfig({
  resolve: { alias: compiled ? [{ find: /^(?:\.\.\/)+src\//, replacement: `${compiled}/` }] : [] },
  test: {
    projects: [
      {
        extends: true,
        test: {
          name: 'parts',
          include: ['test/**/*.test.ts'],
          exclude: [...jobs, ...install, ...kafka, ...movielens],
        },
      },
      // A whole job takes most of a minute where the machine is slow.
      { extends: true, test: { name: 'jobs', include: jobs, testTimeout: 300_000 } },
      { extends: true, test: { name: 'install', include: install } },
      { extends: true, test: { name: 'kafka', include: kafka } },
      { extends: true, test: { name: 'movielens', include: movielens } },
    ],
    testTimeout: 60_000,
    hookTimeout: 60_000,
    retry: 0,
    // Tests start real processes; more files at once than cores only makes them slower.
    maxWorkers: 2,
  },
});
