import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { defineConfig, type Plugin, type RolldownOptions } from 'rolldown';
import packageJson from '../../package.json' with { type: 'json' };
import { thirdPartyLicenses } from '../../packaging/third-party-licenses.ts';
import { CLIENT_PACKAGE } from './names.ts';

const HOME = join(import.meta.dirname, '../..');
const { version, license, engines } = packageJson;
const COMMON = { version, license, type: 'module', engines, sideEffects: false };

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

export default defineConfig([client]);
