import { afterEach, beforeEach, expect, it } from 'vitest';
import { issueCredential } from '../../src/gateway/store/tokens.ts';
import type { PortRange } from '../../src/lib/network/port-range.ts';
import { freePorts } from '../support/free-ports.ts';
import { agentSession, startTestGateway, type TestGateway } from '../support/gateway.ts';
import { GatewayClient } from '../support/gateway-client.ts';

let ports: PortRange;
let gateway: TestGateway;
let api: GatewayClient;
beforeEach(async () => {
  ports = await freePorts(3);
  gateway = await startTestGateway({ tcpPorts: ports });
  api = await GatewayClient.of(gateway);
});
afterEach(() => gateway.close());

async function reserve(more = {}) {
  const { status, body } = await api.call('POST', '/reserved_addrs', more);
  expect(status).toBe(201);
  return { id: String(body.id), addr: String(body.addr) };
}

async function sessionOf(owner_id: string | null) {
  const { token: authtoken } = await gateway.store.database.write(() =>
    issueCredential(gateway.store, { acl: [], owner_id }),
  );
  return agentSession({ ...gateway, authtoken }).connect();
}

const newBot = async () => String((await api.call('POST', '/bot_users', {})).body.id);

it('a reserved address is bound by those who ask for it, and never given to others', async () => {
  const { id, addr } = await reserve();
  const session = await sessionOf(null);
  const others = [await session.tcpEndpoint().listen(false), await session.tcpEndpoint().listen(false)];
  expect(others.map((listener) => listener.url())).not.toContain(`tcp://${addr}`);
  await expect(session.tcpEndpoint().listen(false)).rejects.toThrow(/ERR_NGROK_18021/);
  const listener = await session.tcpEndpoint().remoteAddr(addr).listen(false);
  expect(listener.url()).toBe(`tcp://${addr}`);
  const { body } = await api.call('GET', '/endpoints');
  const ref = { tcp_addr: { id, uri: expect.stringContaining(`/reserved_addrs/${id}`) } };
  expect(body.endpoints).toContainEqual(expect.objectContaining({ url: `tcp://${addr}`, ...ref }));
});

it('an address that is reserved for a bot user is bound by its authtokens alone, until it is deleted', async () => {
  const [owner, stranger] = [await newBot(), await newBot()];
  const { id, addr } = await reserve({ owner_id: owner });
  const bindAs = async (bot: string | null) => (await sessionOf(bot)).tcpEndpoint().remoteAddr(addr).listen(false);
  await expect(bindAs(stranger)).rejects.toThrow(/reserved for another owner.*ERR_NGROK_308/s);
  await expect(bindAs(null)).rejects.toThrow(/ERR_NGROK_308/);
  const listener = await bindAs(owner);
  await listener.close();
  expect((await api.call('DELETE', `/reserved_addrs/${id}`)).status).toBe(204);
  expect((await bindAs(stranger)).url()).toBe(`tcp://${addr}`);
});

it('an address in use is not reserved, nor is one more than there are', async () => {
  const session = await sessionOf(null);
  const online = await session.tcpEndpoint().listen(false);
  const reserved = [await reserve(), await reserve()].map(({ addr }) => `tcp://${addr}`);
  expect(new Set([...reserved, online.url()]).size).toBe(3);
  const refused = await api.call('POST', '/reserved_addrs', {});
  expect(refused).toMatchObject({ status: 400, body: { error_code: 'ERR_NGROK_503' } });
});

it('an address that an invitation promises to devices is not reserved', async () => {
  const tcp_ports = `${ports.first}-${ports.last - 1}`;
  expect((await api.call('POST', '/enrolment_keys', { site: '*.site.localhost', tcp_ports })).status).toBe(201);
  expect((await reserve()).addr).toBe(`localhost:${ports.last}`);
});
