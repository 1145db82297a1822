import { expect, it, onTestFinished } from 'vitest';
import type { LiveSession } from '../../../src/gateway/endpoints/live-view.ts';
import { enrolmentKey, installKey } from '../../support/enrolment.ts';
import { startManagementServer } from '../../support/management-server.ts';
import { ENDPOINT, SESSION } from '../../support/online-agent.ts';

const sessions: LiveSession[] = [];
const endpoints = [
  ENDPOINT,
  { ...ENDPOINT, id: `${ENDPOINT.id.slice(0, -1)}Z`, url: 'tcp://tcp.example.com:20000', proto: 'tcp', name: 'Lift' },
];

async function start() {
  const server = await startManagementServer({ live: { sessions: () => sessions, endpoints: () => endpoints } });
  onTestFinished(() => server.close());
  const names = async (query: string) => {
    const { status, body } = await server.call('GET', `/devices?${query}`);
    expect([status, body.msg]).toEqual([200, undefined]);
    return (body.devices as { name: string }[]).map(({ name }) => name).sort();
  };
  return { server, names };
}

it('lists of devices are searched, and limited by state, site, label and version', async () => {
  const { server, names } = await start();
  const { devices, database } = server.store;
  const join = async (name: string, site: string, labels: Record<string, string>) => {
    const { secret } = await enrolmentKey(server, { site: `*.${site}`, labels });
    const { body } = await server.call('POST', '/enrolments', { install_key: installKey(), secret, name });
    return devices.named(String(body.name))[0] ?? null;
  };
  const lift = await join('lift-1', 'north.example.com', { floor: '1', kind: 'lift' });
  const cam = await join('cam-1', 'north.example.com', { floor: '2' });
  await join('pump', 'xn--mnchen-3ya.example.com', { floor: '1' });
  sessions.push({ ...SESSION, credentialId: lift?.credential_id ?? null });
  await database.write(
    () => cam && devices.update({ ...cam, last_seen_at: '2026-01-01T00:00:00Z', agent_version: 'agent/1.2.3' }),
  );

  expect(await names('search=CAM')).toEqual(['cam-1']);
  expect(await names('search=north')).toEqual(['cam-1', 'lift-1']);
  expect(await names(`search=${encodeURIComponent('münchen')}`)).toEqual(['pump']);
  expect(await names(`search=${encodeURIComponent("%' OR 1")}`)).toEqual([]);
  expect(await names('state=online')).toEqual(['lift-1']);
  expect(await names('state=offline')).toEqual(['cam-1']);
  expect(await names('state=never')).toEqual(['pump']);
  expect(await names('site=*.north.example.com&label=floor=1')).toEqual(['lift-1']);
  expect(await names('label=kind')).toEqual(['lift-1']);
  expect(await names('version=agent/1.2')).toEqual(['cam-1']);
  // Pages keep the filters.
  const { body } = await server.call('GET', '/devices?site=north.example.com&limit=1');
  const next = new URL(String(body.next_page_uri)).search;
  expect(await names(next.slice(1))).toHaveLength(1);
  const refused = await server.call('GET', '/devices?state=asleep');
  expect([refused.status, refused.body.error_code]).toEqual([400, 'ERR_NGROK_215']);
});

it('lists of endpoints are searched, and limited by protocol and type', async () => {
  const { server } = await start();
  const ids = async (query: string) => {
    const { body } = await server.call('GET', `/endpoints?${query}`);
    return (body.endpoints as { id: string }[]).map(({ id }) => id).sort();
  };
  const [web, tcp] = endpoints.map(({ id }) => id);
  expect(await ids('')).toEqual([web, tcp].sort());
  expect(await ids('search=lift')).toEqual([tcp]);
  expect(await ids('protocol=tcp')).toEqual([tcp]);
  expect(await ids('type=cloud')).toEqual([]);
});
