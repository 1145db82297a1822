import { existsSync, readdirSync } from 'node:fs';
import { defineConfig, type RolldownOptions } from 'rolldown';
import { billOfMaterials } from './packaging/bill-of-materials.ts';
import { commitOf } from './packaging/commit.ts';
import { gatewayChunks } from './packaging/gateway-chunks.ts';
import { latinChunks, smallerModules } from './packaging/smaller-modules.ts';
import { thirdPartyLicenses } from './packaging/third-party-licenses.ts';

/**
 * Everything is bundled except what brings native code: on a Pi, one file read from the SD card instead of six hundred
 * halves the time to start, and dropping what is never used saves 8 MiB of memory. Only what is not bundled is among
 * package.json's dependencies: a device fetches nothing twice.
 */
const options: RolldownOptions = {
  plugins: [smallerModules(), latinChunks()],
  platform: 'node',
  external: ['@ngrok/ngrok', 'libsql'],
  transform: { target: 'node20', define: { BUILD_COMMIT: JSON.stringify(commitOf(import.meta.dirname)) } },
};
// Node keeps the text of what it runs: comments on packages' functions are 0.8 MiB of memory. Licences stay.
const output = { format: 'esm', sourcemap: true, cleanDir: true, comments: { jsdoc: false } } as const;

const program: RolldownOptions = {
  ...options,
  input: {
    cli: 'src/cli.ts',
    'management/public': 'src/management/public.ts',
    'copy-worker': 'src/gateway/store/shared/copy-worker.ts',
    'replacement-worker': 'src/traffic-policy/replacement-worker.ts',
  },
  output: { ...output, dir: 'dist' },
  plugins: [
    smallerModules(),
    latinChunks(),
    thirdPartyLicenses(import.meta.dirname),
    billOfMaterials(import.meta.dirname),
    gatewayChunks(import.meta.dirname),
  ],
};

const RESOURCES = 'src/management/resources';

/** What developers run, and what writes the types of the package; a container image is built without it. */
function tools(): RolldownOptions[] {
  if (!existsSync('bench')) return [];
  const benches = readdirSync('bench').filter((name) => name.endsWith('.ts'));
  return [
    {
      ...options,
      external: ['@ngrok/ngrok', 'libsql', 'playwright-core'],
      input: benches.map((name) => `bench/${name}`),
      output: { ...output, dir: 'build/bench' },
    },
    {
      ...options,
      // Where the programs below look for it.
      input: 'src/gateway/store/shared/copy-worker.ts',
      output: { ...output, dir: 'build/dist' },
    },
    {
      ...options,
      input: ['test/faults/run.ts', 'test/faults/fleet-agents.ts', 'test/faults/gateway-writer.ts'],
      output: { ...output, dir: 'build/faults' },
    },
    {
      ...options,
      input: 'test/gateway/cluster/histories/gateway-node.ts',
      output: { ...output, dir: 'build/cluster' },
    },
    {
      ...options,
      input: 'test/gateway/history/year/year-node.ts',
      output: { ...output, dir: 'build/history' },
    },
    {
      ...options,
      // Finds the checkout by its own place.
      external: ['@ngrok/ngrok', 'libsql', /scripts\/build\.js$/],
      input: ['run', 'attackers', 'honest-clients', 'amazon', 'memory', 'memory-edge'].map(
        (name) => `test/attack/${name}.ts`,
      ),
      output: { ...output, dir: 'build/attack' },
    },
    {
      ...options,
      external: ['@ngrok/ngrok', 'libsql', 'playwright-core', 'vitest', /scripts\/build\.js$/],
      input: 'test/interop/run.ts',
      output: { ...output, dir: 'build/interop' },
    },
    {
      ...options,
      input: {
        'management-types': 'packaging/management-types.ts',
        // It finds the names of schemas among their exports.
        ...Object.fromEntries(
          readdirSync(RESOURCES).map((name) => [`resources/${name.replace('.ts', '')}`, `${RESOURCES}/${name}`]),
        ),
      },
      output: { ...output, dir: 'build/types' },
    },
  ];
}

export default defineConfig([program, ...tools()]);
