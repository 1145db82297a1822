// npm run smoke -- 22 24 26: runs the tests that depend on the version of Node.js on each of these versions.
import { spawnSync } from 'node:child_process';
import { delimiter, dirname } from 'node:path';
import { nodeBinary } from './node-binary.js';

const TESTS = [
  'test/agent/agent.test.ts',
  'test/agent/connectors/native',
  'test/agent/connectors/sdk',
  'test/agent/api',
  'test/agent-protocol',
  'test/commands/run.test.ts',
  'test/commands/terminal.test.ts',
  'test/gateway/gateway.test.ts',
  'test/gateway/sdk-listeners.test.ts',
  'test/gateway/endpoint-options/mutual-tls.test.ts',
  'test/gateway/certificates/local-ca',
  'test/gateway/edge/clients',
  'test/gateway/edge/proxy/upgrade.test.ts',
  'test/gateway/edge/tls',
  'test/gateway/edge/upstreams',
  'test/gateway/store/sql',
  'test/lib',
  'test/management/fetch-trusting.test.ts',
  'test/management/resources',
  'test/traffic-policy',
];

/** Those of `npm test`: what differs at another edge or with another connector does not differ by the version, too. */
const PROJECTS = ['unit', 'shared', 'slower', 'alone'].map((name) => `--project=${name}`);

for (const major of process.argv.slice(2)) {
  const node = nodeBinary(major);
  process.stdout.write(`Node.js ${major}: ${node}\n`);
  const { status } = spawnSync(node, ['node_modules/vitest/vitest.mjs', 'run', ...PROJECTS, ...TESTS], {
    stdio: 'inherit',
    // Programs that the tests start through a shell find the same version.
    env: { ...process.env, PATH: [dirname(node), process.env.PATH].join(delimiter) },
  });
  if (status !== 0) process.exit(status ?? 1);
}
