import { execFile } from 'node:child_process';
import { mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { CLIENT_PACKAGE } from '../../scripts/packages/names.ts';
import { issueApiKey } from '../../src/gateway/store/tokens.ts';
import { startTestGateway } from '../support/gateway.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

const run = promisify(execFile);
const MB = 1e6;

beforeAll(async () => {
  await run(process.execPath, ['scripts/packages.js']);
});

/** A folder outside the repository with nothing but a package, from its tarball, and a program that the compiler checks and builds. */
async function projectWith(folderName: string, name: string, type: 'module' | 'commonjs', program: string) {
  const folder = temporaryFolder();
  const installed = join(folder, 'node_modules', name);
  mkdirSync(installed, { recursive: true });
  const cwd = join('build/packages', folderName);
  const { stdout: packed } = await run('npm', ['pack', '--json', '--pack-destination', folder], { cwd });
  const tarball = join(folder, JSON.parse(packed)[0].filename);
  await run('tar', ['-xzf', tarball, '-C', installed, '--strip-components=1']);
  writeFileSync(join(folder, 'package.json'), JSON.stringify({ type }));
  writeFileSync(join(folder, 'program.ts'), program);
  const compilerOptions = {
    ...{ strict: true, exactOptionalPropertyTypes: true, skipLibCheck: false },
    ...{ target: 'es2022', lib: ['es2022'], module: 'nodenext' },
    ...{ types: ['node'], typeRoots: [resolve('node_modules/@types')] },
  };
  writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify({ compilerOptions, files: ['program.ts'] }));
  const compiler = resolve('node_modules/typescript/bin/tsc');
  const { stdout } = await run(process.execPath, [compiler, '-p', folder]).catch((error) => error);
  expect(stdout).toBe('');
  return { folder, installed };
}

/** The first program of a page. */
function exampleOf(page: string): string {
  return /^```[jt]s\n(.*?)^```$/ms.exec(readFileSync(page, 'utf8'))?.[1] ?? '';
}

const filesIn = (folder: string) =>
  readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter((name) => statSync(join(folder, name)).isFile());

const bytesIn = (folder: string) => filesIn(folder).reduce((sum, name) => sum + statSync(join(folder, name)).size, 0);

function manifestOf(installed: string): Record<string, unknown> {
  return JSON.parse(readFileSync(join(installed, 'package.json'), 'utf8'));
}

describe('the management client', () => {
  const example = exampleOf('scripts/packages/management.md');

  it.each(['module', 'commonjs'] as const)('its example builds and runs in a program of type %s', async (type) => {
    // CommonJS has no await outside of functions.
    const [imports, body] = example.split(/\n\n(.*)/s);
    const program = type === 'module' ? example : `${imports}\nasync function main() {\n${body}}\nvoid main();\n`;
    const { folder } = await projectWith('management', CLIENT_PACKAGE, type, program);
    const gateway = await startTestGateway();
    onTestFinished(() => gateway.close());
    const { token } = await gateway.store.database.write(() => issueApiKey(gateway.store, {}));
    const env = {
      PATH: process.env.PATH,
      MANAGEMENT_API_URL: gateway.apiUrl,
      MANAGEMENT_API_KEY: token,
      MANAGEMENT_API_CA_CERT: gateway.caFile,
    };
    const { stdout, stderr } = await run(process.execPath, ['program.js'], { cwd: folder, env });
    expect(stdout).toMatch(/^\*\.siteb\.example\.com CNAME .*^\*\.siteb\.example\.com\nno such bot user\n$/ms);
    expect(stderr).toBe('');
  });

  it('has one copy of its code for both kinds of modules, no dependencies, licences, and at most 1 MB', async () => {
    const program = `import { ManagementClient } from '${CLIENT_PACKAGE}';
      import { createRequire } from 'node:module';
      console.log(createRequire(import.meta.url)('${CLIENT_PACKAGE}').ManagementClient === ManagementClient);`;
    const { folder, installed } = await projectWith('management', CLIENT_PACKAGE, 'module', program);
    expect((await run(process.execPath, ['program.js'], { cwd: folder })).stdout).toBe('true\n');
    expect(Object.keys(manifestOf(installed)).filter((name) => /dependencies/i.test(name))).toEqual([]);
    expect(filesIn(installed)).toEqual(expect.arrayContaining(['LICENSE', 'README.md', 'THIRD-PARTY-LICENSES.txt']));
    expect(readFileSync(join(installed, 'THIRD-PARTY-LICENSES.txt'), 'utf8')).toContain('\nzod ');
    expect(bytesIn(installed)).toBeLessThan(MB);
  });
});
