import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { AGENT_PACKAGE, CLIENT_PACKAGE } from '../../scripts/packages/names.ts';
import { issueApiKey } from '../../src/gateway/store/tokens.ts';
import { getPublic, startTestGateway } from '../support/gateway.ts';
import { startHttpService } from '../support/http-service.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';
import { until } from '../support/until.ts';

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

describe('the agent to embed', () => {
  const example = exampleOf('scripts/packages/agent.md');
  const main = `
    import { readFileSync } from 'node:fs';
    const [gateway = '', authtoken = '', caFile = '', port] = process.argv.slice(2);
    const options = { gateway, authtoken, dataDir: 'agent-data', ca: readFileSync(caFile, 'utf8') };
    const { stop } = await publish(options, Number(port));
    process.stdin.once('end', () => void stop()).resume();
  `;

  it('its example serves a request through a gateway, prints nothing of its own, and ends', async () => {
    const { folder } = await projectWith('agent', AGENT_PACKAGE, 'module', `${example}${main}`);
    const gateway = await startTestGateway();
    const upstream = await startHttpService((_, res) => void res.end('from the program'));
    onTestFinished(async () => {
      await upstream.close();
      await gateway.close();
    });
    const args = [gateway.sessionAddress, gateway.authtoken, gateway.caFile, new URL(upstream.url).port];
    // A port of a setting: the environment is not read.
    const env = { PATH: process.env.PATH, AGENT_PORT: 'none', NGROK_SERVER_ADDR: 'nowhere.example.com' };
    const child = spawn(process.execPath, ['program.js', ...args], { cwd: folder, env });
    const closed = once(child, 'close');
    onTestFinished(() => void child.kill('SIGKILL'));
    let shown = '';
    for (const stream of [child.stdout, child.stderr])
      stream.setEncoding('utf8').on('data', (text) => {
        shown += text;
      });
    await until(() => shown.includes('\n') || child.exitCode !== null, 'the tunnel');
    const [, url = ''] = /^(https:\S+) is online\n/.exec(shown) ?? [];
    expect(await getPublic(gateway, url), shown).toMatchObject({ status: 200, body: 'from the program' });
    child.stdin.end();
    expect(await closed).toEqual([0, null]);
    expect(shown).toBe(`${url} is online\n`);
  });

  it('has neither the gateway nor native code, licences, types for the documentation’s example, and at most 6 MB', async () => {
    const { installed } = await projectWith('agent', AGENT_PACKAGE, 'module', exampleOf('docs/embedding.md'));
    const { dependencies, peerDependenciesMeta } = manifestOf(installed);
    expect([dependencies, peerDependenciesMeta]).toEqual([undefined, { '@ngrok/ngrok': { optional: true } }]);
    const files = filesIn(installed);
    expect(files).toEqual(expect.arrayContaining(['LICENSE', 'README.md', 'THIRD-PARTY-LICENSES.txt']));
    const code = files
      .filter((name) => name.endsWith('.js'))
      .map((name) => readFileSync(join(installed, name), 'utf8'));
    expect(code.filter((text) => /libsql|src\/gateway\/(?!gateway\.ts)/.test(text))).toEqual([]);
    expect(bytesIn(installed)).toBeLessThan(6 * MB);
  });

  it('says what to install for ngrok’s cloud', async () => {
    const program = `import { createAgent } from '${AGENT_PACKAGE}';
      const options = { gateway: 'connect.ngrok-agent.com:443', authtoken: 'x', dataDir: 'agent-data' };
      await createAgent(options).start().catch((error) => console.log(error.name, error.message));`;
    const { folder } = await projectWith('agent', AGENT_PACKAGE, 'module', program);
    const { stdout } = await run(process.execPath, ['program.js'], { cwd: folder });
    expect(stdout).toMatch(/^OperatorError ngrok's cloud requires the package @ngrok\/ngrok, .*: install it, or /);
  });
});

it('npm would publish all three packages as they are, from the tarballs of a release', async () => {
  const folder = temporaryFolder();
  const sources = ['.', 'build/packages/management', 'build/packages/agent'].map((path) => resolve(path));
  await run('npm', ['pack', ...sources, '--ignore-scripts', '--pack-destination', folder]);
  const { stdout } = await run(process.execPath, ['scripts/publish-npm.js', folder, '--dry-run']);
  for (const name of ['device-agent', CLIENT_PACKAGE, AGENT_PACKAGE]) expect(stdout).toContain(`+ ${name}@`);
});
