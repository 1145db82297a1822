import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import packageJson from '../../package.json' with { type: 'json' };
import publication from '../../packaging/publication.json' with { type: 'json' };
import { buildDebs, debianVersion } from '../../scripts/packages/debian.ts';
import { maintainerScripts } from '../../scripts/packages/debian-files.ts';
import { AGENT_SERVICE, GATEWAY_SERVICE, stateFolderOf } from '../../src/service/service.ts';
import { isEdited, unitText } from '../../src/service/unit.ts';
import { firstOf, programMissing, unless } from '../support/requirements.ts';
import { sharedFolder, temporaryFolder } from '../support/temporary-folder.ts';

const MISSING = firstOf(
  programMissing('dpkg-deb', '--version'),
  process.arch === 'x64' && process.platform === 'linux' ? null : 'Linux on x64 is required',
);
const MB = 1e6;
const PROGRAM = 'usr/lib/device-agent';

const filesIn = (folder: string) =>
  readdirSync(folder, { recursive: true, encoding: 'utf8' }).filter((path) => statSync(join(folder, path)).isFile());

/** Runs the program of an unpacked package with this Node.js. */
function runIn(root: string, ...args: string[]) {
  const cli = join(root, PROGRAM, 'dist/cli.js');
  return spawnSync(process.execPath, [cli, ...args], { cwd: temporaryFolder(), encoding: 'utf8' });
}

describe('the Debian packages', unless(MISSING), () => {
  const folder = sharedFolder();
  let [agent, gateway] = ['', ''];
  beforeAll(() => {
    const version = '9.8.7-beta.1';
    [agent = '', gateway = ''] = buildDebs({ architectures: ['amd64'], folder, version, fast: true, draft: true });
  });
  const fieldsOf = (deb: string) => execFileSync('dpkg-deb', ['--field', deb], { encoding: 'utf8' });

  it('name their version, maintainer and dependencies, and belong together', () => {
    const { name, email } = publication.maintainer;
    expect(fieldsOf(agent)).toMatch(/^Package: device-agent\nVersion: 9\.8\.7~beta\.1\nArchitecture: amd64\n/);
    expect(fieldsOf(agent)).toContain(`Maintainer: ${name} <${email}>\n`);
    expect(fieldsOf(agent)).toMatch(/^Depends: libc6 .*systemd/m);
    expect(fieldsOf(gateway)).toMatch(/^Depends: device-agent \(= 9\.8\.7~beta\.1\),/m);
    expect(debianVersion(packageJson.version)).toMatch(/^\d+\.\d+\.\d+(~.+)?$/);
  });

  it('the one of the agent runs without the code of the gateway, and says where that is', () => {
    expect(statSync(agent).size).toBeLessThan(10 * MB);
    const root = temporaryFolder();
    execFileSync('dpkg-deb', ['--extract', agent, root]);
    const files = filesIn(join(root, PROGRAM));
    expect(files.filter((path) => /libsql|gateway-init|web\/gateway|\.map$|\.d\.ts$|docs\//.test(path))).toEqual([]);
    // Each page finds its files.
    const page = readFileSync(join(root, PROGRAM, 'dist/web/device/index.html'), 'utf8');
    const assets = [...page.matchAll(/(?:src|href)="(assets\/[^"]+)"/g)].map(([, path]) => `dist/web/${path}`);
    expect(assets).not.toEqual([]);
    expect(files).toEqual(expect.arrayContaining(assets));
    expect(existsSync(join(root, 'usr/bin/device-agent'))).toBe(true);
    expect(readFileSync(join(root, PROGRAM, 'dist/cli.js'), 'utf8')).toMatch(
      /^#!\/usr\/lib\/device-agent\/bin\/node\n/,
    );
    expect(runIn(root, '--help').stdout).toContain('Usage: device-agent');
    const { stderr, status } = runIn(root, 'gateway', 'devices', 'list');
    expect([status, stderr]).toEqual([
      1,
      'device-agent: the gateway is not installed: sudo apt install device-agent-gateway\n',
    ]);

    execFileSync('dpkg-deb', ['--extract', gateway, root]);
    const all = filesIn(join(root, PROGRAM));
    const dist = readdirSync('dist', { encoding: 'utf8' }).filter((name) => name.endsWith('.js'));
    expect(dist.filter((name) => !all.includes(`dist/${name}`))).toEqual([]);
    expect(runIn(root, 'gateway', 'devices', 'list').stderr).not.toContain('apt install');
  });

  it.each([AGENT_SERVICE, GATEWAY_SERVICE])('have the unit that service install would write: $name', (service) => {
    const root = temporaryFolder();
    execFileSync('dpkg-deb', ['--extract', service === AGENT_SERVICE ? agent : gateway, root]);
    const unit = readFileSync(join(root, `usr/lib/systemd/system/${service.name}.service`), 'utf8');
    expect(unit).toBe(unitText(service, { node: `/${PROGRAM}/bin/node`, cli: `/${PROGRAM}/dist/cli.js` }));
    expect(isEdited(unit)).toBe(false);
  });

  it.each([AGENT_SERVICE, GATEWAY_SERVICE])('have scripts that a shell can read: $name', (service) => {
    for (const script of Object.values(maintainerScripts(service))) {
      const { status, stderr } = spawnSync('sh', ['-n'], { input: script, encoding: 'utf8' });
      expect([status, stderr]).toEqual([0, '']);
    }
  });
});

it('a purge says which device its gateway still lists, before it deletes what says so', () => {
  const root = temporaryFolder();
  const state = root + stateFolderOf(AGENT_SERVICE);
  const purge = () => {
    // All that it deletes is below the folder; the user and systemd are left alone.
    const [files = ''] = (maintainerScripts(AGENT_SERVICE).postrm ?? '').split('  ! getent', 1);
    const script = files.replaceAll(/ (\/(?:etc|var)\/)/g, ` ${root}$1`);
    const { stdout, stderr } = spawnSync('sh', ['-s', 'purge'], { input: `${script}fi`, encoding: 'utf8' });
    return [stdout, stderr];
  };
  expect(purge()).toEqual(['', '']);
  mkdirSync(state, { recursive: true });
  const device = { id: 'dev_1', name: 'cam-7', site: 'site.example.com', domain: 'agent-cam-7.site.example.com' };
  const installation = { install_key: 'key', machine: null, code: 'join-x', device };
  writeFileSync(join(state, 'enrolment.json'), JSON.stringify({ ...installation, device: null }, null, 2));
  expect(purge()).toEqual(['', '']);
  mkdirSync(state, { recursive: true });
  writeFileSync(join(state, 'enrolment.json'), JSON.stringify(installation, null, 2));
  expect(purge()).toEqual([
    'device-agent: the gateway still lists cam-7: run there: device-agent gateway devices delete cam-7\n',
    '',
  ]);
  expect(existsSync(state)).toBe(false);
});
