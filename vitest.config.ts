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
    'agent/inspector',
    'agent/tunnels',
    'agent/upstreams',
    'agent-protocol',
    'attack',
    'docs',
    'gateway/access',
    'gateway/edge',
    'gateway/endpoints',
    'gateway/sign-in',
    'interop',
    'lib',
    'management',
    'settings',
    'traffic-policy',
    'web/device',
  ]),
];
/** Of these folders, what starts programs, waits for deadlines or sends megabytes. */
const SLOWER = [
  'test/gateway/edge/clients/{client-progress,http1/http1-client,http2/http2-floods}.test.ts',
  'test/gateway/edge/{tls-mux,relays/silent-node,proxy/http-proxy,upstreams/http2-upstream}.test.ts',
  'test/management/{client-gateway,provision}.test.ts',
  'test/traffic-policy/hostile-text.test.ts',
];

/** What looks at its own process, changes it for good, or counts what the native SDK keeps in it: each in its own process. */
const ALONE = [
  'test/agent/connectors/gateway-connector.test.ts',
  'test/agent/connectors/sdk/{listener-cleanup,no-delay}.test.ts',
  'test/gateway/{grpc,sdk-listeners}.test.ts',
];

/** Tests in Chromium, which ends its connections whenever a network card of this machine comes or goes. */
const PAGES = ['test/web/*.test.ts'];
/** What needs more of the machine than Node.js, or minutes: faults, a booted systemd, the packages. */
const MACHINE = [
  ...below(['faults', 'image', 'packaging']),
  'test/{lazy-modules,promises/peers,agent-protocol/link-bundle}.test.ts',
  'test/service/{cluster-update,join-machine,machine,three-commands,update-machine}.test.ts',
  'test/gateway/{agents-come-back,shared-database,without-domain-page,cluster/{compose,cut-off,leases,nodes,passed-on-agents,stalled-leg,two-sessions}}.test.ts',
  'test/gateway/cluster/histories/*.test.ts',
  'test/gateway/store/shared/slow-link.test.ts',
  'test/gateway/events/event-kills.test.ts',
  'test/gateway/history/year/year.test.ts',
  'test/gateway/messages/{lost-messages,messages-cluster}.test.ts',
];
/** In Debian systems of their own, for minutes: `npm run packages -- check`. */
const PACKAGES = ['test/packaging/debian/*.test.ts'];
/** What runs with the native connector too, in short; `TEST_CONNECTOR=native` runs any test with it. */
const NATIVE = [
  'test/agent/{agent,endpoint-options,own-gateway,stream-tunnels}.test.ts',
  'test/faults/{hung-upstream,network,start,stop}.test.ts',
];

/** What clients of the edge do, which reach another gateway that passes their connections on. */
const RELAYED = [
  ...below(['gateway/edge']),
  'test/gateway/edge-with-agent.test.ts',
  'test/gateway/endpoint-options/{mutual-tls,proxy-protocol,stream-options,websocket-tcp}.test.ts',
];

/** Files share processes, which load the modules once. V8's threads that collect garbage would take 6 % more processor time. */
const PROCESSES = {
  isolate: false,
  setupFiles: 'test/support/end-left-processes.ts',
  execArgv: ['--v8-pool-size=0'],
};
/** Network faults need network cards of their own, so they run after the pages. */
const AFTER_PAGES = { ...PROCESSES, sequence: { groupOrder: 1 } };

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
    // Messages name commands as if the package were installed.
    env: { DEVICE_AGENT_COMMAND: 'device-agent' },
    reporters: ['default', new SkippedReporter()],
    coverage: {
      provider: 'v8',
      include: ['src/**/*.ts'],
      reporter: ['text-summary', 'html'],
      thresholds: { statements: 78, branches: 72, functions: 77, lines: 79 },
    },
    // `npm test` runs the first four, `npm run test:machine` the others.
    projects: [
      // Threads cost a quarter less time.
      {
        extends: true,
        test: { name: 'unit', include: UNIT, exclude: [...SLOWER, ...MACHINE], isolate: false, pool: 'threads' },
      },
      {
        extends: true,
        test: {
          name: 'shared',
          include: ['test/**/*.test.ts'],
          exclude: [...configDefaults.exclude, ...UNIT, ...ALONE, ...PAGES, ...MACHINE, ...PACKAGES],
          ...PROCESSES,
        },
      },
      { extends: true, test: { name: 'slower', include: SLOWER, ...PROCESSES } },
      { extends: true, test: { name: 'alone', include: ALONE, ...PROCESSES, isolate: true } },
      { extends: true, test: { name: 'pages', include: PAGES, ...PROCESSES } },
      { extends: true, test: { name: 'machine', include: MACHINE, exclude: PACKAGES, ...AFTER_PAGES } },
      { extends: true, test: { name: 'packages', include: PACKAGES, ...AFTER_PAGES } },
      {
        extends: true,
        test: { name: 'relayed', include: RELAYED, env: { TEST_EDGE: 'relayed' }, ...AFTER_PAGES },
      },
      {
        extends: true,
        test: { name: 'native', include: NATIVE, env: { TEST_CONNECTOR: 'native' }, ...AFTER_PAGES },
      },
    ],
  },
});
