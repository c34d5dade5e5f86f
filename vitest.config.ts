import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    testTimeout: 60_000,
    hookTimeout: 60_000,
    retry: 0,
    // Tests start real processes; more files at once than cores only makes them slower.
    maxWorkers: 2,
  },
});
