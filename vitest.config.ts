import { defineConfig } from 'vitest/config';

/** Tests that leave nothing behind in the process: they share a few, and load its modules once in each. */
const TOGETHER = [
  'agent/api',
  'agent/folders',
  'agent/tunnels',
  'agent/upstreams',
  'agent-protocol',
  'docs',
  'gateway/access',
  'gateway/api',
  'gateway/certificates',
  'gateway/edge',
  'gateway/endpoints',
  'gateway/store',
  'lib',
  'management',
  'settings',
  'traffic-policy',
].map((folder) => `test/${folder}/**/*.test.ts`);

export default defineConfig({
  test: {
    pool: 'forks',
    maxWorkers: 4,
    // Tests that say so run side by side: those that mostly wait for an outage to pass.
    maxConcurrency: 8,
    testTimeout: 30_000,
    hookTimeout: 30_000,
    projects: [
      // Each file gets a process of its own: the native SDK keeps process-wide state.
      { extends: true, test: { name: 'apart', include: ['test/**/*.test.ts'], exclude: TOGETHER } },
      { extends: true, test: { name: 'together', include: TOGETHER, isolate: false } },
    ],
  },
});
