import { createHash } from 'node:crypto';
import {
  hmac,
  isEqual,
  isRecent,
  NO_SIGNATURE,
  TOO_OLD,
  type Verify,
  type Webhook,
  WRONG_SIGNATURE,
} from './webhook.ts';

const verdict = (genuine: boolean): string | null => (genuine ? null : WRONG_SIGNATURE);

/** docs.github.com: "Validating webhook deliveries". */
export const github: Verify = (webhook) => {
  const signature = webhook.header('x-hub-signature-256');
  if (!signature.startsWith('sha256=')) return NO_SIGNATURE;
  const expected = hmac('sha256', webhook.secret, webhook.body);
  return verdict(isEqual(Buffer.from(signature.slice(7), 'hex'), expected));
};

/** docs.gitlab.com: "Webhooks", "Secret token"; the request carries the token itself. */
export const gitlab: Verify = (webhook) => {
  const token = webhook.header('x-gitlab-token');
  if (token === '') return NO_SIGNATURE;
  // Hashed: a comparison in constant time requires equal lengths.
  return verdict(isEqual(hmac('sha256', 'token', token), hmac('sha256', 'token', webhook.secret)));
};

/** docs.slack.dev: "Verifying requests from Slack". */
export const slack: Verify = (webhook) => {
  const signature = webhook.header('x-slack-signature');
  const time = webhook.header('x-slack-request-timestamp');
  if (!signature.startsWith('v0=') || time === '') return NO_SIGNATURE;
  if (!isRecent(time, webhook)) return TOO_OLD;
  const expected = hmac('sha256', webhook.secret, `v0:${time}:`, webhook.body);
  return verdict(isEqual(Buffer.from(signature.slice(3), 'hex'), expected));
};

/** docs.stripe.com: "Verify webhook signatures manually". There are several signatures during the rotation of a secret. */
export const stripe: Verify = (webhook) => {
  const parts = webhook.header('stripe-signature').split(',', 20);
  const valuesOf = (key: string) =>
    parts.filter((part) => part.startsWith(`${key}=`)).map((part) => part.slice(key.length + 1));
  const [time] = valuesOf('t');
  const signatures = valuesOf('v1');
  if (time === undefined || signatures.length === 0) return NO_SIGNATURE;
  if (!isRecent(time, webhook)) return TOO_OLD;
  const expected = hmac('sha256', webhook.secret, `${time}.`, webhook.body);
  return verdict(signatures.some((signature) => isEqual(Buffer.from(signature, 'hex'), expected)));
};

/** shopify.dev: "Verify webhook deliveries". */
export const shopify: Verify = (webhook) => {
  const signature = webhook.header('x-shopify-hmac-sha256');
  if (signature === '') return NO_SIGNATURE;
  return verdict(isEqual(Buffer.from(signature, 'base64'), hmac('sha256', webhook.secret, webhook.body)));
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
  const expected = hmac('sha1', webhook.secret, webhook.url + parameters);
  return verdict(isEqual(Buffer.from(signature, 'base64'), expected));
};

/** The parameters of the form sorted by name, with names and values concatenated. */
function formText({ body, contentType }: Webhook): string {
  if (contentType !== 'application/x-www-form-urlencoded') return '';
  const parameters = [...new URLSearchParams(body.toString())];
  parameters.sort(([one], [other]) => (one < other ? -1 : one > other ? 1 : 0));
  return parameters.map(([name, value]) => name + value).join('');
}
