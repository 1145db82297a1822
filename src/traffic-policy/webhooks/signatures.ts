import { createHash, createPublicKey, verify as verifySignature } from 'node:crypto';
import { gunzipSync } from 'node:zlib';
import { messageOf } from '../../lib/errors.ts';
import { publicKeyProblem } from '../../lib/tls/usual-keys.ts';
import {
  asMembers,
  FORM,
  fieldsOf,
  formParameters,
  formText,
  hmac,
  isEqual,
  isRecent,
  isSameText,
  jsonMembers,
  NO_SIGNATURE,
  scalarText,
  signedBy,
  TOO_OLD,
  type Verify,
  verdict,
  type Webhook,
  WRONG_SIGNATURE,
} from './webhook.ts';

/** Providers that a scheme does not describe, each with the documentation that this follows. */

const MAX_UNPACKED = 1024 * 1024;

/** support.airship.com: "Implementing a signature hash"; the JSON is signed, not its compressed form. */
export const airship: Verify = signedBy({
  headers: ['x-ua-signature'],
  encoding: 'hex',
  time: { header: 'x-ua-timestamp' },
  signed: (webhook, time) => [`${time}:`, unpacked(webhook)],
});

function unpacked({ body, header }: Webhook): Buffer {
  if (header('content-encoding') !== 'gzip') return body;
  try {
    return gunzipSync(body, { maxOutputLength: MAX_UNPACKED });
  } catch {
    return body; // not compressed, or too long: the signature does not match
  }
}

const buildkiteSignature = signedBy({
  headers: ['x-buildkite-signature'],
  field: 'signature',
  encoding: 'hex',
  time: { field: 'timestamp' },
  signed: ({ body }, time) => [`${time}.`, body],
});

/** buildkite.com/docs: "Webhooks"; a signature, or the token itself. */
export const buildkite: Verify = (webhook) =>
  webhook.header('x-buildkite-signature') === '' ? token('x-buildkite-token')(webhook) : buildkiteSignature(webhook);

/** A header with the secret itself. */
export function token(name: string): Verify {
  return ({ header, secret }) => {
    const value = header(name);
    return value === '' ? NO_SIGNATURE : verdict(isSameText(value, secret));
  };
}

const CONTENTFUL_TIME = 'x-contentful-timestamp';
const CONTENTFUL_NAMES = 'x-contentful-signed-headers';

/** contentful.com/developers/docs: "Request verification"; method, path, some headers and the body. */
export const contentful: Verify = signedBy({
  headers: ['x-contentful-signature'],
  encoding: 'hex',
  time: { header: CONTENTFUL_TIME },
  timeFormat: 'milliseconds',
  signed: (webhook) => {
    const { method, url, body, header } = webhook;
    const listed = header(CONTENTFUL_NAMES).toLowerCase().split(',', 50);
    const names = [...new Set([...listed, CONTENTFUL_NAMES, CONTENTFUL_TIME])].sort();
    const headers = names.filter((name) => header(name) !== '').map((name) => `${name}:${header(name)}`);
    const [path = '', query = ''] = pathAndQuery(url).split('?');
    const target = encodeURI(query === '' ? path : `${path}?${encodeURIComponent(query)}`);
    return [`${method}\n${target}\n${headers.join(';')}\n`, body];
  },
});

function pathAndQuery(url: string): string {
  return url.slice(originOf(url).length);
}

function originOf(url: string): string {
  return /^[a-z]+:\/\/[^/?#]*/i.exec(url)?.[0] ?? '';
}

/** hygraph.com: "Introducing signed webhooks"; the body stands as a text in the signed JSON. */
export const graphcms: Verify = signedBy({
  headers: ['gcms-signature'],
  field: 'sign',
  encoding: 'base64',
  time: { field: 't' },
  timeFormat: 'milliseconds',
  signed: ({ body, header }, time) => {
    const [environment = ''] = fieldsOf(header('gcms-signature'), 'env');
    return [JSON.stringify({ Body: body.toString(), EnvironmentName: environment, TimeStamp: Number(time) })];
  },
});

const hubspotThree = signedBy({
  headers: ['x-hubspot-signature-v3'],
  encoding: 'base64',
  time: { header: 'x-hubspot-request-timestamp' },
  timeFormat: 'milliseconds',
  signed: ({ method, url, body }, time) => [method + hubspotUrl(url), body, time],
});

/** developers.hubspot.com: "Validating requests from HubSpot"; versions 1 and 2 are hashes that begin with the secret. */
export const hubspot: Verify = (webhook) => {
  const { header, method, url, body, secret } = webhook;
  if (header('x-hubspot-signature-v3') !== '') return hubspotThree(webhook);
  const signature = header('x-hubspot-signature');
  const version = header('x-hubspot-signature-version');
  if (signature === '' || !/^v[12]$/.test(version)) return NO_SIGNATURE;
  const hash = createHash('sha256').update(secret);
  if (version === 'v2') hash.update(method + url);
  return verdict(isEqual(Buffer.from(signature, 'hex'), hash.update(body).digest()));
};

/** HubSpot signs the URL with these characters decoded: `:/?@!$'()*,;`. */
function hubspotUrl(url: string): string {
  return url.replace(/%(?:3A|2F|3F|40|21|24|27|28|29|2A|2C|3B)/gi, decodeURIComponent);
}

const linearSignature = signedBy({ headers: ['linear-signature'], encoding: 'hex' });

const LINEAR_TOLERANCE_S = 60;

/** Within a text of JSON, a backslash precedes one of its quotes. */
const LINEAR_TIME = /(?<!\\)"webhookTimestamp"[ \t\r\n]*:[ \t\r\n]*(\d{1,15})(?!\d)/g;

/** linear.app/developers: "Webhooks"; the signed body, which may be too long to parse, has the time. */
export const linear: Verify = async (webhook) => {
  const problem = await linearSignature(webhook);
  if (problem !== null) return problem;
  const [first, ...others] = webhook.body.toString().matchAll(LINEAR_TIME);
  const time = first?.[1] ?? '';
  // With several, it is not known which one is Linear's.
  const isKnown = others.every(([, other]) => other === time);
  return isKnown && isRecent(time, webhook, 'milliseconds', LINEAR_TOLERANCE_S) ? null : TOO_OLD;
};

/** documentation.mailgun.com: "Securing webhooks"; time and token are signed, the event is not. */
export const mailgun: Verify = (webhook) => {
  const fields =
    webhook.contentType === FORM
      ? Object.fromEntries(formParameters(webhook) ?? [])
      : asMembers(jsonMembers(webhook.body).signature);
  const { timestamp, token: nonce, signature } = fields;
  if (typeof nonce !== 'string' || typeof signature !== 'string') return NO_SIGNATURE;
  const time = scalarText(timestamp);
  if (!isRecent(time, webhook)) return TOO_OLD;
  return verdict(isEqual(Buffer.from(signature, 'hex'), hmac('sha256', webhook.secret, time, nonce)));
};

/** plivo.com/docs: "Signature validation"; messages have version 2, calls version 3. */
export const plivo: Verify = (webhook) =>
  (webhook.header('x-plivo-signature-v3-nonce') === '' ? plivoTwo : plivoThree)(webhook);

const plivoTwo = signedBy({
  headers: ['x-plivo-signature-v2', 'x-plivo-signature-ma-v2'],
  encoding: 'base64',
  signed: ({ url, header }) => [url.replace(/\?.*/s, ''), header('x-plivo-signature-v2-nonce')],
});

const plivoThree: Verify = (webhook) => {
  const { url, secret, header } = webhook;
  const values = [header('x-plivo-signature-v3'), header('x-plivo-signature-ma-v3')].filter((value) => value !== '');
  if (values.length === 0) return NO_SIGNATURE;
  const query = [...new URLSearchParams(pathAndQuery(url).split('?')[1] ?? '')];
  const sorted = query.map(([name, value]) => `${name}=${value}`).sort();
  const form = formText(webhook);
  if (form === null) return WRONG_SIGNATURE;
  const base = url.replace(/\?.*/s, '') + (sorted.length > 0 || form !== '' ? `?${sorted.join('&')}` : '');
  const separator = sorted.length > 0 && form !== '' ? '.' : '';
  const expected = hmac('sha256', secret, `${base}${separator}${form}.${header('x-plivo-signature-v3-nonce')}`);
  const signatures = values.flatMap((value) => value.split(',', 20));
  return verdict(signatures.some((signature) => isEqual(Buffer.from(signature, 'base64'), expected)));
};

/** twilio.com/docs/sendgrid: "Event webhook security features"; the secret is the public key of an elliptic curve. */
export const sendgrid: Verify = (webhook) => {
  const { secret, body, header } = webhook;
  const signature = header('x-twilio-email-event-webhook-signature');
  const time = header('x-twilio-email-event-webhook-timestamp');
  if (signature === '' || time === '') return NO_SIGNATURE;
  if (!isRecent(time, webhook)) return TOO_OLD;
  try {
    const der = Buffer.from(secret, 'base64');
    const problem = publicKeyProblem(der);
    if (problem !== null) throw new Error(problem);
    const key = createPublicKey({ key: der, format: 'der', type: 'spki' });
    const signed = Buffer.concat([Buffer.from(time), body]);
    return verdict(verifySignature('sha256', signed, key, Buffer.from(signature, 'base64')));
  } catch (error) {
    webhook.note(`the secret is not SendGrid's public key in Base64: ${messageOf(error)}`);
    return WRONG_SIGNATURE;
  }
};

/** docs.svix.com: "Verifying webhooks manually". */
export const svix: Verify = (webhook) => {
  const id = webhook.header('svix-id') || webhook.header('webhook-id');
  const time = webhook.header('svix-timestamp') || webhook.header('webhook-timestamp');
  const signatures = webhook.header('svix-signature') || webhook.header('webhook-signature');
  if (id === '' || time === '' || signatures === '') return NO_SIGNATURE;
  if (!isRecent(time, webhook)) return TOO_OLD;
  const key = Buffer.from(webhook.secret.replace(/^whsec_/, ''), 'base64');
  const expected = hmac('sha256', key, `${id}.${time}.`, webhook.body);
  const candidates = signatures.split(' ', 20).filter((each) => each.startsWith('v1,'));
  return verdict(candidates.some((each) => isEqual(Buffer.from(each.slice(3), 'base64'), expected)));
};

/** twilio.com/docs: "Webhooks security". For a body that is not a form, the signed URL contains its hash. */
export const twilio: Verify = (webhook) => {
  const signature = webhook.header('x-twilio-signature');
  if (signature === '') return NO_SIGNATURE;
  const bodyHash = URL.canParse(webhook.url) ? new URL(webhook.url).searchParams.get('bodySHA256') : null;
  if (bodyHash !== null) {
    const actual = createHash('sha256').update(webhook.body).digest();
    if (!isEqual(Buffer.from(bodyHash, 'hex'), actual)) return WRONG_SIGNATURE;
  }
  const parameters = bodyHash === null ? formText(webhook) : '';
  if (parameters === null) return WRONG_SIGNATURE;
  const expected = hmac('sha1', webhook.secret, webhook.url + parameters);
  return verdict(isEqual(Buffer.from(signature, 'base64'), expected));
};

const twitterSignature = signedBy({
  headers: ['x-twitter-webhooks-signature'],
  prefix: 'sha256=',
  encoding: 'base64',
});

/** docs.x.com: "Webhooks"; the challenge asks for the signature of a token. */
export const twitter: Verify = (webhook) => {
  const asked = webhook.method === 'GET' ? new URLSearchParams(pathAndQuery(webhook.url).split('?')[1]) : null;
  const challenge = asked?.get('crc_token') ?? '';
  // Never what could be an event: its signature would be for sale here.
  if (!/^[\w+/=-]{1,256}$/.test(challenge)) return twitterSignature(webhook);
  const proof = hmac('sha256', webhook.secret, challenge).toString('base64');
  return { contentType: 'application/json', body: JSON.stringify({ response_token: `sha256=${proof}` }) };
};

const worldlineSignature = signedBy({ headers: ['x-gcs-signature'], encoding: 'base64' });

/** docs.connect.worldline-solutions.com: "Webhooks"; the challenge asks for a header's value. */
export const worldline: Verify = (webhook) => {
  const challenge = webhook.header('x-gcs-webhooks-endpoint-verification');
  const isChallenge = webhook.method === 'GET' && /^[\w.+/=-]{1,256}$/.test(challenge);
  return isChallenge ? { contentType: 'text/plain', body: challenge } : worldlineSignature(webhook);
};

const xeroSignature = signedBy({ headers: ['x-xero-signature'], encoding: 'base64' });

/** developer.xero.com: "Configuring your server"; the challenges are webhooks without events, some wrongly signed. */
export const xero: Verify = async (webhook) => {
  const problem = await xeroSignature(webhook);
  if (problem !== null) return problem;
  const { events, entropy } = jsonMembers(webhook.body);
  const isChallenge = Array.isArray(events) && events.length === 0 && entropy !== undefined;
  return isChallenge ? { contentType: 'text/plain', body: '' } : null;
};

const zoomSignature = signedBy({
  headers: ['x-zm-signature'],
  prefix: 'v0=',
  encoding: 'hex',
  time: { header: 'x-zm-request-timestamp' },
  signed: ({ body }, time) => [`v0:${time}:`, body],
});

/** developers.zoom.us: "Using webhooks"; the challenge is a signed webhook that asks for the signature of a token. */
export const zoom: Verify = async (webhook) => {
  const problem = await zoomSignature(webhook);
  if (problem !== null) return problem;
  const { event, payload } = jsonMembers(webhook.body);
  const { plainToken } = asMembers(payload);
  if (event !== 'endpoint.url_validation' || typeof plainToken !== 'string') return null;
  const encryptedToken = hmac('sha256', webhook.secret, plainToken).toString('hex');
  return { contentType: 'application/json', body: JSON.stringify({ plainToken, encryptedToken }) };
};
