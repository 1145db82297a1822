import { expect, it } from 'vitest';
import { type Absence, EndpointRegistry, LostAddresses } from '../../../src/gateway/endpoints/endpoint-registry.ts';
import { EDGE_TERMINATION, type EndpointProtocol } from '../../../src/gateway/endpoints/online-endpoint.ts';
import { BoundEndpoint, LabeledTunnel, type ListenerOwner } from '../../../src/gateway/sessions/agent-listener.ts';
import { compilePolicy } from '../../../src/traffic-policy/engine.ts';

const owner = ownerWith('cr_1', null);

/** An agent's session with an authtoken. */
function ownerWith(id: string, ownerId: string | null, hasRules = false): ListenerOwner {
  const gate = { hasRoom: () => true };
  const credential = { id, ownerId, hasRules: () => hasRules };
  return { credential, gate, hasDataFor: () => true } as unknown as ListenerOwner;
}

function endpoint(protocol: EndpointProtocol, host: string, { port = 443, internal = false } = {}): BoundEndpoint {
  return new BoundEndpoint(
    {
      ...{ protocol, host, port, internal, ...common('ep_1') },
      url: `${protocol}://${host}:${port}`,
      pooled: true,
      policy: compilePolicy(null, protocol),
      tls: protocol === 'https' ? EDGE_TERMINATION : null,
      proxyProtocol: 0,
      websocketTcp: false,
      frame: { before: {}, after: {} },
      name: '',
      description: '',
    },
    owner,
  );
}

function common(id: string) {
  return { id, publicId: id, forwardsTo: '', metadata: '', http2Upstream: false };
}

function registry(...online: BoundEndpoint[]): EndpointRegistry {
  const endpoints = new EndpointRegistry();
  for (const one of online) endpoints.add(one);
  return endpoints;
}

it('lookup prefers the exact name, then the most specific wildcard of the scheme', () => {
  const [wide, deep, exact] = [
    endpoint('https', '*.site'),
    endpoint('https', '*.a.site'),
    endpoint('https', 'x.a.site'),
  ];
  const plain = endpoint('http', 'x.a.site');
  const endpoints = registry(wide, deep, exact, plain);
  expect(endpoints.lookup('https', 'x.a.site')).toBe(exact);
  expect(endpoints.lookup('https', 'y.a.site')).toBe(deep);
  expect(endpoints.lookup('https', 'a.site')).toBe(wide);
  expect(endpoints.lookup('https', 'deep.y.b.site')).toBe(wide);
  expect(endpoints.lookup('https', 'site')).toBeUndefined();
  expect(endpoints.lookup('http', 'x.a.site')).toBe(plain);
  expect(endpoints.lookup('http', 'y.a.site')).toBeUndefined();
});

it('lookup prefers the more specific name of https and tls, which share a port', () => {
  const [wide, exact] = [endpoint('tls', '*.site'), endpoint('https', 'web.site')];
  const endpoints = registry(wide, exact);
  expect(endpoints.lookup('tls', 'web.site')).toBeUndefined();
  expect(endpoints.lookup('https', 'web.site')).toBe(exact);
  expect(endpoints.lookup('tls', 'raw.site')).toBe(wide);
  expect(endpoints.peek('https', 'raw.site')).toBeUndefined();
  expect(endpoints.holders({ protocol: 'https', host: '*.site', port: 443, internal: false })).toEqual([wide]);
});

it('lookup rotates pooled endpoints and skips those that went offline', () => {
  const pool = [1, 2, 3].map(() => endpoint('tcp', 'gateway', { port: 20_000 }));
  const endpoints = registry(...pool);
  const turns = (count: number) => Array.from({ length: count }, () => endpoints.onTcpPort(20_000));
  expect(turns(4)).toEqual([pool[0], pool[1], pool[2], pool[0]]);
  endpoints.remove(pool[1] as BoundEndpoint);
  expect(new Set(turns(4))).toEqual(new Set([pool[0], pool[2]]));
  for (const one of pool) endpoints.remove(one);
  expect(endpoints.onTcpPort(20_000)).toBeUndefined();
  expect(endpoints.list()).toEqual([]);
});

it('lookup never finds internal endpoints by public name', () => {
  const inside = endpoint('https', 'core.internal', { internal: true });
  const endpoints = registry(inside);
  expect(endpoints.lookup('https', 'core.internal')).toBeUndefined();
  expect(endpoints.internal('https', 'core.internal', 443)).toBe(inside);
  expect(endpoints.internal('https', 'core.internal', 8443)).toBeUndefined();
  expect(endpoints.internal('http', 'core.internal', 443)).toBeUndefined();
});

it('withLabels rotates the matching tunnels, independently of other selectors', () => {
  const tunnel = (id: string, labels: Record<string, string>) => new LabeledTunnel({ ...common(id), labels }, owner);
  const [one, two, other] = [
    tunnel('tn_1', { app: 'cam', site: 'a' }),
    tunnel('tn_2', { app: 'cam', site: 'b' }),
    tunnel('tn_3', { app: 'web' }),
  ];
  const endpoints = new EndpointRegistry();
  for (const each of [one, two, other]) endpoints.addLabeled(each);
  const turns = ['cam', 'web', 'cam', 'web', 'cam'].map((app) => endpoints.withLabels({ app }));
  expect(turns).toEqual([one, other, two, other, one]);
  expect(endpoints.withLabels({ app: 'cam', site: 'b' })).toBe(two);
  expect(endpoints.withLabels({ app: 'web', site: 'b' })).toBeUndefined();
  expect(endpoints.withLabels({})).toBeUndefined();
  expect(endpoints.withLabels({ toString: 'x' })).toBeUndefined();
  endpoints.removeLabeled(two);
  expect(endpoints.withLabels({ site: 'b' })).toBeUndefined();
});

it('withLabels never mixes the tunnels of several owners: rules come first, then the longest online', () => {
  const labels = { app: 'cam' };
  const tunnel = (id: string, of: ListenerOwner) => new LabeledTunnel({ ...common(id), labels }, of);
  const [first, colleague] = [tunnel('tn_1', ownerWith('cr_1', 'bot_1')), tunnel('tn_2', ownerWith('cr_2', 'bot_1'))];
  const stranger = tunnel('tn_3', ownerWith('cr_3', null));
  const entitled = tunnel('tn_4', ownerWith('cr_4', 'bot_4', true));
  const endpoints = new EndpointRegistry();
  const served = () => new Set([1, 2, 3, 4].map(() => endpoints.withLabels(labels)));
  for (const each of [first, stranger, colleague]) endpoints.addLabeled(each);
  expect(served()).toEqual(new Set([first, colleague]));
  endpoints.addLabeled(entitled);
  expect(served()).toEqual(new Set([entitled]));
  for (const each of [first, colleague, entitled]) endpoints.removeLabeled(each);
  expect(served()).toEqual(new Set([stranger]));
});

it('the registry emits added and removed once for each endpoint', () => {
  const events: string[] = [];
  const endpoints = new EndpointRegistry();
  endpoints.on('added', ({ host }) => events.push(`+${host}`)).on('removed', ({ host }) => events.push(`-${host}`));
  const one = endpoint('http', 'one.site');
  endpoints.add(one);
  endpoints.remove(one);
  endpoints.remove(one);
  expect(events).toEqual(['+one.site', '-one.site']);
});

let now = 0;
const note = (lost: LostAddresses, place: string, absence: Absence = 'lost') =>
  lost.note({ place, credentialId: 'cr_1', needsHandshake: false }, absence);

it('expects an agent for 10 s, and one that has unbound its endpoint for one', () => {
  const lost = new LostAddresses(() => now);
  note(lost, 'tls a.localhost');
  note(lost, 'tls b.localhost', 'leaving');
  now += 999;
  expect(lost.all()).toHaveLength(2);
  now += 1;
  expect(lost.at('tls b.localhost')).toBeUndefined();
  now += 8_999;
  expect(lost.at('tls a.localhost')).toBeDefined();
  now += 1;
  expect(lost.at('tls a.localhost')).toBeUndefined();
});

it('after a restart, expects agents while others come back, for five minutes at most', () => {
  const lost = new LostAddresses(() => now);
  const began = now;
  for (const place of ['last', ...Array(40).keys()]) note(lost, `tls ${place}.localhost`, 'restarted');
  for (let place = 0; now < began + 300_000; place++, now += 9_000) {
    expect(lost.at('tls last.localhost')).toBeDefined();
    lost.found(`tls ${place}.localhost`);
  }
  expect(lost.at('tls last.localhost')).toBeUndefined();
});

it('after a restart, one that comes back late says nothing of the others, and what others say of it shortens nothing', () => {
  const lost = new LostAddresses(() => now);
  for (const place of ['early', 'late', 'never']) note(lost, `tls ${place}.localhost`, 'restarted');
  now += 9_000;
  note(lost, 'tls never.localhost', 'lost');
  lost.found('tls early.localhost');
  now += 9_999;
  expect(lost.at('tls never.localhost')).toBeDefined();
  now += 1;
  lost.found('tls late.localhost');
  expect(lost.at('tls never.localhost')).toBeUndefined();
});

it('finds the most specific name that covers a host, of clients of one port', () => {
  const lost = new LostAddresses();
  note(lost, 'tls *.localhost');
  note(lost, 'tls cam.localhost');
  note(lost, 'http web.localhost');
  expect(lost.covering('tls', 'cam.localhost')?.place).toBe('tls cam.localhost');
  expect(lost.covering('tls', 'web.localhost')?.place).toBe('tls *.localhost');
  expect(lost.covering('http', 'cam.localhost')).toBeUndefined();
});

it('says when an address is online again, once', () => {
  const lost = new LostAddresses();
  const found: string[] = [];
  lost.on('found', (place) => found.push(place));
  note(lost, 'tls cam.localhost');
  lost.found('tls other.localhost');
  lost.found('tls cam.localhost');
  lost.found('tls cam.localhost');
  expect(found).toEqual(['tls cam.localhost']);
});
