import request from 'supertest';
import { expect, it } from 'vitest';
import type { TunnelShareLink } from '../../../src/agent/api/agent-operations.ts';
import type { GatewayLinks } from '../../../src/agent/api/share-links-router.ts';
import { ShareLinks } from '../../../src/agent/share-links.ts';
import { ApiError } from '../../../src/lib/errors.ts';
import { NO_PROXIES } from '../../../src/lib/network/proxy-rules.ts';
import { setUpApi } from '../../support/api-set-up.ts';

const LINK: TunnelShareLink = {
  ...{ id: 'sl_1', url: 'https://cam.localhost:8443', link: 'https://cam.localhost:8443/ngrok/share/t' },
  ...{ created_at: 'now', expires_at: 'later', max_uses: 1, uses: 0, last_used_at: null },
  ...{ description: null, created_by: 'cr_1' },
};

/** A tunnel, and a gateway that keeps one link and first refuses as often as told. */
async function setUp({ refusals = 0 } = {}) {
  const asked: unknown[] = [];
  const shareLinks: GatewayLinks = {
    create: async (sent) => {
      asked.push(sent);
      if (asked.length <= refusals) throw new ApiError(502, 'ERR_GATEWAY_NO_SHARE_LINKS', 'not yet');
      return LINK;
    },
    list: async () => [LINK],
    revoke: async (id) => void asked.push(id),
  };
  const { local, tunnels } = await setUpApi({}, { shareLinks });
  await request(local).post('/tunnels').send({ forwards_to: 8001, domain: 'cam.localhost' });
  const share = (body: object, tunnel = 'cam') => request(local).post(`/tunnels/${tunnel}/share_links`).send(body);
  return { local, tunnels, share, asked, shareLinks };
}

it('POST /tunnels/…/share_links changes the policy only when its owner asks for it, then makes the link', async () => {
  const { tunnels, share, asked } = await setUp({ refusals: 1 });
  const refused = await share({ expires_in: 60 });
  expect(refused.body).toMatchObject({
    error_code: 'ERR_AGENT_NO_SHARE_LINKS',
    msg: expect.stringContaining('--protect'),
  });
  expect([refused.status, tunnels.find('cam').tunnel.policy, asked]).toEqual([409, null, []]);
  const made = await share({ expires_in: 60, max_uses: 1, protect: true });
  expect([made.status, made.body]).toEqual([200, LINK]);
  // It was asked again, as another gateway of a cluster learns of the policy later.
  expect(asked).toEqual(Array(2).fill({ expires_in: 60, max_uses: 1, url: LINK.url }));
  const { policy } = tunnels.find('cam').tunnel;
  expect(policy).toMatchObject({ inbound: [{ actions: [{ type: 'gateway-share-links' }] }] });
  await share({ expires_in: 60 });
  expect(tunnels.find('cam').tunnel.policy).toBe(policy);
});

it('says what to do about a stored policy that this version does not accept', async () => {
  const before = await setUpApi();
  await request(before.local).post('/tunnels').send({ forwards_to: 8001, domain: 'cam.localhost' });
  const { tunnel } = before.tunnels.find('cam');
  await before.store.save({ ...tunnel, policy: { on_quic: [] } });
  await before.tunnels.stop();
  const { local } = await setUpApi({ folder: before.folder }, { shareLinks: {} as GatewayLinks });
  const { status, body } = await request(local).post('/tunnels/cam/share_links').send({ expires_in: 60 });
  expect([status, body.error_code]).toEqual([400, 'ERR_AGENT_POLICY_NOT_APPLICABLE']);
  expect(body.msg).toMatch(/^policy\.on_quic: .*delete the tunnel and create it/);
});

it('POST /tunnels/…/share_links leaves the policy as it is when the gateway makes no links', async () => {
  const { tunnels, share, shareLinks } = await setUp();
  shareLinks.list = () => Promise.reject(new ApiError(501, 'ERR_AGENT_NOT_SHAREABLE', 'no'));
  for (const protect of [false, true]) expect((await share({ expires_in: 60, protect })).status).toBe(501);
  expect(tunnels.find('cam').tunnel.policy).toBe(null);
});

it('GET and DELETE /share_links list and revoke', async () => {
  const { local, asked } = await setUp();
  expect((await request(local).get('/share_links')).body).toEqual([LINK]);
  expect((await request(local).delete('/share_links/sl_1')).status).toBe(204);
  expect(asked).toEqual(['sl_1']);
});

it.each([
  [{ expires_in: 0 }, 'cam', 400],
  [{ expires_in: 91 * 86_400 }, 'cam', 400],
  [{ expires_in: 60 }, 'nobody', 404],
  [{ expires_in: 60, protect: true }, 'ssh', 409],
  [{ expires_in: 60, protect: true }, 'inner.internal', 409],
])('refuses %j for %s with %i', async (body, tunnel, status) => {
  const { local, tunnels, share } = await setUp();
  await request(local).post('/tunnels').send({ protocol: 'tls', forwards_to: 22, domain: 'ssh.localhost' });
  await request(local).post('/tunnels').send({ forwards_to: 80, domain: 'inner.internal', binding: 'internal' });
  expect((await share(body, tunnel)).status).toBe(status);
  expect(tunnels.list().map(({ tunnel: { policy } }) => policy)).toEqual([null, null, null]);
});

const ACCESS = { authtoken: () => 'a', serverAddr: null, authorities: null, proxies: NO_PROXIES, apiUrl: null };

it.each([
  ['ngrok’s cloud', null, 501, /gateway of your own/],
  ['a gateway at an address', '192.0.2.1:443', 501, /device-agent gateway share/],
  ['a gateway that does not answer', 'connect.localhost:1', 503, /cannot reach the management API/],
])('share links at %s are refused with what to do', async (_, serverAddr, status, message) => {
  const links = new ShareLinks(() => ({ ...ACCESS, serverAddr, enrolment: '/nowhere/enrolment.json' }));
  await expect(links.list()).rejects.toMatchObject({ status, message: expect.stringMatching(message) });
});
