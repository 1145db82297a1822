import fc from 'fast-check';
import { expect, it } from 'vitest';
import { FrameWriter } from '../../src/agent-protocol/frames.ts';
import { StreamType } from '../../src/agent-protocol/messages.ts';
import { auth, rawAgent } from '../gateway/sessions/raw-agent.ts';
import { SessionGateway } from '../gateway/sessions/session-gateway.ts';
import { FUZZ_MS, fuzz } from '../support/fuzz.ts';
import { until } from '../support/until.ts';
import { sendBytes } from './send-bytes.ts';

/** Checks that a new agent is served. */
async function expectWell(gateway: SessionGateway): Promise<void> {
  const agent = await rawAgent(gateway);
  expect((await agent.call(StreamType.auth, auth(gateway))).Error).toBeUndefined();
  const opts = { Domain: 'well.localhost' };
  const bound = await agent.call(StreamType.bind, { Id: 'well', Proto: 'https', Opts: opts });
  expect(bound).toMatchObject({ URL: 'https://well.localhost:8443' });
  expect((await agent.call(StreamType.unbind, { Id: 'well' })).Error).toBeUndefined();
}

const MEMBERS = [
  ...['Version', 'ClientId', 'Extra', 'AuthToken', 'Metadata', 'Cookie', 'HeartbeatInterval', 'LegNumber', 'Id'],
  ...['Proto', 'ForwardsTo', 'ForwardsProto', 'Opts', 'Domain', 'Hostname', 'Subdomain', 'URL', 'Addr', 'Auth'],
  ...['ProxyProto', 'Policy', 'TrafficPolicy', 'MutualTLSAtAgent', 'MutualTLSCA', 'TLSTermination', 'cert', 'key'],
  ...['Compression', 'CircuitBreaker', 'ErrorThreshold', 'IPRestriction', 'AllowCIDRs', 'DenyCIDRs', 'OAuth', 'OIDC'],
  ...[
    'BasicAuth',
    'Credentials',
    'Username',
    'CleartextPassword',
    'RequestHeaders',
    'ResponseHeaders',
    'Add',
    'Remove',
  ],
  ...['WebhookVerification', 'Provider', 'Secret', 'UserAgentFilter', 'Allow', 'Deny', 'Labels', 'Bindings', 'Token'],
  ...['PoolingEnabled', 'HostHeaderRewrite', 'WebsocketTCPConverter', '__proto__', 'constructor', 'toJSON'],
];
const VALUES = [
  ...['https', 'http', 'tcp', 'tls', 'labeled', 'a.localhost', '*.localhost', 'connect.localhost', 'api.localhost', ''],
  ...['a..b', 'x.internal', 'https://a.localhost', 'tcp://localhost:0', '10.0.0.0/8', '::/0', '(', '[a-', '3', '2'],
  ...['{"on_http_request":[]}', '{"inbound":[{"actions":[{"type":"deny"}]}]}', 'on_tcp_connect: [', '${', '\u0000'],
  ...['\ud800', 'LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCg==', 'public', 'internal', 'kubernetes', 'x'.repeat(5_000)],
];
const { value } = fc.letrec<{ value: unknown }>((tie) => ({
  value: fc.oneof(
    { depthSize: 'small', maxDepth: 4 },
    fc.constantFrom<unknown>(...VALUES, null, true, false, 0, -1, 1, 2, 1e308, 2 ** 53),
    fc.array(tie('value'), { maxLength: 3 }),
    fc.dictionary(fc.constantFrom(...MEMBERS), tie('value'), { maxKeys: 5 }),
  ),
}));
const object = fc.dictionary(fc.constantFrom(...MEMBERS), value, { maxKeys: 6 });
/** Biased towards values that pass the first checks. */
const bind = fc.record({
  Id: fc.constantFrom('', 'a', 'b'),
  Proto: fc.constantFrom('https', 'http', 'tls', 'tcp'),
  Opts: object,
  Extra: fc.oneof(fc.constant(undefined), object),
});
const requests = fc.oneof(
  fc.tuple(fc.constant(StreamType.bind), bind),
  fc.tuple(fc.constant(StreamType.bindLabeled), fc.record({ Labels: value, ForwardsTo: value })),
  fc.tuple(fc.constantFrom(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 4711, StreamType.link, StreamType.linkTicket), object),
);

it('any message of an agent succeeds or is rejected with a code, never an internal error', {
  timeout: FUZZ_MS,
}, async () => {
  const gateway = await SessionGateway.start();
  const agent = await rawAgent(gateway);
  await agent.call(StreamType.auth, auth(gateway));
  await fc.assert(
    fc.asyncProperty(requests, async ([type, body]) => {
      const answer = await agent.call(type, body);
      if (answer.Error === undefined) return;
      expect(answer.Error).toMatch(/ERR_NGROK_\d+$/);
      expect(answer.Error).not.toMatch(/ERR_NGROK_741$/);
    }),
    fuzz(400),
  );
  await expectWell(gateway);
});

it('an option that is nested too deeply to be sent back does not crash the gateway', async () => {
  const gateway = await SessionGateway.start();
  const agent = await rawAgent(gateway);
  await agent.call(StreamType.auth, auth(gateway));
  const deep = '['.repeat(50_000) + ']'.repeat(50_000);
  const answer = await agent.callText(StreamType.bind, `{"Id":"deep","Proto":"https","Opts":{"Name":${deep}}}`);
  expect(answer.Error).toMatch(/not a JSON object\n\nERR_NGROK_301$/);
  await expectWell(gateway);
});

/** Streams that exist, and unknown ones. */
const streamId = fc.oneof(fc.integer({ min: 1, max: 12 }), fc.constantFrom(0x7fffffff, 0x7ffffffe));
const payload = fc.oneof(
  fc.uint8Array({ maxLength: 80 }).map((bytes) => Buffer.from(bytes)),
  fc.constantFrom(
    ...[0, 1, 7, 0xffffffff].map((type) =>
      Buffer.from([type >>> 24, (type >>> 16) & 255, (type >>> 8) & 255, type & 255]),
    ),
  ),
  fc
    .constantFrom('{}', '{"Id":', '{"Version":["3"],"Extra":{"AuthToken":"x"}}', '{'.repeat(3_000))
    .map((text) => Buffer.from(text)),
);
const frame = fc.oneof(
  {
    weight: 5,
    arbitrary: fc.record({
      kind: fc.constant('data' as const),
      id: streamId,
      payload,
      syn: fc.boolean(),
      fin: fc.boolean(),
    }),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('reset' as const), id: streamId }) },
  {
    weight: 1,
    arbitrary: fc.record({ kind: fc.constant('credit' as const), id: streamId, by: fc.constantFrom(1, 0x7fffffff) }),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('bytes' as const), payload }) },
);
const conversation = fc.array(frame, { minLength: 1, maxLength: 25 }).map((frames) => {
  const pieces: Buffer[] = [];
  const writer = new FrameWriter();
  for (const one of frames) {
    if (one.kind === 'bytes') pieces.push(one.payload);
    else if (one.kind === 'reset') writer.reset(one.id, 6);
    else if (one.kind === 'credit') writer.windowIncrement(one.id, one.by);
    else writer.data(one.id, [one.payload], one.payload.length, one);
    pieces.push(...writer.take());
  }
  return Buffer.concat(pieces);
});

it('arbitrary bytes after the handshake affect no other session', { timeout: FUZZ_MS }, async () => {
  const gateway = await SessionGateway.start();
  const bytes = fc.oneof(
    conversation,
    fc.uint8Array({ maxLength: 300 }).map((some) => Buffer.from(some)),
  );
  await fc.assert(
    fc.asyncProperty(bytes, async (some) => {
      await sendBytes(gateway.port, some, { ca: gateway.caPem });
    }),
    fuzz(80),
  );
  expect(gateway.endpoints.list()).toEqual([]);
  await expectWell(gateway);
});

it('arbitrary bytes on the two connections of a session end at most these', { timeout: FUZZ_MS }, async () => {
  const gateway = await SessionGateway.start();
  const { ClientId, Extra, ...request } = auth(gateway);
  await fc.assert(
    fc.asyncProperty(conversation, conversation, fc.boolean(), async (one, other, isFirst) => {
      const [first, second] = [await rawAgent(gateway), await rawAgent(gateway)];
      const announced = { ...Extra, StreamWindow: 1_048_576, SecondLink: true };
      const { ClientId: SessionId } = await first.call(StreamType.auth, { ...request, ClientId, Extra: announced });
      await first.call(StreamType.bind, { Id: 'x', Proto: 'https', Opts: { Domain: 'x.localhost' } });
      const { Ticket } = await first.call(StreamType.linkTicket, {});
      const joined = await second.call(StreamType.link, { AuthToken: Extra.AuthToken, SessionId, Ticket });
      expect(joined).toEqual({});
      for (let count = 0; count < 4; count++) {
        const client = { address: '203.0.113.7:4567', protocol: 'https' } as const;
        gateway.endpoints.lookup('https', 'x.localhost')?.openStream(client).write('hello');
      }
      first.peer.socket.write(one);
      second.peer.socket.write(other);
      const [going, staying] = isFirst ? [first, second] : [second, first];
      going.peer.socket.end();
      await until(() => going.peer.socket.destroyed, 'the end of the connection');
      staying.peer.socket.destroy();
      await until(() => [...gateway.server.sessions].length === 0, 'the end of the session');
    }),
    fuzz(25),
  );
  expect(gateway.endpoints.list()).toEqual([]);
  await expectWell(gateway);
});
