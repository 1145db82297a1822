import { configDefaults, defineConfig } from 'vitest/config';
import { SkippedReporter } from './test/support/skipped-reporter.ts';

/** Tests that need neither root nor other programs. They leave nothing behind in the process, so files share one. */
const UNIT = [
  'agent/api',
  'agent/folders',
  'agent/tunnels',
  'agent/upstreams',
  'agent-protocol',
  'docs',
  'gateway/access',
  'gateway/api',
  'gateway/edge',
  'gateway/endpoints',
  'gateway/store',
  'lib',
  'management',
  'settings',
  'traffic-policy',
].map((folder) => `test/${folder}/**/*.test.ts`);
// The three left out need an ACME server, which needs root.
UNIT.push('test/architecture.test.ts', 'test/gateway/certificates/**/!(acme|acme-gateway|own-names).test.ts');

export default defineConfig({
  test: {
    pool: 'forks',
    maxWorkers: 4,
    // Tests that say so run side by side: those that mostly wait for an outage to pass.
    maxConcurrency: 8,
    testTimeout: 30_000,
    hookTimeout: 30_000,
    globalSetup: 'test/support/fresh-build.ts',
    reporters: ['default', new SkippedReporter()],
    coverage: {
      provider: 'v8',
      include: ['src/**/*.ts'],
      reporter: ['text-summary', 'html'],
      thresholds: { statements: 90, branches: 85, functions: 90, lines: 90 },
    },
    projects: [
      // Each file gets a process of its own: the native SDK keeps process-wide state.
      {
        extends: true,
        test: { name: 'system', include: ['test/**/*.test.ts'], exclude: [...configDefaults.exclude, ...UNIT] },
      },
      { extends: true, test: { name: 'unit', include: UNIT, isolate: false } },
    ],
  },
});
