import { afterAll, beforeAll, expect, it } from 'vitest';
import { type ManagementServer, startManagementServer } from '../../support/management-server.ts';

let server: ManagementServer;
beforeAll(async () => {
  server = await startManagementServer();
});
afterAll(() => server.close());

const URL = 'https://events.example.com/hook?token=hidden';
const unknown = `ed_${'0'.repeat(27)}`;

it.each([
  ['/event_destinations', {}, 215, /^target/],
  ['/event_destinations', { target: {} }, 5100, /must have one of webhook, file, syslog, email/],
  ['/event_destinations', { target: { kinesis: { stream_arn: 'a' } } }, 5100, /kinesis: not a target of this gateway/],
  ['/event_destinations', { target: { datadog: {}, webhook: { url: URL } } }, 5100, /datadog/],
  ['/event_destinations', { target: { webhook: { url: 'http://events.example.com' } } }, 5100, /https/],
  ['/event_destinations', { target: { webhook: { url: 'https://a:b@events.example.com' } } }, 5100, /credentials/],
  ['/event_destinations', { target: { webhook: { url: URL, signing_secret: 'short' } } }, 5100, /whsec_/],
  ['/event_destinations', { target: { file: { name: '../gateway' } } }, 5100, /no path/],
  ['/event_destinations', { target: { file: { name: '' } } }, 5100, /no path/],
  ['/event_destinations', { target: { syslog: { host: 'a b', port: 514 } } }, 5100, /hostname/],
  ['/event_destinations', { target: { syslog: { host: 'a', port: 514, framing: 'crlf' } } }, 215, /framing/],
  ['/event_destinations', { target: { syslog: { host: 'a', port: 514, ca_pem: 'none' } } }, 1920, /PEM/],
  ['/event_destinations', { target: { file: { name: 'a' }, webhook: { url: URL } } }, 5115, /one member only/],
  ['/event_destinations', { format: 'xml', target: { webhook: { url: URL } } }, 235, /json/],
  ['/event_subscriptions', { sources: [{ type: 'no_such.v0' }] }, 238, /docs\/events\.md/],
  ['/event_subscriptions', { sources: [{ type: '*' }, { type: '*' }] }, 5127, /twice/],
  ['/event_subscriptions', { destination_ids: [unknown] }, 5103, /no event destination/],
  ['/event_subscriptions', { destination_ids: ['esb_1'] }, 227, /ed_/],
])('POST %s refuses %j with ERR_NGROK_%i', async (path, body, code, message) => {
  const { status, body: answer } = await server.call('POST', path, body);
  expect([status, answer.error_code, answer.msg]).toEqual([400, `ERR_NGROK_${code}`, expect.stringMatching(message)]);
});

it('shows a signing secret once, if it made it, and records neither secret nor URL', async () => {
  const made = await server.call('POST', '/event_destinations', { format: '', target: { webhook: { url: URL } } });
  const secret = expect.stringMatching(/^whsec_[A-Za-z0-9+/]{43}=$/);
  expect(made.body).toMatchObject({ format: 'json', target: { webhook: { url: URL, signing_secret: secret } } });
  const path = `/event_destinations/${made.id}`;
  const { signing_secret } = (made.body.target as { webhook: { signing_secret: string } }).webhook;
  const shown = await server.call('GET', path);
  expect(shown.body.target).toMatchObject({ webhook: { url: URL, signing_secret: null } });
  await server.call('PATCH', path, { target: { webhook: { url: URL, signing_secret: `whsec_${'a'.repeat(32)}` } } });
  const { auditLog, eventDestinations } = server.store;
  const recorded = JSON.stringify(auditLog.page(null, 100)) + JSON.stringify(eventDestinations.page(null, 100));
  expect(recorded).toContain('https://events.example.com');
  for (const hidden of [signing_secret, 'token=hidden', 'a'.repeat(32)]) expect(recorded).not.toContain(hidden);
});

it('takes files and syslog servers, keeps their kind, and gives a file to one destination', async () => {
  const create = (target: object) => server.call('POST', '/event_destinations', { target });
  const file = await create({ file: { name: 'audit' } });
  expect(file.body.target).toMatchObject({ webhook: null, file: { name: 'audit' }, syslog: null });
  const syslog = await create({ syslog: { host: 'logs.example.com', port: 6514, transport: 'tls' } });
  expect(syslog.body.target).toMatchObject({ syslog: { host: 'logs.example.com', port: 6514, transport: 'tls' } });
  const update = (id: string, target: object) => server.call('PATCH', `/event_destinations/${id}`, { target });
  const refusals = [
    [await create({ file: { name: 'audit' } }), 5100],
    [await update(syslog.id, { file: { name: 'other' } }), 5108],
  ] as const;
  for (const [answer, code] of refusals)
    expect([answer.status, answer.body.error_code]).toEqual([400, `ERR_NGROK_${code}`]);
  expect((await update(file.id, { file: { name: 'other' } })).body.target).toMatchObject({ file: { name: 'other' } });
});

it('keeps a destination that a subscription names', async () => {
  const { id } = await server.call('POST', '/event_destinations', { target: { webhook: { url: URL } } });
  const subscription = await server.call('POST', '/event_subscriptions', { destination_ids: [id, id] });
  expect(subscription.body.destinations).toMatchObject([{ id }]);
  const refused = await server.call('DELETE', `/event_destinations/${id}`);
  expect([refused.status, refused.body.error_code]).toEqual([400, 'ERR_NGROK_5112']);
  await server.call('PATCH', `/event_subscriptions/${subscription.id}`, { destination_ids: [] });
  expect((await server.call('DELETE', `/event_destinations/${id}`)).status).toBe(204);
});

it('limits how many destinations there are', async () => {
  const create = () => server.call('POST', '/event_destinations', { target: { webhook: { url: URL } } });
  let answer = await create();
  for (let count = 0; count < 20 && answer.status === 201; count++) answer = await create();
  expect([answer.status, answer.body.error_code]).toEqual([400, 'ERR_NGROK_5102']);
  const { database, eventDestinations } = server.store;
  await database.write(() => {
    for (const row of eventDestinations.page(null, 20)) eventDestinations.delete(row.id);
  });
});
