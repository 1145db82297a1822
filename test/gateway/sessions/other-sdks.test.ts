import { describe, expect, it } from 'vitest';
import { policyOfObject } from '../../../src/agent-protocol/messages.ts';
import { auth, rawAgent, rawSession } from './raw-agent.ts';
import { SessionGateway } from './session-gateway.ts';

// What SDKs of other languages and older ones send, as recorded on the wire; @ngrok/ngrok sends none of it.

const BIND = 1;
const UNBIND = 2;
const SERVER_INFO = 8;
const PATCH_TUNNEL = 10;

async function connect() {
  const { gateway, agent, session } = await rawSession();
  const bind = (Proto: string, Opts: object, Extra?: object) => agent.call(BIND, { Id: '', Proto, Opts, Extra });
  return { gateway, agent, session, bind };
}

function refused(code: number) {
  return { Error: expect.stringMatching(new RegExp(`ERR_NGROK_${code}$`)) };
}

describe('TLS termination', () => {
  it.each([{}, { cert: '', key: '' }, { cert: null }])(
    'with a certificate of the gateway is %j at every bind',
    async (TLSTermination) => {
      const { gateway, bind } = await connect();
      expect(await bind('tls', { Domain: 'a.localhost', TLSTermination })).toMatchObject({ Proto: 'tls' });
      expect(gateway.endpoints.lookup('tls', 'a.localhost')?.tls).toMatchObject({ certificate: null });
    },
  );
});

describe('a binding', () => {
  it('in the member Binding makes an endpoint internal', async () => {
    const { gateway, bind } = await connect();
    expect(await bind('https', { URL: 'https://a.internal' }, { Binding: 'internal' })).toMatchObject({
      Proto: 'https',
    });
    expect(gateway.endpoints.list()).toMatchObject([{ internal: true }]);
  });

  it.each([
    [{ Binding: 'kubernetes' }, 15005],
    [{ Binding: 'internal' }, 9029],
    [{ Binding: 'internal', Bindings: ['public'] }, 15005],
    [{ AllowedUsers: ['me'] }, 301],
  ])('or unknown member that restricts access is never ignored: %j', async (Extra, code) => {
    const { gateway, bind } = await connect();
    expect(await bind('https', { URL: 'https://a.localhost' }, Extra)).toEqual(refused(code));
    expect(gateway.endpoints.list()).toEqual([]);
  });
});

describe('a policy as an object', () => {
  const base64 = (config: object) => Buffer.from(JSON.stringify(config)).toString('base64');

  it('applies like its text', async () => {
    const { gateway, bind } = await connect();
    const Actions = [{ Type: 'deny', Config: base64({ status_code: 451 }) }];
    const Policy = { Inbound: [{ Name: 'no', Expressions: ["req.method == 'GET'"], Actions }], Outbound: null };
    await bind('https', { Domain: 'a.localhost', Policy });
    expect(gateway.endpoints.lookup('https', 'a.localhost')?.policy.onHttpRequest).not.toBeNull();
    expect(JSON.parse(String(policyOfObject(Policy)))).toEqual({
      inbound: [
        {
          name: 'no',
          expressions: ["req.method == 'GET'"],
          actions: [{ type: 'deny', config: { status_code: 451 } }],
        },
      ],
      outbound: [],
    });
  });

  it.each([
    { Inbound: [{ Actions: [{ Type: 'deny', Config: 'not base64 of JSON' }] }] },
    { Inbound: 'deny everything' },
    { inbound: [] },
  ])('that cannot be read is refused: %j', async (Policy) => {
    const { bind } = await connect();
    expect(await bind('https', { Domain: 'a.localhost', Policy })).toEqual(refused(301));
  });
});

it('further connections of one agent share its endpoints, and outlive the first', async () => {
  const { gateway, session, bind } = await connect();
  await bind('https', { Domain: 'a.localhost' });
  const leg = await rawAgent(gateway);
  const request = auth(gateway, String(session.ClientId));
  await leg.call(0, { ...request, Extra: { ...request.Extra, LegNumber: 1 } });
  expect(await leg.call(BIND, { Id: '', Proto: 'https', Opts: { Domain: 'a.localhost' } })).not.toHaveProperty('Error');
  const [first, second] = gateway.endpoints.list();
  expect([first?.owner, second?.owner].every((owner) => owner?.online)).toBe(true);
  first?.owner.end(new Error('cut'));
  expect(gateway.endpoints.lookup('https', 'a.localhost')).toBe(second);
});

it('http and https of one upstream get one name when version 2 of the agent names none', async () => {
  const gateway = await SessionGateway.start();
  const agent = await rawAgent(gateway);
  const request = auth(gateway);
  await agent.call(0, { ...request, Extra: { ...request.Extra, Version: '2.3.41' } });
  const bind = (Proto: string, ForwardsTo: string) =>
    agent.call(BIND, { Id: '', Proto, Opts: { Hostname: '' }, ForwardsTo });
  await bind('https', 'localhost:80');
  await bind('http', 'localhost:80');
  await bind('http', 'localhost:81');
  const [secure, plain, other] = gateway.endpoints.list().map(({ host }) => host);
  expect(plain).toBe(secure);
  expect(other).not.toBe(secure);
});

it('the answers say who and what the agent is connected to', async () => {
  const { agent, session, bind } = await connect();
  expect(session.Extra).toMatchObject({
    AgentSessionID: session.ClientId,
    Region: 'self-hosted',
    AccountName: expect.stringMatching(/./),
    PlanName: expect.stringMatching(/./),
    Banner: '',
  });
  expect(await agent.call(SERVER_INFO, {})).toEqual({ Region: expect.stringMatching(/./) });
  const bound = await bind('https', { Domain: 'a.localhost' });
  expect(bound.Extra).toMatchObject({ TunnelID: expect.stringMatching(/^tn_[0-9A-Za-z]{27}$/) });
});

describe('an update', () => {
  async function online() {
    const connected = await connect();
    const bound = await connected.bind('https', { Domain: 'a.localhost' }, { Name: 'cam', Description: 'gate' });
    const [endpoint] = connected.gateway.endpoints.list();
    const TunnelId = (bound.Extra as { TunnelID: string }).TunnelID;
    const patch = (changes: object) => connected.agent.call(PATCH_TUNNEL, { TunnelId, ...changes });
    return { ...connected, bound, endpoint, patch };
  }

  it('changes what it names: name, description, metadata, policy', async () => {
    const { endpoint, patch, gateway } = await online();
    expect(endpoint).toMatchObject({ name: 'cam', description: 'gate', metadata: '' });
    const before = endpoint?.policy;
    expect(await patch({ Name: 'door', Metadata: 'm' })).toEqual({});
    expect(endpoint).toMatchObject({ name: 'door', description: 'gate', metadata: 'm', policy: before });
    for (const type of ['gateway-sign-in', 'deny']) {
      const TrafficPolicy = JSON.stringify({ on_http_request: [{ actions: [{ type }] }] });
      expect(await patch({ TrafficPolicy })).toEqual({});
      expect(endpoint?.policy).not.toBe(before);
      expect([...gateway.endpoints.online.withPeople]).toEqual(type === 'deny' ? [] : [endpoint]);
    }
  });

  it.each([
    [{ TrafficPolicy: '{"on_http_request":[{"actions":[{"type":"nonsense"}]}]}' }, 9026],
    [{ PoolingEnabled: true }, 301],
    [{ TunnelId: 'tn_other', Name: 'x' }, 301],
  ])('%j is refused and changes nothing', async (changes, code) => {
    const { endpoint, patch } = await online();
    const before = endpoint?.policy;
    expect(await patch({ Name: 'door', ...changes })).toEqual(refused(code));
    expect(endpoint).toMatchObject({ name: 'cam', policy: before });
  });

  it('of an endpoint that was unbound is refused', async () => {
    const { agent, bound, patch } = await online();
    await agent.call(UNBIND, { Id: bound.Id });
    expect(await patch({ Name: 'x' })).toEqual(refused(301));
  });
});
