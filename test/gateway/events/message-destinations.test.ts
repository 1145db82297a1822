import { createServer, type Server } from 'node:net';
import { afterEach, beforeAll, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { EventDelivery } from '../../../src/gateway/events/event-delivery.ts';
import type { Message } from '../../../src/gateway/events/message.ts';
import { cidrList } from '../../../src/lib/network/ip-address.ts';
import { type Clock, systemClock } from '../../../src/lib/time/clock.ts';
import { type OutboundRequest, publicAddress, publicRequest } from '../../../src/traffic-policy/public-request.ts';
import { issueCertificate } from '../../support/certificates.ts';
import { type MailServer, smtpAnswer, startMailServer } from '../../support/mail-server.ts';
import { type ManagementServer, startManagementServer } from '../../support/management-server.ts';
import { NO_NTFY, startNtfyProgram, startNtfyRecord } from '../../support/ntfy-server.ts';
import { unless } from '../../support/requirements.ts';
import { selfSigned } from '../../support/self-signed.ts';
import { until } from '../../support/until.ts';

const MESSAGE: Message = {
  kind: 'begun',
  severity: 'warning',
  title: '2 devices of <quarry> are offline: its internet connection',
  lines: ['cam-1 & cam-2', 'since 2026-11-30T03:12:00Z'],
  remedy: 'check the *router*',
  incident: 'evt_1',
  ended: [],
  links: [{ text: 'Acknowledge', url: 'https://api.gateway.test/messages/x?a=1&b=2' }],
};

let server: ManagementServer;
let delivery: EventDelivery;
let posted: OutboundRequest[];
let answer: { status: number; body: string };
let networks: string[];
/** Milliseconds that a deadline takes, rather than what it says. */
let deadlineMs: number | null;

beforeEach(async () => {
  [posted, answer, networks, deadlineMs] = [[], { status: 200, body: 'ok' }, ['127.0.0.0/8'], null];
  const clock: Clock = {
    ...systemClock,
    random: () => 0,
    after: (ms, work) => systemClock.after(deadlineMs ?? ms, work),
  };
  server = await startManagementServer({
    wallClock: () => Date.parse('2026-11-30T03:18:00Z'),
    testDestination: (destination) => delivery.test(destination, 'gateway.test'),
  });
  const log = { info: () => {}, warn: () => {} } as never;
  delivery = new EventDelivery(
    { store: server.store, clock, log },
    {
      folder: server.folder,
      request: async (outbound, signal) => {
        posted.push(outbound);
        if (outbound.url.hostname === '127.0.0.1') return publicRequest(outbound, signal, cidrList(networks));
        return { status: answer.status, headers: [], body: Buffer.from(answer.body), address: '' };
      },
      resolve: (host) => publicAddress(host, cidrList(networks)),
      isSender: () => true,
    },
  );
});
afterEach(async () => {
  await delivery.stop();
  await server.close();
});

async function destination(target: object): Promise<string> {
  const { id, body } = await server.call('POST', '/event_destinations', { target });
  expect(body.msg).toBeUndefined();
  return id;
}

/** What came of a test message, as the API says. */
async function tested(target: object): Promise<{ accepted: boolean; answer: string }> {
  const { status, body } = await server.call('POST', `/event_destinations/${await destination(target)}/test`, {});
  expect(status).toBe(200);
  return body as { accepted: boolean; answer: string };
}

async function mailServer(...given: Parameters<typeof startMailServer>): Promise<MailServer> {
  const started = await startMailServer(...given);
  onTestFinished(() => started.close());
  return started;
}

describe('email', () => {
  let ca: Awaited<ReturnType<typeof issueCertificate>>;
  let pair: { cert: string; key: string };
  beforeAll(async () => {
    ca = await issueCertificate({ subject: 'CN=ca', ca: true });
    const issued = await issueCertificate({ subject: 'CN=mail', names: ['localhost'], issuer: ca });
    pair = { cert: issued.certificatePem, key: issued.privateKeyPem };
  });
  const email = (port: number, more: object = {}) => ({
    email: {
      ...{ to: ['ops@example.com'], from: 'gateway@example.com', host: 'localhost', port, ca_pem: ca.certificatePem },
      ...more,
    },
  });
  const withLogin = {
    authOptional: false,
    onAuth: (
      { username, password }: { username?: string | undefined; password?: string | null | undefined },
      _session: unknown,
      done: (error: Error | null, ok?: { user: number }) => void,
    ) => (username === 'gw' && password === 'right' ? done(null, { user: 1 }) : done(smtpAnswer(535, 'no such login'))),
  };

  it.each([
    ['starttls', false],
    ['tls', true],
  ])('is sent by %s with a login, as text and HTML, and the answer is said in words', async (security, secure) => {
    const mail = await mailServer({ ...pair, secure, ...withLogin });
    const login = { security, username: 'gw', password: 'right' };
    const result = await tested(email(mail.port, login));
    expect(result).toEqual({ accepted: true, answer: 'localhost answered 250 2.6.0 OK: queued as 4XYZ' });
    expect(mail.mails[0]).toMatch(/^Subject: Test message of the gateway gateway\.test\r$/m);
    expect(mail.mails[0]).toMatch(/^Auto-Submitted: auto-generated\r$/m);
    expect(mail.mails[0]).toContain('Content-Type: text/plain');
    expect(mail.mails[0]).toContain('Content-Type: text/html');
    expect(await tested(email(mail.port, { ...login, password: 'wrong' }))).toEqual({
      accepted: false,
      answer: 'localhost refuses the login: 535 5.7.8 no such login',
    });
    const shown = JSON.stringify((await server.call('GET', '/event_destinations')).body);
    expect(shown).toContain('ops@example.com');
    expect(shown + JSON.stringify(server.store.auditLog.page(null, 100))).not.toMatch(/right|wrong/);
  });

  it('is sent again with the same Message-ID to a server that greylists, until it takes it', async () => {
    const mail = await mailServer({ ...pair }, (attempt) => (attempt < 3 ? smtpAnswer(451, 'greylisted') : null));
    const id = await destination(email(mail.port));
    delivery.start();
    await server.store.database.write(() =>
      server.store.eventDeliveries.addMessages([{ destinationId: id, content: () => MESSAGE }]),
    );
    await until(() => mail.mails.length === 1, 'the mail');
    const [first = '', ...more] = mail.attempts;
    expect(first).toMatch(/^evt_\w{27}@example\.com$/);
    expect(more).toEqual([first, first]);
    expect(mail.mails[0]).toMatch(/^In-Reply-To: <evt_1@example\.com>\r$/m);
    await until(() => server.store.eventDeliveries.get(id)?.delivered === first.split('@')[0], 'the record');
  });

  it('says why not: a bad certificate, no TLS, a server that hangs, a recipient that is unknown', async () => {
    const bad = await mailServer({ ...(await selfSigned('CN=localhost')) });
    expect((await tested(email(bad.port))).answer).toMatch(/^localhost: .*self-signed certificate/);
    const other = await mailServer({ ...pair });
    expect((await tested(email(other.port, { host: '127.0.0.1' }))).answer).toMatch(/127\.0\.0\.1: .*altnames|IP/);
    const plain = await mailServer({ disabledCommands: ['STARTTLS'] });
    expect(await tested(email(plain.port))).toMatchObject({ accepted: false });
    expect(plain.mails).toEqual([]);
    expect(await tested(email(plain.port, { security: 'none' }))).toMatchObject({ accepted: true });
    const strict = await mailServer({
      ...pair,
      onRcptTo: (_address, _session, done) => done(smtpAnswer(550, 'no such user')),
    });
    expect((await tested(email(strict.port))).answer).toMatch(/^localhost answered 550 .*no such user$/);

    const hanging: Server = createServer().listen(0, '127.0.0.1');
    onTestFinished(() => void hanging.close());
    await until(() => hanging.listening, 'the server');
    deadlineMs = 30;
    const { port } = hanging.address() as { port: number };
    expect(await tested(email(port))).toEqual({ accepted: false, answer: 'the delivery did not finish within 60 s' });
  });

  it('goes to private networks only where policies may, too', async () => {
    const mail = await mailServer({ ...pair });
    networks = [];
    expect((await tested(email(mail.port))).answer).toBe('localhost is not on the public internet');
    expect(mail.attempts).toEqual([]);
  });
});

describe('chat programs', () => {
  const KEY = 'k'.repeat(32);
  const kinds: [kind: string, target: object, url: string, answer: string][] = [
    [
      'ntfy',
      { url: 'https://ntfy.sh/my-topic', token: 'tk_x' },
      'https://ntfy.sh/',
      '{"id":"sPs71M8A2T","event":"message"}',
    ],
    ['slack', { url: 'https://hooks.slack.com/services/T/B/x' }, 'https://hooks.slack.com/services/T/B/x', 'ok'],
    ['teams', { url: 'https://prod.example.com/workflows/x' }, 'https://prod.example.com/workflows/x', ''],
    ['discord', { url: 'https://discord.com/api/webhooks/1/x' }, 'https://discord.com/api/webhooks/1/x', ''],
    [
      'telegram',
      { bot_token: '1:xyz', chat_id: '-100' },
      'https://api.telegram.org/bot1:xyz/sendMessage',
      '{"ok":true}',
    ],
    [
      'pagerduty',
      { routing_key: KEY, region: 'eu' },
      'https://events.eu.pagerduty.com/v2/enqueue',
      '{"status":"success"}',
    ],
  ];

  it.each(kinds)('%s gets messages in its form, with an id that stays', async (kind, target, url, body) => {
    answer = { status: 200, body };
    const id = await destination({ [kind]: target });
    delivery.start();
    const [sent] = await server.store.database.write(() =>
      server.store.eventDeliveries.addMessages([{ destinationId: id, content: () => MESSAGE }]),
    );
    await until(() => server.store.eventDeliveries.get(id)?.delivered === sent, 'the record');
    const [{ url: to, headers, body: json } = posted[0] as OutboundRequest] = posted;
    expect(to.href).toBe(url);
    expect(headers.join('\n')).toContain(`idempotency-key\n${sent}`);
    expect(JSON.parse(String(json))).toMatchSnapshot();
    if (kind === 'ntfy') expect(headers.join('\n')).toContain('authorization\nBearer tk_x');
    expect((await server.call('POST', `/event_destinations/${id}/test`)).body).toEqual({
      accepted: true,
      answer: `the server responded with status 200${body === '' ? '' : `: ${body}`}`,
    });
  });

  it('are told apart by what they answer, and keep secrets that an update leaves out', async () => {
    const id = await destination({ telegram: { bot_token: '1:xyz', chat_id: '-100' } });
    answer = { status: 400, body: '{"ok":false,"description":"Bad Request: chat not found"}' };
    expect((await server.call('POST', `/event_destinations/${id}/test`)).body).toEqual({
      accepted: false,
      answer: 'the server responded with status 400: {"ok":false,"description":"Bad Request: chat not found"}',
    });
    const { body } = await server.call('PATCH', `/event_destinations/${id}`, {
      target: { telegram: { chat_id: '7' } },
    });
    expect(body.target).toMatchObject({ telegram: { chat_id: '7', address: 'chat 7' } });
    expect(JSON.stringify(body)).not.toContain('xyz');
    await server.call('POST', `/event_destinations/${id}/test`);
    expect(posted.at(-1)?.url.href).toBe('https://api.telegram.org/bot1:xyz/sendMessage');
    const missing = await server.call('POST', '/event_destinations', { target: { slack: {} } });
    expect([missing.status, missing.body.msg]).toEqual([400, 'target.slack.url: is missing']);
  });

  it('discord gets no more than it takes, also of text that is all markup', async () => {
    const id = await destination({ discord: { url: 'https://discord.com/api/webhooks/1/x' } });
    delivery.start();
    const lines = Array.from({ length: 20 }, () => '_'.repeat(500));
    await server.store.database.write(() =>
      server.store.eventDeliveries.addMessages([
        { destinationId: id, content: () => ({ ...MESSAGE, title: '_'.repeat(200), lines: ['x', ...lines] }) },
      ]),
    );
    await until(() => posted.length === 1, 'the post');
    const { embeds } = JSON.parse(String(posted[0]?.body)) as { embeds: { title: string; description: string }[] };
    const [{ title, description } = { title: '', description: '' }] = embeds;
    expect(title).toMatch(/^(\\_){100,128}$/);
    expect(description).toMatch(/^x\n(\\_|\n){1000,}\n\n\[Acknowledge\]\(.*\)$/);
    expect(description.length).toBeLessThanOrEqual(4_096);
  });

  it('that have lost their webhook fail, and lose no message', async () => {
    const id = await destination({ slack: { url: 'https://hooks.slack.com/services/x' } });
    answer = { status: 404, body: 'no_service' };
    delivery.start();
    await server.store.database.write(() =>
      server.store.eventDeliveries.addMessages([{ destinationId: id, content: () => MESSAGE }]),
    );
    const state = () => server.store.eventDeliveries.get(id);
    await until(() => state()?.failing_since != null, 'the failure');
    expect(state()?.error).toBe('the server responded with status 404: no_service');
    answer = { status: 200, body: 'ok' };
    await until(() => state()?.failing_since === null, 'the delivery');
    expect(server.store.refusedEvents.countOf(id)).toBe(0);
  });

  it('end what they were told of when it is over, and a test at once', async () => {
    const id = await destination({ pagerduty: { routing_key: KEY } });
    delivery.start();
    const add = (kind: Message['kind']) =>
      server.store.database.write(() =>
        server.store.eventDeliveries.addMessages([
          { destinationId: id, content: () => ({ ...MESSAGE, kind, ended: kind === 'over' ? ['evt_1'] : [] }) },
        ]),
      );
    await add('begun');
    await add('over');
    await until(() => posted.length === 2, 'both posts');
    await server.call('POST', `/event_destinations/${id}/test`);
    const sent = posted.map(({ body }) => JSON.parse(String(body)) as { event_action: string; dedup_key: string });
    expect(sent.map(({ event_action }) => event_action)).toEqual(['trigger', 'resolve', 'trigger', 'resolve']);
    expect(sent.slice(0, 2).map(({ dedup_key }) => dedup_key)).toEqual(['evt_1', 'evt_1']);
  });
});

describe.each([
  ['as recorded', startNtfyRecord, null],
  ['itself', startNtfyProgram, NO_NTFY],
])('ntfy %s', (_, start, missing) => {
  const started = async () => {
    const ntfy = await start();
    onTestFinished(() => ntfy.close());
    return ntfy;
  };
  const add = (id: string, message: Message) =>
    server.store.database.write(() =>
      server.store.eventDeliveries.addMessages([{ destinationId: id, content: () => message }]),
    );

  it('shows what has begun, what is over and a test, and takes messages again after it was away', {
    ...unless(missing),
  }, async () => {
    const ntfy = await started();
    const id = await destination({ ntfy: { url: ntfy.topic(), token: ntfy.token } });
    delivery.start();
    const { body } = await server.call('POST', `/event_destinations/${id}/test`);
    expect(body).toEqual({
      accepted: true,
      answer: expect.stringMatching(/^the server responded with status 200: \{"id":"\w{12}"/),
    });
    await add(id, MESSAGE);
    await until(async () => (await ntfy.received()).length === 2, 'the first message');
    const back = await ntfy.away();
    expect((await server.call('POST', `/event_destinations/${id}/test`)).body).toMatchObject({
      accepted: false,
      answer: expect.stringContaining('ECONNREFUSED'),
    });
    await add(id, {
      ...MESSAGE,
      kind: 'over',
      severity: 'resolved',
      title: 'over',
      lines: [],
      remedy: null,
      links: [],
    });
    await until(() => server.store.eventDeliveries.get(id)?.failing_since != null, 'the failure');
    await back();
    await until(() => server.store.eventDeliveries.get(id)?.failing_since === null, 'the delivery');
    const { text: label, url } = MESSAGE.links[0] as Message['links'][number];
    const begun = {
      title: MESSAGE.title,
      message: 'cam-1 & cam-2\nsince 2026-11-30T03:12:00Z\nWhat to do: check the *router*',
    };
    expect(await ntfy.received()).toEqual(
      [
        { title: 'Test message of the gateway gateway.test', tags: ['information_source'] },
        {
          ...begun,
          priority: 4,
          tags: ['yellow_circle'],
          click: url,
          actions: [expect.objectContaining({ label, url })],
        },
        { title: 'over', message: 'over', tags: ['green_circle'] },
      ].map((each) => expect.objectContaining(each)),
    );
  });

  it('says why it takes nothing: another token, another topic', unless(missing), async () => {
    const { topic, token } = await started();
    const answers: string[] = [];
    for (const target of [{ url: topic(), token: 'tk_wrong' }, { url: topic() }, { url: topic('other'), token }])
      answers.push((await tested({ ntfy: target })).answer);
    expect(answers).toEqual(
      [
        [401, 40101, 'unauthorized'],
        [403, 40301, 'forbidden'],
        [403, 40301, 'forbidden'],
      ].map(([http, code, error]) =>
        expect.stringContaining(
          `status ${http}: {"code":${code},"http":${http},"error":"${error}","link":"https://ntfy.sh/docs/publish/`,
        ),
      ),
    );
    networks = [];
    expect((await tested({ ntfy: { url: topic(), token } })).answer).toMatch(/not on the public internet/);
  });

  it.each([['Ж'], ['"']])('takes the longest message that there can be, of %s', unless(missing), async (letter) => {
    const ntfy = await started();
    const id = await destination({ ntfy: { url: ntfy.topic(), token: ntfy.token } });
    delivery.start();
    const lines = Array.from({ length: 20 }, () => letter.repeat(500));
    const [sent] = await add(id, { ...MESSAGE, title: letter.repeat(200), lines });
    await until(() => server.store.eventDeliveries.get(id)?.delivered === sent, 'an answer');
    expect(server.store.refusedEvents.countOf(id)).toBe(0);
    const [{ message = '' } = {}] = await ntfy.received();
    expect(message).toMatch(new RegExp(`^[${letter}\n]{1000,}$`));
  });
});

it('sends a message to its destination alone, whatever others are subscribed to', async () => {
  const [one, other] = [
    await destination({ slack: { url: 'https://hooks.slack.com/services/one' } }),
    await destination({ slack: { url: 'https://hooks.slack.com/services/other' } }),
  ];
  delivery.start();
  await server.call('POST', '/event_subscriptions', { sources: [{ type: '*' }], destination_ids: [other] });
  await server.store.database.write(() =>
    server.store.eventDeliveries.addMessages([{ destinationId: one, content: () => MESSAGE }]),
  );
  const isSent = (end: string) => posted.some(({ url }) => url.href.endsWith(end));
  await until(() => isSent('one') && isSent('other'), 'both posts');
  const titles = posted.map(({ url, body }) => [url.pathname.split('/').at(-1), String(body).includes('quarry')]);
  expect(titles).toEqual(
    expect.arrayContaining([
      ['one', true],
      ['other', false],
    ]),
  );
  expect(titles).not.toContainEqual(['other', true]);
});
