import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { expect, it } from 'vitest';
import { CLOUD_CA } from '../../src/agent/connectors/gateway-route.ts';
import { deviceAgent } from '../support/agent-process.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

const FREE_PORTS = { AGENT_PORT: '0', GATEWAY_HTTP_PORT: '0', GATEWAY_HTTPS_PORT: '0' };

it('doctor prints no colours into a pipe, and exits with 0 without problems', async () => {
  const { code, stdout, stderr } = await deviceAgent(['doctor'], temporaryFolder(), FREE_PORTS);
  expect([code, stderr]).toEqual([0, '']);
  expect(stdout).toMatch(/^✔ Node {2,}v[\s\S]*\n✔ Settings {2,}valid; gateway: the embedded gateway\n/);
  expect(stdout).toMatch(/\nNo problems found\.\n$/);
  expect(stdout).not.toContain('\u001b');
});

it('doctor reports every invalid setting, also with --json, and exits with 1', async () => {
  const env = { ...FREE_PORTS, AGENT_PORT: 'http', LOG_LEVEL: 'loud', AGENT_API_TOKEN: 'a secret with blanks' };
  const { code, stdout } = await deviceAgent(['doctor', '--json'], temporaryFolder(), env);
  expect(code).toBe(1);
  const report = JSON.parse(stdout);
  expect(report).toMatchObject({ ok: false, version: expect.any(String) });
  const wrong = report.findings.filter(({ status }: { status: string }) => status === 'failed');
  expect(wrong.map(({ check, detail }: { check: string; detail: string }) => [check, detail.split('=')[0]])).toEqual([
    ['settings', 'AGENT_PORT'],
    ['settings', 'AGENT_API_TOKEN'],
    ['settings', 'LOG_LEVEL'],
  ]);
  expect(stdout).not.toContain('a secret');
});

it('doctor reports unrecognised settings in settings files', async () => {
  const folder = temporaryFolder();
  writeFileSync(join(folder, '.env'), 'AGENT_DOMIAN=me.localhost\nCOMPOSE_PROJECT_NAME=pi\n');
  writeFileSync(join(folder, 'settings.env'), 'NGROK_AUTH_TOKEN=super-secret-authtoken\n');
  const env = {
    ...FREE_PORTS,
    SETTINGS_FILE: 'settings.env',
    AGENT_GATEWAY: 'remote',
    GATEWAY_SERVICE_HOST: '10.0.0.1',
  };
  const { stdout } = await deviceAgent(['doctor', '--json'], folder, env);
  const { findings } = JSON.parse(stdout) as { findings: { check: string; status: string; detail: string }[] };
  const wrong = findings.filter(({ status }) => status === 'failed');
  expect(wrong.map(({ check, detail }) => [check, detail])).toEqual([
    ['settings', expect.stringMatching(/^NGROK_AUTHTOKEN is not set/)],
    ['settings', 'unrecognised setting: AGENT_DOMIAN'],
    ['settings', 'unrecognised setting: NGROK_AUTH_TOKEN'],
  ]);
  expect(stdout).not.toContain('super-secret');
});

it('doctor reports settings in the environment that are misspelt, not those of other programs', async () => {
  const env = { ...FREE_PORTS, NGROK_AUTH_TOKEN: 'x', GATEWAY_PORT: 'tcp://10.0.0.1:80', AGENT_NAME: 'ci' };
  const { stdout } = await deviceAgent(['doctor', '--json'], temporaryFolder(), env);
  const { findings } = JSON.parse(stdout) as { findings: { detail: string; advice: string }[] };
  const unrecognised = findings.filter(({ detail }) => detail.startsWith('unrecognised'));
  expect(unrecognised).toMatchObject([
    {
      detail: 'unrecognised setting: NGROK_AUTH_TOKEN',
      advice: expect.stringContaining('did you mean NGROK_AUTHTOKEN?'),
    },
  ]);
});

it('doctor never prints the authtoken', async () => {
  const env = { ...FREE_PORTS, NGROK_AUTHTOKEN: 'super-secret-authtoken', NGROK_SERVER_ADDR: '127.0.0.1:1' };
  const { code, stdout } = await deviceAgent(['doctor'], temporaryFolder(), env);
  expect([code, stdout]).toEqual([1, expect.stringMatching(/\n✖ Gateway {2,}127\.0\.0\.1:1 is unreachable/)]);
  expect(stdout).not.toContain('super-secret');
});

it('doctor trusts the same CAs as the SDK for ngrok’s cloud', () => {
  const scope = dirname(dirname(createRequire(import.meta.url).resolve('@ngrok/ngrok')));
  const native = readdirSync(scope, { recursive: true, encoding: 'utf8' }).filter((name) => name.endsWith('.node'));
  expect(native.length).toBeGreaterThan(0);
  for (const name of native) expect(readFileSync(join(scope, name)).includes(CLOUD_CA.trim())).toBe(true);
});
