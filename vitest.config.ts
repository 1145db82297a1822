import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    // Each file gets a process of its own: the native SDK keeps process-wide state.
    pool: 'forks',
    maxWorkers: 3,
    // Tests that say so run side by side: those that mostly wait for an outage to pass.
    maxConcurrency: 8,
    testTimeout: 30_000,
    hookTimeout: 30_000,
  },
});
