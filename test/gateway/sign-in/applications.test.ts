import { expect, it, onTestFinished } from 'vitest';
import type { GatewayOptions } from '../../../src/gateway/context/gateway-options.ts';
import { addPerson, issuePersonLink } from '../../../src/gateway/sign-in/manage-sign-ins.ts';
import { agentSession, startTestGateway } from '../../support/gateway.ts';
import { GatewayClient } from '../../support/gateway-client.ts';
import { WebClient } from '../../support/web-client.ts';

/** A policy that lets some people of the gateway in. */
const letting = (config: object) =>
  JSON.stringify({
    on_http_request: [
      {
        actions: [
          { type: 'gateway-sign-in', config },
          { type: 'custom-response', config: {} },
        ],
      },
    ],
  });

/** A gateway, what puts an endpoint online, and what shows the page for sign-in to a person. */
async function gatewayWith(options: Partial<GatewayOptions>) {
  const gateway = await startTestGateway(options);
  onTestFinished(() => gateway.close());
  const { store, httpsPort } = gateway;
  const api = await GatewayClient.of(gateway);
  const origin = `https://sign-in.localhost:${httpsPort}`;
  return {
    gateway,
    origin,
    api,
    urlOf: (name: string) => `https://${name}.localhost:${httpsPort}/`,
    serve: async (url: string, policy: string, more: object = {}) => {
      const { status, body } = await api.call('POST', '/endpoints', { url, traffic_policy: policy, ...more });
      expect([status, body.msg]).toEqual([201, undefined]);
    },
    /** Signs a new person in by a link. */
    signIn: async (email: string, groups: string[] = []) => {
      const { path } = await store.database.write(() => issuePersonLink(store, addPerson(store, { email, groups }).id));
      const browser = new WebClient();
      const body = new URLSearchParams({ email, password: 'correct horse battery' }).toString();
      const headers = { 'content-type': 'application/x-www-form-urlencoded', origin };
      const entered = await browser.visit(origin + path, { method: 'POST', headers, body });
      expect(entered.status).toBe(303);
      return browser;
    },
  };
}

const linksIn = (body: string) => [...body.matchAll(/<a href="([^"]+)"/g)].map(([, url]) => url);

it('people who are signed in see the endpoints whose policies let them in, and nothing of others', async () => {
  const { gateway, api, origin, urlOf, serve, signIn } = await gatewayWith({ listApplications: true });
  const session = await agentSession(gateway).connect();
  const cam = session.httpEndpoint().domain('cam.localhost');
  const tunnel = await cam.trafficPolicy(letting({ groups: ['family'] })).listen(false);
  await serve('https://all.localhost', letting({}), { description: '<b>For all</b>' });
  await serve('https://ann.localhost', letting({ people: ['Ann@example.com'] }));
  await serve('https://open.localhost', JSON.stringify({ on_http_request: [{ actions: [{ type: 'deny' }] }] }));
  await api.call('POST', '/reserved_domains', { domain: '*.wild.localhost' });
  await serve('https://*.wild.localhost', letting({}));
  await serve('https://hidden.internal', letting({}));
  for (const people of [['jo@example.com'], ['ann@example.com']]) {
    await serve('https://pool.localhost', letting({ people }), { pooling_enabled: true });
  }
  const [jo, ann, guest] = [
    await signIn('jo@example.com', ['family']),
    await signIn('ann@example.com'),
    await signIn('guest@example.com'),
  ];
  const page = async (browser: WebClient) => (await browser.visit(`${origin}/`)).body;
  expect(linksIn(await page(jo))).toEqual(['all', 'cam', 'pool'].map(urlOf));
  expect(await page(jo)).toContain('&#60;b&#62;For all&#60;/b&#62;');
  expect(await page(jo)).not.toContain('ann');
  expect(linksIn(await page(ann))).toEqual(['all', 'ann', 'pool'].map(urlOf));
  expect(linksIn(await page(guest))).toEqual([urlOf('all')]);
  const nobody = await page(new WebClient());
  expect(nobody).toContain('name="password"');
  expect(linksIn(nobody)).toEqual([]);

  const { store } = gateway;
  await store.database.write(() => {
    const row = store.people.byEmail('guest@example.com');
    if (row) store.people.update({ ...row, groups: ['family'] });
  });
  await expect.poll(async () => linksIn(await page(guest))).toEqual(['all', 'cam'].map(urlOf));
  await tunnel.close();
  await expect.poll(async () => linksIn(await page(guest))).toEqual([urlOf('all')]);
});

it('people who are signed in see no list without the setting, and are told when it is empty', async () => {
  const { origin, serve, signIn } = await gatewayWith({});
  await serve('https://all.localhost', letting({}));
  const { body } = await (await signIn('jo@example.com')).visit(`${origin}/`);
  expect(body).toContain('To open a tunnel, go to its address.');
  expect(body).not.toContain('all.localhost');

  const empty = await gatewayWith({ listApplications: true });
  const told = await (await empty.signIn('jo@example.com')).visit(`${empty.origin}/`);
  expect(told.body).toContain('No application is online for you.');
});
