import { readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { AuthtokenRenewal } from '../../src/agent/authtoken-renewal.ts';
import type { GatewayLink } from '../../src/agent/connectors/gateway-link.ts';
import { joinAtFirstStart } from '../../src/agent/join/join-site.ts';
import { openLink } from '../../src/agent/open-link.ts';
import { revokeDevice, rotateDevice } from '../../src/gateway/devices/manage-devices.ts';
import type { DeviceRow } from '../../src/gateway/store/devices.ts';
import { loadSettings } from '../../src/settings/agent-settings.ts';
import { loadFirstStart } from '../../src/settings/first-start-settings.ts';
import { JOINED_SETTINGS } from '../../src/settings/setting-sources.ts';
import { inviteTo } from '../support/enrolment.ts';
import { startTestGateway, type TestGateway } from '../support/gateway.ts';
import { recordingLog, silentLog } from '../support/silent-log.ts';
import { SteeredClock } from '../support/steered-clock.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

let gateway: TestGateway;
let folder: string;
let clock: SteeredClock;
let recording: ReturnType<typeof recordingLog>;

beforeEach(async () => {
  gateway = await startTestGateway();
  folder = temporaryFolder();
  clock = new SteeredClock();
  recording = recordingLog();
  const env = { AGENT_GATEWAY: 'remote', AGENT_NAME: 'cam', AGENT_JOIN_CODE: await inviteTo(gateway) };
  const start = loadFirstStart(env, folder);
  if (start) await joinAtFirstStart(start, silentLog);
});
afterEach(() => gateway.close());

const device = () => gateway.store.devices.page(null, 1)[0] as DeviceRow;
const change = (work: () => unknown) => gateway.store.database.write(work);
const joinedFile = () => join(folder, 'data', JOINED_SETTINGS);
const messages = () => recording.lines.map(({ msg }) => msg);

/** What an agent opens at its start. */
async function startLink(): Promise<GatewayLink> {
  const settings = loadSettings({ AGENT_GATEWAY: 'remote' }, folder);
  if (settings.gateway.kind !== 'remote') throw new Error('embedded');
  const { log } = recording;
  const renewal = new AuthtokenRenewal({ settings, clock, log }, settings.gateway);
  const common = { version: '1', log: silentLog, clock };
  const authtoken = () => renewal.authtoken();
  return renewal.over(await openLink('native', { ...settings.gateway, ...common, authtoken }));
}

/** Whether the gateway lets a session begin; then the session ends. */
async function isLetIn(link: GatewayLink): Promise<boolean> {
  const session = await link.connect().catch(() => null);
  await session?.close();
  return session !== null;
}

it('a device whose authtoken was rotated fetches another one, again after each restart and rotation', async () => {
  const link = await startLink();
  expect(await isLetIn(link)).toBe(true);
  for (let times = 1; times <= 2; times += 1) {
    await change(() => rotateDevice(gateway.store, device(), { by: 'operator', tcpHost: 'tcp.localhost' }));
    expect(device().credential_id).toBe(null);
    expect(await isLetIn(link)).toBe(true);
  }
  expect(messages()).toEqual(['authtoken renewed', 'authtoken renewed']);
  expect(await isLetIn(await startLink())).toBe(true);
  expect(messages()).toHaveLength(2);
  expect(device().history.map(({ what }) => what)).toEqual(['enrolled', 'rotated', 'renewed', 'rotated', 'renewed']);
  const file = join(folder, 'data', 'renewed-authtoken.json');
  expect(statSync(file).mode & 0o777).toBe(0o600);
  const { authtoken } = JSON.parse(readFileSync(file, 'utf8'));
  expect(JSON.stringify(recording.lines)).not.toContain(authtoken);
});

it('a device that was renamed and rotated keeps the names that its settings have', async () => {
  await change(() => {
    gateway.store.devices.update({ ...device(), name: 'door', old_name: 'cam' });
    rotateDevice(gateway.store, device(), { by: 'operator', tcpHost: 'tcp.localhost' });
  });
  expect(await isLetIn(await startLink())).toBe(true);
  const { credential_id } = device();
  expect(gateway.store.credentials.get(String(credential_id))?.acl).toEqual([
    'bind:*-door.site.localhost',
    'bind:*-cam.site.localhost',
  ]);
});

it('a device that was revoked or deleted stays out, and asks once an hour', async () => {
  await change(() => revokeDevice(gateway.store, device(), { by: 'operator', tcpHost: 'tcp.localhost' }));
  const link = await startLink();
  const refused = {
    code: 'ERR_GATEWAY_DEVICE_REVOKED',
    message: expect.stringContaining('the device cam was revoked'),
  };
  for (let times = 1; times <= 2; times += 1) await expect(link.connect()).rejects.toMatchObject(refused);
  expect(recording.lines).toMatchObject([
    { msg: 'authtoken not renewed', reason: expect.stringContaining('ERR_GATEWAY_DEVICE_REVOKED') },
  ]);
  clock.advance(3_600_000);
  await change(() => gateway.store.devices.delete(device().id));
  await expect(link.connect()).rejects.toMatchObject({ message: 'the device was deleted on the gateway' });
  expect(recording.lines[1]).toMatchObject({ reason: expect.stringContaining('ERR_GATEWAY_CODE_UNKNOWN') });
  expect(gateway.store.devices.page(null, 1)).toEqual([]);
});

it('another authtoken in the settings replaces a renewed one', async () => {
  await change(() => rotateDevice(gateway.store, device(), { by: 'operator', tcpHost: 'tcp.localhost' }));
  expect(await isLetIn(await startLink())).toBe(true);
  const text = readFileSync(joinedFile(), 'utf8');
  writeFileSync(joinedFile(), text.replace(/^NGROK_AUTHTOKEN=.*$/m, `NGROK_AUTHTOKEN=${gateway.authtoken}`));
  const settings = loadSettings({ AGENT_GATEWAY: 'remote' }, folder);
  expect(settings.gateway.kind === 'remote' && settings.gateway.authtoken()).toBe(gateway.authtoken);
});

it('a device without an enrolment asks nobody', async () => {
  await change(() => rotateDevice(gateway.store, device(), { by: 'operator', tcpHost: 'tcp.localhost' }));
  rmSync(join(folder, 'data', 'enrolment.json'));
  expect(await isLetIn(await startLink())).toBe(false);
  expect(recording.lines).toEqual([]);
});
