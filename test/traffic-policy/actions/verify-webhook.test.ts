import 'reflect-metadata';
import { createHash, createHmac, createSign, generateKeyPairSync, randomBytes, webcrypto } from 'node:crypto';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { gzipSync } from 'node:zlib';
import * as x509 from '@peculiar/x509';
import { beforeAll, describe, expect, it } from 'vitest';
import { systemClock } from '../../../src/lib/time/clock.ts';
import { compilePolicy } from '../../../src/traffic-policy/engine.ts';
import type { PolicyPorts, PolicyTrouble } from '../../../src/traffic-policy/ports.ts';
import { SUPPORTED_PROVIDERS } from '../../../src/traffic-policy/webhooks/providers.ts';
import { until } from '../../support/until.ts';
import { connectionFrom, type FakeRequest, requestFor } from '../fake-request.ts';
import { RecordedTime } from '../recorded-time.ts';
import { WEBHOOK_VECTORS } from './webhook-vectors.ts';

const NOW = Date.UTC(2026, 5, 1);
const SECONDS = String(NOW / 1000);
const SECRET = 'It is a secret';
const SVIX_SECRET = `whsec_${Buffer.from('svix key').toString('base64')}`;
const BODY = '{"action":"opened"}';

/** Another key of the kind that a provider needs. */
const OTHER_KEYS: Readonly<Record<string, string>> = {
  sendgrid:
    'MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEqTxd43gyp8IOEto2LdIfjRQrIbsd4SXZkLW6jDutdhXSJCWHw8REntlo7aNDthvj+y7GjUuFDb/R1NGe1OPzpA==',
};

const hmac = (algorithm: string, key: string, text: string) => createHmac(algorithm, key).update(text);

function policyText(provider: string, secret?: string, more: object = {}): string {
  const config = { provider, ...(secret !== undefined && { secret }), ...more };
  return JSON.stringify({ on_http_request: [{ actions: [{ type: 'verify-webhook', config }] }] });
}

async function ask(text: string, fake: FakeRequest, ports: Partial<PolicyPorts> = {}) {
  const policy = compilePolicy(text, 'https', { ports: { wallClock: () => NOW, ...ports } });
  return policy.onHttpRequest?.(requestFor({ method: 'POST', ...fake }));
}

const REJECTED = { kind: 'error', status: 403, code: 'ERR_NGROK_3204' };

describe('verify-webhook', () => {
  describe.each(WEBHOOK_VECTORS.map((vector, at) => ({ ...vector, at: Date.parse(vector.at), number: at })))(
    'of $provider, vector $number ($source)',
    ({ provider, secret, headers, body, at, host = 'cam.example.com', target = '/hook', ...vector }) => {
      const askAt = (ms: number, more: FakeRequest & { secret?: string } = {}) =>
        ask(
          policyText(provider, more.secret ?? secret),
          { host, target, body, headers: Object.entries(headers).flat(), ...more },
          { wallClock: () => ms },
        );

      it('is admitted as it is', async () => {
        expect(await askAt(at)).toBeUndefined();
      });

      it('is rejected with another secret, without headers, and with another body', async () => {
        const rejected = provider === 'xero' ? { kind: 'answer', status: 401, body: Buffer.alloc(0) } : REJECTED;
        expect(await askAt(at, { secret: OTHER_KEYS[provider] ?? 'another' })).toMatchObject(rejected);
        if (provider !== 'mailgun') expect(await askAt(at, { headers: [] })).toMatchObject(rejected);
        if (!vector.leavesBodyUnsigned) expect(await askAt(at, { body: `${body} ` })).toMatchObject(rejected);
      });

      it('is rejected days before and after its time if it has one', async () => {
        for (const days of [-2, 2]) {
          const outcome = await askAt(at + days * 24 * 60 * 60 * 1000);
          if (vector.isTimed) expect(outcome).toMatchObject(REJECTED);
          else expect(outcome).toBeUndefined();
        }
      });
    },
  );

  it('has a vector for every provider that it supports', () => {
    const covered = new Set(WEBHOOK_VECTORS.map(({ provider }) => provider));
    // The messages of SNS are signed with a certificate, see below.
    expect([...covered, 'sns'].sort()).toEqual([...SUPPORTED_PROVIDERS].sort());
  });

  it.each([
    ['orbit', /Orbit has ended/],
    ['vmware', /basic-auth/],
    ['vmware_workspace', /basic-auth/],
    ['nobody', /is not a known provider of webhooks; supported: aftership, .*zoom/],
  ])('is refused for %s, with a reason', (provider, reason) => {
    expect(() => compilePolicy(policyText(provider, SECRET), 'https')).toThrow(reason);
  });

  it.each(['slack', 'stripe', 'svix'])('admits a webhook of %s for five minutes', async (provider) => {
    const vector = WEBHOOK_VECTORS.find((each) => each.provider === provider);
    const { secret = '', headers = {}, body = '', at = '' } = vector ?? {};
    const fake = { body, headers: Object.entries(headers).flat() };
    for (const [minutes, admitted] of [
      [-6, false],
      [-4, true],
      [4, true],
      [6, false],
    ] as const) {
      const outcome = await ask(policyText(provider, secret), fake, {
        wallClock: () => Date.parse(at) + minutes * 60_000,
      });
      expect(outcome === undefined, `${minutes}`).toBe(admitted);
    }
  });

  describe('answers the challenge', () => {
    const bodyOf = (outcome: Awaited<ReturnType<typeof ask>>) =>
      outcome?.kind === 'answer' ? [outcome.status, outcome.body.toString()] : outcome;

    it('of X, but signs nothing that could be an event', async () => {
      const target = (crcToken: string) => `/hook?crc_token=${encodeURIComponent(crcToken)}&nonce=a`;
      const asked = (crcToken: string, method = 'GET') =>
        ask(policyText('twitter', SECRET), { method, target: target(crcToken) });
      const proof = hmac('sha256', SECRET, 'MDM2OTFk+/_-=').digest('base64');
      expect(bodyOf(await asked('MDM2OTFk+/_-='))).toEqual([200, `{"response_token":"sha256=${proof}"}`]);
      expect(await asked('MDM2OTFk', 'POST')).toMatchObject(REJECTED);
      for (const event of ['{"a":1}', '[1]', '', 'a'.repeat(257)]) expect(await asked(event)).toMatchObject(REJECTED);
    });

    it('of Worldline', async () => {
      const headers = ['X-GCS-Webhooks-Endpoint-Verification', 'a-b.c'];
      expect(bodyOf(await ask(policyText('worldline', SECRET), { method: 'GET', headers }))).toEqual([200, 'a-b.c']);
      expect(await ask(policyText('worldline', SECRET), { headers })).toMatchObject(REJECTED);
      const html = ['X-GCS-Webhooks-Endpoint-Verification', '<b>'];
      expect(await ask(policyText('worldline', SECRET), { method: 'GET', headers: html })).toMatchObject(REJECTED);
    });

    it('of Xero, rightly and wrongly signed', async () => {
      const body = '{"events":[],"lastEventSequence":0,"firstEventSequence":0,"entropy":"S0m3r4Nd0mt3xt"}';
      const asked = (key: string) =>
        ask(policyText('xero', SECRET), {
          body,
          headers: ['x-xero-signature', hmac('sha256', key, body).digest('base64')],
        });
      expect(bodyOf(await asked(SECRET))).toEqual([200, '']);
      expect(bodyOf(await asked('another'))).toEqual([401, '']);
    });

    it('of Zoom, if Zoom has signed it', async () => {
      const body = '{"event":"endpoint.url_validation","payload":{"plainToken":"qgg8vlvZRS6UYooatFL8Aw"}}';
      const asked = (key: string) => {
        const signature = `v0=${hmac('sha256', key, `v0:${SECONDS}:${body}`).digest('hex')}`;
        const headers = ['x-zm-request-timestamp', SECONDS, 'x-zm-signature', signature];
        return ask(policyText('zoom', SECRET), { body, headers });
      };
      const encryptedToken = hmac('sha256', SECRET, 'qgg8vlvZRS6UYooatFL8Aw').digest('hex');
      const answer = { plainToken: 'qgg8vlvZRS6UYooatFL8Aw', encryptedToken };
      expect(bodyOf(await asked(SECRET))).toEqual([200, JSON.stringify(answer)]);
      expect(await asked('another')).toMatchObject(REJECTED);
    });
  });

  it.each([
    ['in a long body', `{"data":"${'a'.repeat(200_000)}","webhookTimestamp":${NOW}}`, true],
    ['beside a text that pretends to be one', `{"data":"\\"webhookTimestamp\\":1","webhookTimestamp" : ${NOW}}`, true],
    ['an hour ago', `{"webhookTimestamp":${NOW - 3_600_000}}`, false],
    ['in a text', `{"data":"\\"webhookTimestamp\\":${NOW}"}`, false],
    ['beside an older one', `{"data":{"webhookTimestamp":${NOW}},"webhookTimestamp":${NOW - 3_600_000}}`, false],
    ['missing', BODY, false],
  ])('finds the time of a webhook of Linear: %s', async (_, body, admitted) => {
    const headers = ['linear-signature', hmac('sha256', SECRET, body).digest('hex')];
    const outcome = await ask(policyText('linear', SECRET), { body, headers });
    if (admitted) expect(outcome).toBeUndefined();
    else expect(outcome).toMatchObject(REJECTED);
  });

  it("verifies Airship's signature of a compressed body", async () => {
    const signature = hmac('sha256', SECRET, `${SECONDS}:${BODY}`).digest('hex');
    const headers = ['X-UA-TIMESTAMP', SECONDS, 'X-UA-SIGNATURE', signature, 'Content-Encoding', 'gzip'];
    expect(await ask(policyText('airship', SECRET), { body: gzipSync(BODY), headers })).toBeUndefined();
    expect(await ask(policyText('airship', SECRET), { body: gzipSync(`${BODY} `), headers })).toMatchObject(REJECTED);
    const bomb = gzipSync(Buffer.alloc(8 * 1024 * 1024));
    expect(await ask(policyText('airship', SECRET), { body: bomb, headers })).toMatchObject(REJECTED);
  });

  it.each([
    ['twilio', 'X-Twilio-Signature'],
    ['mailchimp', 'X-Mandrill-Signature'],
  ])('does not take the signature of a URL for that of a body: %s', async (provider, name) => {
    const signature = hmac('sha1', SECRET, 'https://cam.example.com/hook').digest('base64');
    const send = (body: string, type: string) =>
      ask(policyText(provider, SECRET), { target: '/hook', body, headers: [name, signature, 'Content-Type', type] });
    expect(await send('', 'text/plain')).toBeUndefined();
    expect(await send('{}', 'application/json')).toMatchObject(REJECTED);
    expect(await send('&'.repeat(1001), 'application/x-www-form-urlencoded')).toMatchObject(REJECTED);
  });

  it('charges for the check, which follows the wait for the body', async () => {
    const time = new RecordedTime();
    expect(await ask(policyText('gitlab', SECRET), { body: BODY }, { processorTime: time })).toMatchObject({
      status: 403,
    });
    expect(time.runs).toBe(2);
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

  it("rejects a secret of SendGrid's that is a key of another kind", async () => {
    const { publicKey } = generateKeyPairSync('ec', { namedCurve: 'sect571k1' });
    const secret = publicKey.export({ type: 'spki', format: 'der' }).toString('base64');
    const names = ['x-twilio-email-event-webhook-signature', 'x-twilio-email-event-webhook-timestamp'];
    const troubles: PolicyTrouble[] = [];
    const onTrouble = (trouble: PolicyTrouble) => troubles.push(trouble);
    const headers = [names[0] ?? '', 'AAAA', names[1] ?? '', SECONDS];
    expect(await ask(policyText('sendgrid', secret), { body: BODY, headers }, { onTrouble })).toMatchObject(REJECTED);
    expect(troubles).toMatchObject([{ message: expect.stringMatching(/has a key of an unknown kind; use RSA/) }]);
  });

  describe('of SNS', () => {
    function certificateUrl(host = 'sns.eu-west-1.amazonaws.com'): string {
      return `https://${host}/SimpleNotificationService-${randomBytes(16).toString('hex')}.pem`;
    }

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
        SigningCertURL: certificateUrl(),
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

    it.each([
      'sns.us-east-1.amazonaws.com',
      'sns.us-gov-west-1.amazonaws.com',
      'sns.ap-southeast-5.amazonaws.com',
      'sns.cn-northwest-1.amazonaws.com.cn',
    ])('fetches the certificate at %s', async (host) => {
      expect(await send(message({ SigningCertURL: certificateUrl(host) }))).toBeUndefined();
    });

    const PEM = certificateUrl().split('/').at(-1);
    const AMAZON = 'https://sns.eu-west-1.amazonaws.com';

    it.each([
      // A bucket of S3 can have any name.
      `https://sns.s3.amazonaws.com/${PEM}`,
      `https://sns.s3-us-west-2.amazonaws.com/${PEM}`,
      `https://sns.s3-accelerate.amazonaws.com/${PEM}`,
      `https://sns.s3.us-west-2.amazonaws.com/${PEM}`,
      `https://sns.elb.amazonaws.com/${PEM}`,
      `https://sns.evil.com/${PEM}`,
      `https://sns.eu-west-1.amazonaws.com.evil.com/${PEM}`,
      `https://sns.eu-west-1.amazonaws.com.cn/${PEM}`,
      `https://sns.cn-north-1.amazonaws.com/${PEM}`,
      `https://a.sns.eu-west-1.amazonaws.com/${PEM}`,
      `https://snsXeu-west-1.amazonaws.com/${PEM}`,
      `${AMAZON}:8443/${PEM}`,
      `${AMAZON.replace('https', 'http')}/${PEM}`,
      `https://me@sns.eu-west-1.amazonaws.com/${PEM}`,
      `${AMAZON}/a/${PEM}`,
      `${AMAZON}/${PEM}?a=-----BEGIN`,
      `${AMAZON}/?Action=a&b=/${PEM}`,
      `${AMAZON}/${PEM}#a`,
      `${AMAZON}/a.pem`,
      `${AMAZON}/${PEM}\n`,
      ` ${AMAZON}/${PEM}`,
    ])('does not fetch a certificate at %j', async (SigningCertURL) => {
      const fetched: string[] = [];
      const fetch = async (url: string) => {
        fetched.push(url);
        return Buffer.from(certificate);
      };
      const body = JSON.stringify(message({ SigningCertURL }));
      expect(await ask(policyText('sns'), { body }, { fetch })).toMatchObject(REJECTED);
      expect(fetched).toEqual([]);
    });

    it('rejects messages that are changed, old or signed with a foreign key', async () => {
      expect(await send({ ...message(), Message: 'ho' })).toMatchObject({ status: 403 });
      expect(await send(message({ Timestamp: '2026-05-01T00:00:00Z' }))).toMatchObject({ status: 403 });
      expect(await send({ hello: 'world' })).toMatchObject({ status: 403 });
    });

    it('rejects a message when the key of the certificate is unusual', async () => {
      const keys = await webcrypto.subtle.generateKey(
        { name: 'RSASSA-PKCS1-v1_5', hash: 'SHA-256', modulusLength: 1024, publicExponent: new Uint8Array([1, 0, 1]) },
        true,
        ['sign', 'verify'],
      );
      const made = await x509.X509CertificateGenerator.createSelfSigned({ name: 'CN=sns.amazonaws.com', keys });
      const fetch = async () => Buffer.from(made.toString('pem'));
      const outcome = await ask(policyText('sns'), { body: JSON.stringify(message()) }, { fetch });
      expect(outcome).toMatchObject({ status: 403, message: expect.stringMatching(/cannot fetch the certificate/) });
    });

    /** An endpoint that is sent messages by several clients, while no certificate arrives before `answer` is called. */
    function endpoint() {
      const pending: (() => void)[] = [];
      const answers: { document: string | null } = { document: certificate };
      const time = new RecordedTime();
      const clock = { ...systemClock, now: () => clock.ms, ms: 0 };
      const fetch = (): Promise<Buffer> =>
        new Promise((resolve, reject) => {
          pending.push(() => {
            if (answers.document === null) reject(new Error('not found'));
            else resolve(Buffer.from(answers.document));
          });
        });
      const ports = { wallClock: () => NOW, clock, fetch, processorTime: time };
      const policy = compilePolicy(policyText('sns'), 'https', { ports });
      const sends = (fields: object, clientIp: string) => {
        const fake = { method: 'POST', body: JSON.stringify(fields), connection: connectionFrom(clientIp) };
        return Promise.resolve(policy.onHttpRequest?.(requestFor(fake)));
      };
      const answer = () => {
        for (const each of pending.splice(0)) each();
      };
      return { sends, pending, answer, answers, time, clock };
    }

    it('fetches few certificates at a time, one for many messages, and charges for each', async () => {
      const { sends, pending, answer, time } = endpoint();
      const outcomes = Array.from({ length: 100 }, (_, at) => sends(message(), `203.0.${at}.7`));
      let rejected = 0;
      for (const each of outcomes) each.then(() => (rejected += 1));
      await until(() => rejected === 96, 'rejections');
      expect(pending).toHaveLength(4);
      answer();
      const admitted = (await Promise.all(outcomes)).filter((outcome) => outcome === undefined);
      expect(admitted).toHaveLength(4);
      expect(pending).toHaveLength(0);
      expect(time.spentMs).toBeGreaterThanOrEqual(8);

      const SigningCertURL = certificateUrl();
      const same = Array.from({ length: 100 }, (_, at) => sends(message({ SigningCertURL }), `203.0.${at}.7`));
      await until(() => pending.length > 0, 'a fetch');
      expect(pending).toHaveLength(1);
      answer();
      expect(await Promise.all(same)).toEqual(Array(100).fill(undefined));
    });

    it('fetches three certificates for a client network, and one more a minute later', async () => {
      const { sends, pending, answer, clock } = endpoint();
      const outcomes: ReturnType<typeof sends>[] = [];
      for (let times = 0; times < 5; times++) {
        outcomes.push(sends(message(), `198.51.100.9`));
        await nextTurn();
        answer();
      }
      const admitted = () => Promise.all(outcomes.map(async (outcome) => (await outcome) === undefined));
      expect(await admitted()).toEqual([true, true, true, false, false]);
      const other = sends(message(), '192.0.2.1');
      await until(() => pending.length > 0, 'a fetch for another network');
      answer();
      expect(await other).toBeUndefined();
      clock.ms += 60_000;
      const later = sends(message(), '198.51.100.9');
      await until(() => pending.length > 0, 'a later fetch');
      answer();
      expect(await later).toBeUndefined();
    });

    it('does not fetch a certificate again for a minute after that failed', async () => {
      const { sends, pending, answer, answers, clock } = endpoint();
      const SigningCertURL = certificateUrl();
      const from = (clientIp: string) => sends(message({ SigningCertURL }), clientIp);
      answers.document = null;
      const first = from('192.0.2.1');
      await until(() => pending.length > 0, 'a fetch');
      answer();
      expect(await first).toMatchObject(REJECTED);
      answers.document = certificate;
      expect(await from('192.0.2.2')).toMatchObject(REJECTED);
      expect(pending).toHaveLength(0);
      clock.ms += 60_000;
      const later = from('192.0.2.3');
      await until(() => pending.length > 0, 'a second fetch');
      answer();
      expect(await later).toBeUndefined();
    });

    it('rejects a message when the certificate cannot be fetched', async () => {
      const fetch = () => Promise.reject(new Error('timed out'));
      const outcome = await ask(policyText('sns'), { body: JSON.stringify(message()) }, { fetch });
      expect(outcome).toMatchObject({ status: 403, message: expect.stringMatching(/cannot fetch the certificate/) });
    });
  });
});
