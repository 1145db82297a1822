import { configDefaults, defineConfig } from 'vitest/config';
import { LongestFirst } from './test/support/longest-first.ts';
import { nativeModules } from './test/support/native-modules.ts';
import { SkippedReporter } from './test/support/skipped-reporter.ts';

const below = (folders: string[]) => folders.map((folder) => `test/${folder}/**/*.test.ts`);

/** Fast tests that need neither root nor other programs. */
const UNIT = [
  'test/architecture.test.ts',
  ...below([
    'agent/api',
    'agent/folders',
    'agent/inspector',
    'agent/tunnels',
    'agent/upstreams',
    'agent-protocol',
    'attack',
    'docs',
    'gateway/access',
    'gateway/edge',
    'gateway/endpoints',
    'interop',
    'lib',
    'management',
    'settings',
    'traffic-policy',
    'web/device',
  ]),
];
/** Slower ones, or with programs of their own, that leave nothing behind in the process either. */
const SHARED = [
  ...below([
    'agent/join',
    'commands',
    'gateway/api',
    'gateway/certificates',
    'gateway/devices',
    'gateway/metrics',
    'gateway/store',
    'packaging',
  ]),
  'test/agent/connectors/{gateway-probe,route-watch,rpc-queue,session-supervisor,sdk/sdk-error}.test.ts',
  'test/agent/{agent,api-token,embedded-gateway,own-ports,page-sessions,start,stream-tunnels}.test.ts',
  'test/doctor/{device,run-checks,gateway/*}.test.ts',
  'test/faults/report.test.ts',
  'test/gateway/{descriptor-shares,endpoint-options/endpoint-options,real-upstreams}.test.ts',
  'test/gateway/sessions/{heartbeat-timeout,pending-connections,request-turns,silence-watch,stream-gate,useless-frames}.test.ts',
  'test/hostile/{agent-api,expressions,forwards-to,http1-requests,http1-responses}.test.ts',
  'test/readme.test.ts',
  'test/service/{service-report,status,unit}.test.ts',
  'test/management/{client-gateway,provision}.test.ts',
  'test/traffic-policy/hostile-text.test.ts',
  // These wait for deadlines and send megabytes.
  'test/gateway/edge/clients/{client-progress,http1/http1-client,http2/http2-floods}.test.ts',
  'test/gateway/edge/{tls-mux,proxy/http-proxy,upstreams/http2-upstream}.test.ts',
];

/** What looks at its own process, changes it for good, or counts what the native SDK keeps in it: each in its own process. */
const ALONE = [
  'test/agent/connectors/gateway-connector.test.ts',
  'test/agent/connectors/sdk/{listener-cleanup,no-delay}.test.ts',
  'test/gateway/{grpc,sdk-listeners}.test.ts',
];

/** Tests in Chromium, which ends its connections whenever a network card of this machine comes or goes. */
const PAGES = ['test/web/*.test.ts'];
/** Network faults need such cards, so they run afterwards. */
const AFTER_PAGES = { groupOrder: 1 };

/** What runs with the native connector too, in short; `TEST_CONNECTOR=native` runs any test with it. */
const NATIVE = [
  'test/agent/{agent,own-gateway,stream-tunnels}.test.ts',
  'test/faults/{hung-upstream,network,start,stop}.test.ts',
];

export default defineConfig({
  plugins: [nativeModules()],
  test: {
    pool: 'forks',
    maxWorkers: 4,
    // Tests that say so run side by side: those that mostly wait for an outage to pass.
    maxConcurrency: 8,
    // Generous: a busy machine may be five times slower, and only failing tests wait this long.
    testTimeout: 90_000,
    hookTimeout: 90_000,
    teardownTimeout: 60_000,
    expect: { poll: { timeout: 30_000 } },
    // Every test stands alone. The seed is printed; --sequence.seed repeats the order.
    sequence: { shuffle: { tests: true }, sequencer: LongestFirst },
    globalSetup: ['test/support/fresh-build.ts', 'test/support/run-folder.ts'],
    setupFiles: ['test/support/long-uptime.ts', 'test/support/test-sockets.ts'],
    reporters: ['default', new SkippedReporter()],
    coverage: {
      provider: 'v8',
      include: ['src/**/*.ts'],
      reporter: ['text-summary', 'html'],
      thresholds: { statements: 78, branches: 72, functions: 77, lines: 79 },
    },
    projects: [
      // Files share threads or processes, which load the modules once. Threads cost a quarter less time.
      { extends: true, test: { name: 'unit', include: UNIT, exclude: SHARED, isolate: false, pool: 'threads' } },
      {
        extends: true,
        test: {
          name: 'pages',
          include: PAGES,
          isolate: false,
          setupFiles: 'test/support/end-left-processes.ts',
        },
      },
      {
        extends: true,
        test: {
          name: 'shared',
          include: SHARED,
          isolate: false,
          setupFiles: 'test/support/end-left-processes.ts',
          sequence: AFTER_PAGES,
        },
      },
      // Most of the time, these wait for programs of their own.
      {
        extends: true,
        test: {
          name: 'system',
          include: ['test/**/*.test.ts'],
          exclude: [...configDefaults.exclude, ...UNIT, ...PAGES, ...SHARED, ...ALONE],
          isolate: false,
          setupFiles: 'test/support/end-left-processes.ts',
          sequence: AFTER_PAGES,
        },
      },
      {
        extends: true,
        test: {
          name: 'alone',
          include: ALONE,
          setupFiles: 'test/support/end-left-processes.ts',
          sequence: AFTER_PAGES,
        },
      },
      {
        extends: true,
        test: {
          name: 'native',
          include: NATIVE,
          isolate: false,
          setupFiles: 'test/support/end-left-processes.ts',
          env: { TEST_CONNECTOR: 'native' },
          sequence: AFTER_PAGES,
        },
      },
    ],
  },
});
