import { createVerify } from 'node:crypto';
import { z } from 'zod';
import { messageOf } from '../../lib/errors.ts';
import { NO_SIGNATURE, TOO_OLD, type Verify, WRONG_SIGNATURE } from './webhook.ts';

const text = z.string().max(1024 * 1024);

const Message = z.object({
  Type: text,
  MessageId: text,
  TopicArn: text,
  Message: text,
  Timestamp: text,
  Subject: text.optional(),
  SubscribeURL: text.optional(),
  Token: text.optional(),
  Signature: text,
  SignatureVersion: z.enum(['1', '2']),
  SigningCertURL: text,
});
type Message = z.infer<typeof Message>;

/** The signed fields, in this order (docs.aws.amazon.com/sns: "Verifying the signatures of Amazon SNS messages"). */
const NOTIFICATION = ['Message', 'MessageId', 'Subject', 'Timestamp', 'TopicArn', 'Type'] as const;
const SUBSCRIPTION = ['Message', 'MessageId', 'SubscribeURL', 'Timestamp', 'Token', 'TopicArn', 'Type'] as const;

/** SNS retries a delivery for an hour with the same signature. */
const MAX_AGE_MS = 60 * 60 * 1000;

const MAX_CERTIFICATE = 16 * 1024;
const CACHED = 50;
const certificates = new Map<string, Buffer>();

/** Amazon signs with its own key and publishes the certificate under a host name of its own. */
export const sns: Verify = async (webhook) => {
  const message = parseMessage(webhook.body);
  if (message === null) return NO_SIGNATURE;
  if (!isAmazons(message.SigningCertURL)) return WRONG_SIGNATURE;
  const age = webhook.nowMs - Date.parse(message.Timestamp);
  if (!(Math.abs(age) <= MAX_AGE_MS)) return TOO_OLD;
  let certificate: Buffer;
  try {
    certificate = await certificateAt(message.SigningCertURL, webhook.fetch);
  } catch (error) {
    webhook.note(`cannot fetch ${message.SigningCertURL}: ${messageOf(error)}`);
    return 'cannot fetch the certificate';
  }
  return webhook.measured(() => isSigned(message, certificate)) ? null : WRONG_SIGNATURE;
};

function parseMessage(body: Buffer): Message | null {
  try {
    return Message.parse(JSON.parse(body.toString()));
  } catch {
    return null; // not a message of SNS
  }
}

function isAmazons(url: string): boolean {
  if (!URL.canParse(url)) return false;
  const { protocol, host, pathname } = new URL(url);
  return protocol === 'https:' && /^sns\.[a-z0-9-]+\.amazonaws\.com(?:\.cn)?$/.test(host) && pathname.endsWith('.pem');
}

async function certificateAt(url: string, fetch: (url: string, maxBytes: number) => Promise<Buffer>): Promise<Buffer> {
  const known = certificates.get(url);
  if (known) return known;
  const certificate = await fetch(url, MAX_CERTIFICATE);
  if (certificates.size >= CACHED) certificates.clear();
  certificates.set(url, certificate);
  return certificate;
}

function isSigned(message: Message, certificate: Buffer): boolean {
  const fields = message.Type === 'Notification' ? NOTIFICATION : SUBSCRIPTION;
  const verifier = createVerify(message.SignatureVersion === '1' ? 'RSA-SHA1' : 'RSA-SHA256');
  for (const field of fields) if (message[field] !== undefined) verifier.update(`${field}\n${message[field]}\n`);
  try {
    return verifier.verify(certificate, message.Signature, 'base64');
  } catch {
    return false; // the document is not a certificate
  }
}
