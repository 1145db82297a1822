import { spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import {
  AGENT_SERVICE,
  GATEWAY_SERVICE,
  type Service,
  settingsFileOf,
  stateFolderOf,
} from '../../src/service/service.ts';
import { isEdited, socketText, unitText, userText } from '../../src/service/unit.ts';
import { CLI } from '../support/agent-process.ts';
import { programMissing, unless } from '../support/requirements.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

const HERE = { node: process.execPath, cli: CLI };
/** Paths with Debian's packages of Node.js and npm. */
const PACKAGED = { node: '/usr/bin/node', cli: '/usr/local/lib/node_modules/device-agent/dist/cli.js' };
const NO_SYSTEMD = programMissing('systemd-analyze', '--version');

const services = [AGENT_SERVICE, GATEWAY_SERVICE].map((service) => [service.name, service] as const);

describe.each(services)('the unit %s', (name, service: Service) => {
  const analyze = (...args: string[]) => {
    const folder = temporaryFolder();
    const file = join(folder, `${name}.service`);
    writeFileSync(file, unitText(service, HERE));
    const { status, stdout, stderr } = spawnSync('systemd-analyze', [...args, file], { encoding: 'utf8' });
    return { status, output: `${stdout}${stderr}` };
  };

  it('equals the file in packaging/', async () => {
    await expect(unitText(service, PACKAGED)).toMatchFileSnapshot(`../../packaging/${name}.service`);
    await expect(userText(service)).toMatchFileSnapshot(`../../packaging/${name}.sysusers.conf`);
  });

  it('passes systemd-analyze verify', unless(NO_SYSTEMD), () => {
    expect(analyze('verify')).toEqual({ status: 0, output: '' });
  });

  it('has an exposure of at most 2.0 by systemd-analyze security', unless(NO_SYSTEMD), () => {
    const { status, output } = analyze('security', '--offline=true', '--no-pager', '--threshold=20');
    expect([status, output]).toEqual([0, expect.stringMatching(/Overall exposure level.*OK/)]);
  });
});

it('a unit keeps its files where docs/service.md says', () => {
  const page = readFileSync('docs/service.md', 'utf8');
  const files = [settingsFileOf(AGENT_SERVICE), AGENT_SERVICE.credential?.file, stateFolderOf(AGENT_SERVICE)];
  for (const file of files) expect(page).toContain(file);
});

it('a unit does not wait for the network, and always restarts', () => {
  const unit = unitText(AGENT_SERVICE, PACKAGED);
  expect(unit).not.toContain('network-online');
  expect(unit).toMatch(/^StartLimitIntervalSec=0$/m);
  expect(unit).toMatch(/^Restart=always$/m);
});

it('the sockets of the gateway equal the file in packaging/, and pass systemd-analyze verify', async () => {
  const addresses = [443, 80].map((port) => ({ host: '0.0.0.0', port }));
  const text = socketText(GATEWAY_SERVICE, addresses);
  await expect(text).toMatchFileSnapshot('../../packaging/device-agent-gateway.socket');
  if (NO_SYSTEMD !== null) return;
  const folder = temporaryFolder();
  const files = {
    'device-agent-gateway.socket': text,
    'device-agent-gateway.service': unitText(GATEWAY_SERVICE, HERE),
  };
  for (const [name, content] of Object.entries(files)) writeFileSync(join(folder, name), content);
  const paths = Object.keys(files).map((name) => join(folder, name));
  const { status, stdout, stderr } = spawnSync('systemd-analyze', ['verify', ...paths], { encoding: 'utf8' });
  expect([status, `${stdout}${stderr}`]).toEqual([0, '']);
});

it('the sockets of the gateway are those of its settings; a port of 0 has none', () => {
  const sockets = (env: object) => GATEWAY_SERVICE.sockets?.({ ...env }, temporaryFolder());
  const at = (host: string, ...ports: number[]) => ports.map((port) => expect.objectContaining({ host, port }));
  expect(sockets({ GATEWAY_HTTPS_PORT: '443', GATEWAY_HTTP_PORT: '80', GATEWAY_HOST: '0.0.0.0' })).toEqual(
    at('0.0.0.0', 443, 80),
  );
  expect(sockets({ GATEWAY_HTTPS_PORT: '443', GATEWAY_HTTP_PORT: '0', GATEWAY_SESSION_PORT: '4443' })).toEqual(
    at('127.0.0.1', 443, 4443),
  );
  expect(socketText(GATEWAY_SERVICE, [{ host: '::', port: 443 }])).toMatch(/^ListenStream=\[::\]:443$/m);
});

it('a unit exposes only the program when that is in a home directory', () => {
  expect(unitText(AGENT_SERVICE, PACKAGED)).toMatch(/^ProtectHome=yes$/m);
  const checkout = unitText(AGENT_SERVICE, { node: '/usr/bin/node', cli: '/home/pi/device agent/dist/cli.js' });
  expect(checkout).toMatch(/^ProtectHome=tmpfs\nBindReadOnlyPaths="\/home\/pi\/device agent"$/m);
  expect(checkout).toMatch(
    /^ExecStart=\/usr\/bin\/node --max-semi-space-size=1 --v8-pool-size=1 "\/home\/pi\/device agent\/dist\/cli.js" run$/m,
  );
  const nvm = '/home/pi/.nvm/versions/node/v22.1.0';
  const ownNode = { node: `${nvm}/bin/node`, cli: `${nvm}/lib/node_modules/device-agent/dist/cli.js` };
  expect(unitText(AGENT_SERVICE, ownNode)).toMatch(
    new RegExp(`^BindReadOnlyPaths=${nvm}/bin/node\nBindReadOnlyPaths=${nvm}/lib$`, 'm'),
  );
});

it('unitText rejects a path that systemd would read differently', () => {
  expect(() => unitText(AGENT_SERVICE, { ...HERE, cli: '/opt/100%/dist/cli.js' })).toThrow(/move the program/);
});

it('isEdited is true only for a unit that no version has written', () => {
  const unit = unitText(AGENT_SERVICE, HERE);
  expect(isEdited(unit)).toBe(false);
  expect(isEdited(unit.replace('RestartSec=500ms', 'RestartSec=1'))).toBe(true);
  expect(isEdited('[Service]\nExecStart=/bin/true\n')).toBe(true);
});
