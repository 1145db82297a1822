import { expect, it, onTestFinished } from 'vitest';
import { DeviceSightings } from '../../../src/gateway/devices/device-sightings.ts';
import type { LiveSession } from '../../../src/gateway/endpoints/live-view.ts';
import { enrolmentKey, installKey } from '../../support/enrolment.ts';
import { startManagementServer } from '../../support/management-server.ts';
import { SESSION } from '../../support/online-agent.ts';
import { silentLog } from '../../support/silent-log.ts';

it('a device that was online shows since when it is gone, and its last address and version', async () => {
  let now = Date.parse('2026-03-01T00:00:00Z');
  const server = await startManagementServer({ wallClock: () => now });
  onTestFinished(() => server.close());
  const { secret } = await enrolmentKey(server);
  const { body } = await server.call('POST', '/enrolments', { install_key: installKey(), secret });
  const path = `/devices/${body.device_id}`;
  const { credential_id } = server.store.devices.get(String(body.device_id)) ?? {};
  let sessions: LiveSession[] = [{ ...SESSION, credentialId: credential_id ?? null }];
  const sightings = new DeviceSightings(server.store, { sessions: () => sessions }, silentLog);
  await sightings.check();
  const { commits } = server.store.database;
  now += 60_000;
  await sightings.check();
  expect(server.store.database.commits).toBe(commits);
  sessions = [];
  await sightings.check();
  expect((await server.call('GET', path)).body).toMatchObject({
    online_since: null,
    last_seen_at: '2026-03-01T00:01:00Z',
    ip: SESSION.ip,
    agent_version: SESSION.agentVersion,
  });
});
