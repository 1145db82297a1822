import { expect, it, onTestFinished } from 'vitest';
import type { EndpointRequest } from '../../../../src/agent/connectors/connector.ts';
import { policyText } from '../../../../src/agent/connectors/native/requests.ts';
import { openLink } from '../../../../src/agent/open-link.ts';
import { NO_PROXIES } from '../../../../src/lib/network/proxy-rules.ts';
import { systemClock } from '../../../../src/lib/time/clock.ts';
import type { ConnectorKind } from '../../../../src/settings/agent-settings.ts';
import type { TrafficPolicyDocument } from '../../../../src/traffic-policy/document.ts';
import { upstreamAt } from '../../../support/connectors.ts';
import { startRecordingGateway } from '../../../support/recording-gateway.ts';
import { silentLog } from '../../../support/silent-log.ts';

const rule = { actions: [{ type: 'deny' as const, config: { status_code: 418 } }] };
const bound = { upstream: upstreamAt('http://127.0.0.1:9'), forwardsTo: 'localhost:9' };
const requests: EndpointRequest[] = [
  { ...bound, protocol: 'http' },
  { ...bound, protocol: 'http', domain: 'a.test', trafficPolicy: { on_http_request: [rule] } },
  { ...bound, protocol: 'http', domain: 'b.test', trafficPolicy: { on_http_request: [] } },
  { ...bound, protocol: 'tcp' },
  { ...bound, protocol: 'tcp', domain: 'a.test:20000' },
  { ...bound, protocol: 'tls', domain: 'c.test' },
  { ...bound, protocol: 'http', options: { binding: 'public', app_protocol: 'http2', metadata: 'one' } },
  { ...bound, protocol: 'http', options: { binding: 'public', app_protocol: 'http2', metadata: 'two' } },
  { ...bound, protocol: 'http', options: { app_protocol: 'http1', proxy_proto: '1' } },
  { ...bound, protocol: 'tls', domain: 'd.internal', options: { binding: 'internal', pooling: true } },
  { ...bound, protocol: 'tls', domain: 'e.internal', options: { binding: 'internal', pooling: true } },
  { ...bound, protocol: 'tcp', options: { proxy_proto: '2', pooling: true, metadata: '' } },
  { ...bound, protocol: 'http' },
];

/** What a connector sends to start a session, and to bind and unbind the requests. */
async function recorded(kind: ConnectorKind): Promise<string[]> {
  const gateway = await startRecordingGateway();
  const link = await openLink(kind, {
    authtoken: () => 'the-authtoken',
    onCommand: () => {},
    serverAddr: gateway.address,
    authorities: { pem: gateway.cert },
    proxies: NO_PROXIES,
    version: '1.2.3',
    log: silentLog,
    clock: systemClock,
  });
  onTestFinished(() => link.close());
  const session = await link.connect();
  for (const request of requests) await session.open(request);
  await session.close();
  const sent = gateway.requests.filter(([type]) => type !== 2);
  return sent.map(([type, body]) => `${type} ${JSON.stringify(comparable(body), null, 1)}`);
}

/** The native connector leaves out what is empty. */
function saysNothing(member: unknown): boolean {
  if (typeof member !== 'object' || member === null) return !member;
  return Object.values(member).every(saysNothing);
}

/** Without what names the connector or the process. Members are sorted: the SDK's have no fixed order. */
function comparable(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(comparable);
  if (typeof value !== 'object' || value === null) return value;
  // The SDK knows none of these.
  const own = [
    'StreamWindow',
    'SecondLink',
    'Links',
    'RequestFeed',
    'Nodes',
    'RefusedAnswers',
    'PolicyWarnings',
    'UpstreamStates',
    'TimesAway',
    'HeartbeatPace',
    'ShortAnswers',
    // It says what two others do.
    'UserAgent',
  ];
  const known = Object.fromEntries(Object.entries(value).filter(([key]) => !own.includes(key)));
  const said = Object.entries(known).filter(
    ([key, member]) => !key.endsWith('UnsupportedError') && !saysNothing(member),
  );
  const members = said.map(([key, member]) => {
    if (['HeartbeatInterval', 'HeartbeatTolerance'].includes(key)) return [key, typeof member] as const;
    if (key === 'Metadata') return [key, String(member).replace(/[0-9a-f-]{36}/, 'uuid')] as const;
    return [key, comparable(member)] as const;
  });
  return Object.fromEntries(members.sort(([one], [other]) => (one < other ? -1 : 1)));
}

it('the native connector sends what the SDK sends', async () => {
  const native = await recorded('native');
  expect(native).toHaveLength(1 + requests.length);
  expect(native).toEqual(await recorded('sdk'));
});

it('the native connector leaves out of a policy what says nothing, and nothing of its actions', () => {
  const config = { status_code: 418, expressions: [], headers: {} };
  const policy = {
    on_http_request: [],
    on_http_response: [{ name: 'Teapot', expressions: [], actions: [{ type: 'deny', config }] }, rule],
  } as TrafficPolicyDocument;
  expect(JSON.parse(policyText(policy) ?? '')).toEqual({
    on_http_response: [{ name: 'Teapot', actions: [{ type: 'deny', config }] }, rule],
  });
  expect(policyText({ on_http_request: [] })).toBeNull();
});
