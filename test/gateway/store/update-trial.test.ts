import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { joinSite } from '../../../src/agent/join/join-site.ts';
import { withStore } from '../../../src/gateway/offline/command-store.ts';
import { NO_PROXIES } from '../../../src/lib/network/proxy-rules.ts';
import { systemClock } from '../../../src/lib/time/clock.ts';
import { inviteTo } from '../../support/enrolment.ts';
import { agentSession, makeDataDir, startTestGateway } from '../../support/gateway.ts';
import { GatewayClient } from '../../support/gateway-client.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';

it('while an update of the gateway is tried, agents are served, and changes wait until it is confirmed', async () => {
  const dataDir = await makeDataDir();
  onTestFinished(() => rmSync(dataDir, { recursive: true }));
  const mark = join(dataDir, 'gateway', 'update-trial');
  const before = await startTestGateway({ dataDir });
  const code = await inviteTo(before);
  const api = await GatewayClient.of(before);
  await before.close();
  writeFileSync(mark, '');

  const gateway = await startTestGateway({ dataDir, httpsPort: before.httpsPort });
  onTestFinished(() => gateway.close());
  const session = await agentSession(gateway).connect();
  onTestFinished(() => session.close().catch(() => {}));
  expect(await session.httpEndpoint().domain('cam.localhost').listen()).toBeTruthy();
  const waiting = { status: 503, body: { error_code: 'ERR_NGROK_700', msg: expect.stringContaining('being tried') } };
  expect(await api.call('GET', '/reserved_domains')).toMatchObject({ status: 200 });
  expect(await api.call('POST', '/reserved_domains', { name: 'a.example.com' })).toMatchObject(waiting);
  const command = () => withStore({ dataDir, encryptionKey: null }, ({ database }) => database.write(() => {}));
  await expect(command()).rejects.toThrow(/an update of the gateway is being tried, so nothing was changed/);

  // A device that joins tries again until it can.
  const folder = temporaryFolder();
  const files = { installation: `${folder}/enrolment.json`, settings: `${folder}/settings`, ca: `${folder}/ca.pem` };
  const waits: string[] = [];
  const options = {
    ...{ name: 'cam', proxies: NO_PROXIES, clock: systemClock, deadline: null },
    onWait: ({ reason }: { reason: string }) => {
      waits.push(reason);
      rmSync(mark, { force: true });
    },
  };
  await joinSite(code, { ...files, settingsMode: 0o600, authtoken: null, dataDir: folder }, options);
  expect(waits).toEqual(['it answered with status 503']);
  expect(await api.call('POST', '/reserved_domains', { name: 'a.example.com' })).toMatchObject({ status: 201 });
  await command();
});
