import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { defineConfig, type Plugin, type RolldownOptions } from 'rolldown';
import packageJson from '../../package.json' with { type: 'json' };
import { smallerModules } from '../../packaging/smaller-modules.ts';
import { thirdPartyLicenses } from '../../packaging/third-party-licenses.ts';
import { agentTypes } from './agent-types.ts';
import { AGENT_PACKAGE, CLIENT_PACKAGE } from './names.ts';

const HOME = join(import.meta.dirname, '../..');
const { version, license, homepage, repository, engines, dependencies } = packageJson;
const COMMON = { version, license, homepage, repository, type: 'module', engines, sideEffects: false };

/** Modules by the end of their path, and what the agent to embed has instead. */
const REPLACED: Readonly<Record<string, string>> = {
  // Loaded only for an embedded gateway.
  'gateway/gateway.ts': "export function startGateway() { throw new Error('this package has no gateway'); }",
  // It looks in the environment for how the program was started.
  'lib/process/own-command.ts': "export const ownCommand = (args) => 'device-agent ' + args;",
};

/** The management client: one copy of its code, for CommonJS, which ES modules import by name. */
const client: RolldownOptions = {
  input: 'src/management/public.ts',
  platform: 'node',
  transform: { target: 'node20' },
  output: {
    format: 'cjs',
    dir: 'build/packages/management',
    entryFileNames: 'commonjs/management/public.js',
    codeSplitting: false,
    cleanDir: true,
    comments: { jsdoc: false },
  },
  plugins: [
    thirdPartyLicenses(HOME),
    packageFiles('management', {
      name: CLIENT_PACKAGE,
      description: 'Typed client of the management API of device-agent gateways, and of ngrok’s cloud.',
      ...COMMON,
      main: './commonjs/management/public.js',
      types: './commonjs/management/public.d.ts',
      exports: {
        '.': {
          import: { types: './index.d.ts', default: './index.js' },
          require: { types: './commonjs/management/public.d.ts', default: './commonjs/management/public.js' },
        },
        './package.json': './package.json',
      },
    }),
    clientEntries(),
  ],
};

/** The agent to embed. It never runs a gateway: that code, with its database, stays out. */
const agent: RolldownOptions = {
  input: { index: 'src/agent/embed.ts' },
  platform: 'node',
  external: ['@ngrok/ngrok'],
  transform: { target: 'node20' },
  output: {
    format: 'esm',
    dir: 'build/packages/agent',
    // Files of the package are found from one folder below it.
    entryFileNames: 'dist/[name].js',
    chunkFileNames: 'dist/[name]-[hash].js',
    cleanDir: true,
    comments: { jsdoc: false },
  },
  plugins: [
    replacedModules(),
    smallerModules(),
    thirdPartyLicenses(HOME),
    packageFiles('agent', {
      name: AGENT_PACKAGE,
      description: 'Tunnels to a device-agent gateway, from within your own program.',
      ...COMMON,
      main: './dist/index.js',
      types: './types/agent/embed.d.ts',
      exports: {
        '.': { types: './types/agent/embed.d.ts', default: './dist/index.js' },
        './package.json': './package.json',
      },
      peerDependencies: { '@ngrok/ngrok': dependencies['@ngrok/ngrok'] },
      peerDependenciesMeta: { '@ngrok/ngrok': { optional: true } },
    }),
    agentTypes(join(HOME, 'src')),
    copies({ 'defaults/policies.json': join(HOME, 'defaults/policies.json') }),
  ],
};

/** What makes the Debian packages. */
const debianCommand: RolldownOptions = {
  input: 'scripts/packages/debian-command.ts',
  platform: 'node',
  transform: { target: 'node20' },
  output: { format: 'esm', dir: 'build/debian-command', cleanDir: true },
};

/** Adds what every package has beside its code. */
function packageFiles(readme: string, manifest: object): Plugin {
  return {
    name: 'package-files',
    generateBundle() {
      this.emitFile({ type: 'asset', fileName: 'package.json', source: `${JSON.stringify(manifest, null, 2)}\n` });
      for (const [fileName, path] of [
        ['README.md', `scripts/packages/${readme}.md`],
        ['LICENSE', 'LICENSE'],
      ] as const) {
        this.emitFile({ type: 'asset', fileName, source: readFileSync(join(HOME, path), 'utf8') });
      }
    },
  };
}

/** Adds files by their names in the package. */
function copies(files: Readonly<Record<string, string>>): Plugin {
  return {
    name: 'copies',
    generateBundle() {
      for (const [fileName, path] of Object.entries(files))
        this.emitFile({ type: 'asset', fileName, source: readFileSync(path, 'utf8') });
    },
  };
}

/** Adds the entry for ES modules, and the types, which the build has written into `dist`. */
function clientEntries(): Plugin {
  return {
    name: 'client-entries',
    generateBundle(_options, bundle) {
      const names = Object.values(bundle).flatMap((output) => (output.type === 'chunk' ? output.exports : []));
      const emit = (fileName: string, source: string) => this.emitFile({ type: 'asset', fileName, source });
      emit('index.js', `export { ${names.join(', ')} } from './commonjs/management/public.js';\n`);
      emit('index.d.ts', "export * from './commonjs/management/public.js';\n");
      emit('commonjs/package.json', '{ "type": "commonjs" }\n');
      const types = readdirSync(join(HOME, 'dist'), { recursive: true, encoding: 'utf8' });
      for (const name of types.filter((each) => each.endsWith('.d.ts')))
        emit(`commonjs/${name}`, readFileSync(join(HOME, 'dist', name), 'utf8'));
    },
  };
}

function replacedModules(): Plugin {
  return {
    name: 'replaced-modules',
    load: {
      filter: { id: Object.keys(REPLACED).map((path) => new RegExp(`/src/${path}$`)) },
      handler: (id) => Object.entries(REPLACED).find(([path]) => id.endsWith(path))?.[1],
    },
  };
}

export default defineConfig([client, agent, debianCommand]);
