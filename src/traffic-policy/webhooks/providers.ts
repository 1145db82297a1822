import { quote } from '../../lib/errors.ts';
import {
  airship,
  buildkite,
  contentful,
  graphcms,
  hubspot,
  linear,
  mailgun,
  plivo,
  sendgrid,
  svix,
  token,
  twilio,
  twitter,
  worldline,
  xero,
  zoom,
} from './signatures.ts';
import { sns } from './sns.ts';
import { formText, type SignatureScheme, signedBy, type Verify } from './webhook.ts';

/** The signature of the body in a header. */
function body(header: string, encoding: SignatureScheme['encoding'], more: Partial<SignatureScheme> = {}): Verify {
  return signedBy({ headers: [header], encoding, ...more });
}

/** A header such as `t=1,v1=ab`, with the signature of time and body. */
function timed(header: string, field = 'v1', more: Partial<SignatureScheme> = {}): Verify {
  return signedBy({
    headers: [header],
    field,
    encoding: 'hex',
    time: { field: 't' },
    signed: (webhook, time) => [`${time}.`, webhook.body],
    ...more,
  });
}

/** One header has the signature after a version, another one the time; the signed text begins with both. */
function versioned(version: string, header: string, time: string): Verify {
  return signedBy({
    headers: [header],
    prefix: `${version}=`,
    encoding: 'hex',
    time: { header: time },
    signed: (webhook, value) => [`${version}:${value}:`, webhook.body],
  });
}

/** developers.facebook.com: "Webhooks: validating payloads"; for all products of Meta. */
const meta = body('x-hub-signature-256', 'hex', { prefix: 'sha256=' });

/** docs.fastly.com: "Generic webhooks". */
const signalSciences = body('x-sigsci-signature', 'hex');

/** help.sonatype.com: "Working with HMAC payloads". */
const sonatype = body('x-nexus-webhook-signature', 'hex', { hash: 'sha1' });

const DOCUSIGN_KEYS = 10;

/** What each provider's own documentation states. */
const VERIFIERS: ReadonlyMap<string, Verify> = new Map<string, Verify>([
  ['aftership', body('aftership-hmac-sha256', 'base64')],
  ['airship', airship],
  ['alchemy', body('x-alchemy-signature', 'hex')],
  ['autodesk', body('x-adsk-signature', 'hex', { prefix: 'sha1hash=', hash: 'sha1' })],
  ['bitbucket', body('x-hub-signature', 'hex', { prefix: 'sha256=' })],
  ['bolt', body('x-bolt-hmac-sha256', 'base64', { headers: ['x-bolt-hmac-sha256', 'x-bolt-hmac-sha256-pending'] })],
  [
    'box',
    signedBy({
      headers: ['box-signature-primary', 'box-signature-secondary'],
      encoding: 'base64',
      time: { header: 'box-delivery-timestamp' },
      timeFormat: 'date',
      toleranceS: 10 * 60,
      signed: (webhook, time) => [webhook.body, time],
    }),
  ],
  ['brex', svix],
  ['buildkite', buildkite],
  ['calendly', timed('calendly-webhook-signature')],
  ['castle', body('x-castle-signature', 'base64')],
  ['chargify', body('x-chargify-webhook-signature-hmac-sha-256', 'hex')],
  ['circleci', body('circleci-signature', 'hex', { field: 'v1' })],
  ['clearbit', body('x-request-signature', 'hex', { prefix: 'sha1=', hash: 'sha1' })],
  ['clerk', svix],
  ['coinbase', body('x-cc-webhook-signature', 'hex')],
  ['contentful', contentful],
  [
    'docusign',
    body('x-docusign-signature-1', 'base64', {
      headers: Array.from({ length: DOCUSIGN_KEYS }, (_, at) => `x-docusign-signature-${at + 1}`),
    }),
  ],
  ['dropbox', body('x-dropbox-signature', 'hex')],
  ['facebook_graph_api', meta],
  ['facebook_messenger', meta],
  ['frameio', versioned('v0', 'x-frameio-signature', 'x-frameio-request-timestamp')],
  ['github', body('x-hub-signature-256', 'hex', { prefix: 'sha256=' })],
  ['gitlab', token('x-gitlab-token')],
  ['go1', timed('go1-signature')],
  ['graphcms', graphcms],
  ['heroku', body('heroku-webhook-hmac-sha256', 'base64')],
  // Its documentation has the name that Ruby programs see; other programs see the second one.
  [
    'hostedhooks',
    timed('http_hostedhooks_signature', 's', { headers: ['http_hostedhooks_signature', 'hostedhooks-signature'] }),
  ],
  ['hubspot', hubspot],
  ['instagram', meta],
  ['intercom', body('x-hub-signature', 'hex', { prefix: 'sha1=', hash: 'sha1' })],
  ['jira', body('x-hub-signature', 'hex', { prefix: 'sha256=' })],
  ['launch_darkly', body('x-ld-signature', 'hex')],
  ['linear', linear],
  [
    'mailchimp',
    body('x-mandrill-signature', 'base64', {
      hash: 'sha1',
      signed: (webhook) => {
        const form = formText(webhook);
        return form === null ? null : [webhook.url, form];
      },
    }),
  ],
  ['mailgun', mailgun],
  [
    'microsoft_teams',
    body('authorization', 'base64', { prefix: 'HMAC ', key: (secret) => Buffer.from(secret, 'base64') }),
  ],
  ['modern_treasury', body('x-signature', 'hex')],
  ['mongodb', body('x-mms-signature', 'base64', { hash: 'sha1' })],
  ['mux', timed('mux-signature')],
  [
    'orb',
    signedBy({
      headers: ['x-orb-signature'],
      field: 'v1',
      encoding: 'hex',
      time: { header: 'x-orb-timestamp' },
      timeFormat: 'date',
      signed: (webhook, time) => [`v1:${time}:`, webhook.body],
    }),
  ],
  ['pagerduty', body('x-pagerduty-signature', 'hex', { field: 'v1' })],
  ['pinwheel', versioned('v2', 'x-pinwheel-signature', 'x-timestamp')],
  ['plivo', plivo],
  ['pusher', body('x-pusher-signature', 'hex')],
  ['sendgrid', sendgrid],
  ['sentry', body('sentry-hook-signature', 'hex')],
  ['shopify', body('x-shopify-hmac-sha256', 'base64')],
  ['signal_sciences', signalSciences],
  ['signalsciences', signalSciences],
  ['slack', versioned('v0', 'x-slack-signature', 'x-slack-request-timestamp')],
  ['sns', sns],
  ['sonatype', sonatype],
  ['sonatype_nexus', sonatype],
  ['square', body('x-square-hmacsha256-signature', 'base64', { signed: (webhook) => [webhook.url, webhook.body] })],
  ['stripe', timed('stripe-signature')],
  ['svix', svix],
  ['terraform', body('x-tfe-notification-signature', 'hex', { hash: 'sha512' })],
  ['tiktok', timed('tiktok-signature', 's')],
  ['trendmicro_conformity', body('x-conformity-signature', 'hex')],
  ['twilio', twilio],
  ['twitter', twitter],
  ['typeform', body('typeform-signature', 'base64', { prefix: 'sha256=' })],
  ['webex', body('x-spark-signature', 'hex', { hash: 'sha1' })],
  ['whatsapp', meta],
  ['worldline', worldline],
  ['xero', xero],
  [
    'zendesk',
    body('x-zendesk-webhook-signature', 'base64', {
      time: { header: 'x-zendesk-webhook-signature-timestamp' },
      timeFormat: 'date',
      signed: (webhook, time) => [time, webhook.body],
    }),
  ],
  ['zoom', zoom],
]);

const NO_BASIC_SCHEME =
  'Workspace ONE signs nothing; give its event notification a user name and password, and use basic-auth';

/** The other providers in ngrok's documentation, and why each is refused. */
const REFUSED_PROVIDERS: ReadonlyMap<string, string> = new Map([
  ['orbit', 'Orbit has ended, and no documentation of its signatures is left'],
  ['vmware', NO_BASIC_SCHEME],
  ['vmware_workspace', NO_BASIC_SCHEME],
]);

export const SUPPORTED_PROVIDERS: readonly string[] = [...VERIFIERS.keys()];

/** Why webhooks of a provider without a verifier cannot be verified. */
export function whyUnsupported(provider: string): string {
  const reason = REFUSED_PROVIDERS.get(provider);
  if (reason !== undefined) return `this gateway cannot verify webhooks of ${provider}: ${reason}`;
  return `${quote(provider)} is not a known provider of webhooks; supported: ${SUPPORTED_PROVIDERS.join(', ')}`;
}

export function verifierOf(name: string): Verify | undefined {
  return VERIFIERS.get(name);
}
