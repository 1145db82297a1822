import 'reflect-metadata';
import { createHash, createHmac, createSign, generateKeyPairSync, webcrypto } from 'node:crypto';
import * as x509 from '@peculiar/x509';
import { beforeAll, describe, expect, it } from 'vitest';
import { compilePolicy } from '../../../src/traffic-policy/engine.ts';
import type { PolicyPorts } from '../../../src/traffic-policy/ports.ts';
import { type FakeRequest, requestFor } from '../fake-request.ts';
import { RecordedTime } from '../recorded-time.ts';

const NOW = Date.UTC(2026, 5, 1);
const SECONDS = String(NOW / 1000);
const SECRET = 'It is a secret';
const SVIX_SECRET = `whsec_${Buffer.from('svix key').toString('base64')}`;
const BODY = '{"action":"opened"}';

const hmac = (algorithm: string, key: string, text: string) => createHmac(algorithm, key).update(text);

function policyText(provider: string, secret?: string, more: object = {}): string {
  const config = { provider, ...(secret !== undefined && { secret }), ...more };
  return JSON.stringify({ on_http_request: [{ actions: [{ type: 'verify-webhook', config }] }] });
}

async function ask(text: string, fake: FakeRequest, ports: Partial<PolicyPorts> = {}) {
  const policy = compilePolicy(text, 'https', { ports: { wallClock: () => NOW, ...ports } });
  return policy.onHttpRequest?.(requestFor({ method: 'POST', ...fake }));
}

/** The headers that a provider sends with a body at a given time. */
type Sign = (body: string, seconds: string) => string[];

const PROVIDERS: [name: string, secret: string, sign: Sign, timed: boolean][] = [
  ['github', SECRET, (body) => ['X-Hub-Signature-256', `sha256=${hmac('sha256', SECRET, body).digest('hex')}`], false],
  [
    'slack',
    SECRET,
    (body, time) => [
      'X-Slack-Request-Timestamp',
      time,
      'X-Slack-Signature',
      `v0=${hmac('sha256', SECRET, `v0:${time}:${body}`).digest('hex')}`,
    ],
    true,
  ],
  [
    'stripe',
    SECRET,
    (body, time) => [
      'Stripe-Signature',
      `t=${time},v1=00ff,v1=${hmac('sha256', SECRET, `${time}.${body}`).digest('hex')},v0=x`,
    ],
    true,
  ],
  ['shopify', SECRET, (body) => ['X-Shopify-Hmac-SHA256', hmac('sha256', SECRET, body).digest('base64')], false],
  [
    'svix',
    SVIX_SECRET,
    (body, time) => {
      const signature = hmac('sha256', 'svix key', `msg_1.${time}.${body}`).digest('base64');
      return ['svix-id', 'msg_1', 'svix-timestamp', time, 'svix-signature', `v1,AAAA v1,${signature}`];
    },
    true,
  ],
];

describe('verify-webhook', () => {
  describe.each(PROVIDERS)('of %s', (provider, secret, sign, timed) => {
    const text = policyText(provider, secret);

    it('admits a webhook that the provider signed', async () => {
      expect(await ask(text, { body: BODY, headers: sign(BODY, SECONDS) })).toBeUndefined();
    });

    it('rejects another body, another secret and a missing signature', async () => {
      const refused = { kind: 'error', status: 403, code: 'ERR_NGROK_3204' };
      expect(await ask(text, { body: `${BODY} `, headers: sign(BODY, SECONDS) })).toMatchObject(refused);
      expect(await ask(policyText(provider, 'another'), { body: BODY, headers: sign(BODY, SECONDS) })).toMatchObject(
        refused,
      );
      expect(await ask(text, { body: BODY })).toMatchObject(refused);
    });

    if (timed)
      it('rejects a signature that is too old or in the future', async () => {
        for (const minutes of [-6, 6]) {
          const time = String(NOW / 1000 + minutes * 60);
          expect(await ask(text, { body: BODY, headers: sign(BODY, time) })).toMatchObject({ status: 403 });
        }
        const recent = String(NOW / 1000 - 240);
        expect(await ask(text, { body: BODY, headers: sign(BODY, recent) })).toBeUndefined();
      });
  });

  it('charges for the check, which follows the wait for the body', async () => {
    const time = new RecordedTime();
    expect(await ask(policyText('gitlab', SECRET), { body: BODY }, { processorTime: time })).toMatchObject({
      status: 403,
    });
    expect(time.runs).toBe(2);
  });

  it("verifies the example in GitHub's documentation", async () => {
    // docs.github.com: "Testing the webhook payload validation"
    const signature = 'sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17';
    const fake = { body: 'Hello, World!', headers: ['X-Hub-Signature-256', signature] };
    expect(await ask(policyText('github', "It's a Secret to Everybody"), fake)).toBeUndefined();
  });

  it("verifies Twilio's signature of a form", async () => {
    const url = 'https://cam.example.com/hook?a=1';
    const signature = hmac('sha1', SECRET, `${url}Body+hiFrom+1To+2`.replaceAll('Body+hi', 'Bodyhi')).digest('base64');
    const headers = ['X-Twilio-Signature', signature, 'Content-Type', 'application/x-www-form-urlencoded'];
    const fake = { target: '/hook?a=1', headers, body: 'To=%2B2&From=%2B1&Body=hi' };
    expect(await ask(policyText('twilio', SECRET), fake)).toBeUndefined();
    expect(await ask(policyText('twilio', SECRET), { ...fake, target: '/hook?a=2' })).toMatchObject({ status: 403 });
    expect(await ask(policyText('twilio', SECRET), { ...fake, body: 'To=%2B3&From=%2B1&Body=hi' })).toMatchObject({
      status: 403,
    });
  });

  it("verifies Twilio's signature of JSON", async () => {
    const target = `/hook?bodySHA256=${createHash('sha256').update(BODY).digest('hex')}`;
    const headers = ['X-Twilio-Signature', hmac('sha1', SECRET, `https://cam.example.com${target}`).digest('base64')];
    expect(await ask(policyText('twilio', SECRET), { target, headers, body: BODY })).toBeUndefined();
    expect(await ask(policyText('twilio', SECRET), { target, headers, body: 'x' })).toMatchObject({ status: 403 });
  });

  it('compares the token of GitLab', async () => {
    const text = policyText('gitlab', SECRET);
    expect(await ask(text, { body: BODY, headers: ['X-Gitlab-Token', SECRET] })).toBeUndefined();
    expect(await ask(text, { body: BODY, headers: ['X-Gitlab-Token', 'x'] })).toMatchObject({ status: 403 });
    expect(await ask(text, { body: BODY })).toMatchObject({ status: 403 });
  });

  it("accepts Svix's signatures under their standard names, but not of another version", async () => {
    const signature = hmac('sha256', 'svix key', `msg_1.${SECONDS}.${BODY}`).digest('base64');
    const headers = (version: string) => [
      ...['webhook-id', 'msg_1', 'webhook-timestamp', SECONDS],
      ...['webhook-signature', `${version},${signature}`],
    ];
    expect(await ask(policyText('svix', SVIX_SECRET), { body: BODY, headers: headers('v1') })).toBeUndefined();
    expect(await ask(policyText('svix', SVIX_SECRET), { body: BODY, headers: headers('v2') })).toMatchObject({
      status: 403,
    });
  });

  it.each<[string, string[]]>([
    ['github', ['X-Hub-Signature-256', `sha512=${hmac('sha256', SECRET, BODY).digest('hex')}`]],
    ['slack', ['X-Slack-Signature', `v0=${hmac('sha256', SECRET, `v0::${BODY}`).digest('hex')}`]],
    ['stripe', ['Stripe-Signature', `v1=${hmac('sha256', SECRET, `undefined.${BODY}`).digest('hex')}`]],
    ['stripe', ['Stripe-Signature', `t=${SECONDS},v0=${hmac('sha256', SECRET, `${SECONDS}.${BODY}`).digest('hex')}`]],
    ['stripe', ['Stripe-Signature', `t=-1,v1=${hmac('sha256', SECRET, `-1.${BODY}`).digest('hex')}`]],
    ['shopify', ['X-Shopify-Hmac-SHA256', '']],
  ])('rejects a signature of %s with a part that is missing or of another kind: %j', async (provider, headers) => {
    expect(await ask(policyText(provider, SECRET), { body: BODY, headers })).toMatchObject({ status: 403 });
  });

  it('admits every request without enforcement, and records the result', async () => {
    const tell = ['$', '{json.encode(actions.ngrok.verify_webhook)}'].join('');
    const actions = [
      { type: 'verify-webhook', config: { provider: 'github', secret: SECRET, enforce: false } },
      { type: 'custom-response', config: { body: tell } },
    ];
    const outcome = await ask(JSON.stringify({ on_http_request: [{ actions }] }), { body: BODY });
    const recorded = (of: typeof outcome) => (of?.kind === 'answer' ? JSON.parse(of.body.toString()) : null);
    expect(recorded(outcome)).toMatchObject({ verified: false, error: { code: 'ERR_NGROK_3204' } });
    const headers = ['X-Hub-Signature-256', `sha256=${hmac('sha256', SECRET, BODY).digest('hex')}`];
    const genuine = await ask(JSON.stringify({ on_http_request: [{ actions }] }), { body: BODY, headers });
    expect(recorded(genuine)).toEqual({ verified: true, error: { code: '', message: '' } });
  });

  it('rejects bodies of more than 1 MiB', async () => {
    const body = 'x'.repeat(1024 * 1024 + 1);
    const headers = [
      'X-Hub-Signature-256',
      `sha256=${hmac('sha256', SECRET, body).digest('hex')}`,
      'Content-Length',
      String(body.length),
    ];
    expect(await ask(policyText('github', SECRET), { body, headers })).toMatchObject({
      message: expect.stringMatching(/too long/),
    });
  });

  describe('of SNS', () => {
    const { privateKey, publicKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
    let certificate: string;

    beforeAll(async () => {
      const algorithm = { name: 'RSASSA-PKCS1-v1_5', hash: 'SHA-256' };
      const [pkcs8, spki] = [
        privateKey.export({ type: 'pkcs8', format: 'der' }),
        publicKey.export({ type: 'spki', format: 'der' }),
      ];
      const keys = {
        privateKey: await webcrypto.subtle.importKey('pkcs8', new Uint8Array(pkcs8), algorithm, true, ['sign']),
        publicKey: await webcrypto.subtle.importKey('spki', new Uint8Array(spki), algorithm, true, ['verify']),
      };
      const made = await x509.X509CertificateGenerator.createSelfSigned({
        name: 'CN=sns.amazonaws.com',
        keys,
        signingAlgorithm: algorithm,
      });
      certificate = made.toString('pem');
    });

    function message(more: Record<string, string> = {}): Record<string, string> {
      const fields: Record<string, string> = {
        ...{ Type: 'Notification', MessageId: '1', TopicArn: 'arn:aws:sns:eu:1:t', Message: 'hi', Subject: 'door' },
        ...{ Timestamp: new Date(NOW).toISOString(), SignatureVersion: '2' },
        SigningCertURL: `https://sns.eu-west-1.amazonaws.com/SimpleNotificationService-${Math.random()}.pem`,
        ...more,
      };
      const signed = ['Message', 'MessageId', 'Subject', 'Timestamp', 'TopicArn', 'Type'];
      const text = signed.map((name) => `${name}\n${fields[name]}\n`).join('');
      const signature = createSign(fields.SignatureVersion === '1' ? 'RSA-SHA1' : 'RSA-SHA256').update(text);
      return { ...fields, Signature: signature.sign(privateKey, 'base64') };
    }

    const send = (fields: object) =>
      ask(policyText('sns'), { body: JSON.stringify(fields) }, { fetch: async () => Buffer.from(certificate) });

    it.each(['1', '2'])('admits a message that Amazon signed, version %s', async (SignatureVersion) => {
      expect(await send(message({ SignatureVersion }))).toBeUndefined();
    });

    it('rejects messages that are changed, old or signed with a foreign key', async () => {
      expect(await send({ ...message(), Message: 'ho' })).toMatchObject({ status: 403 });
      expect(await send(message({ Timestamp: '2026-05-01T00:00:00Z' }))).toMatchObject({ status: 403 });
      expect(await send(message({ SigningCertURL: 'https://sns.evil.com/x.pem' }))).toMatchObject({ status: 403 });
      expect(await send(message({ SigningCertURL: 'https://sns.eu.amazonaws.com.evil.com/x.pem' }))).toMatchObject({
        status: 403,
      });
      expect(await send({ hello: 'world' })).toMatchObject({ status: 403 });
    });

    it('rejects a message when the certificate cannot be fetched', async () => {
      const fetch = () => Promise.reject(new Error('timed out'));
      const outcome = await ask(policyText('sns'), { body: JSON.stringify(message()) }, { fetch });
      expect(outcome).toMatchObject({ status: 403, message: expect.stringMatching(/cannot fetch the certificate/) });
    });
  });
});
