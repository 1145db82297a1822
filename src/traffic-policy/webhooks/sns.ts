import { createVerify, type KeyObject } from 'node:crypto';
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

/**
 * Where Amazon publishes the certificates of a region. Names beside these can be anybody's: `sns.s3.amazonaws.com` and
 * `sns.s3-us-west-2.amazonaws.com` are a bucket of S3. A query could have the service repeat what it says.
 */
const CERTIFICATE_URL =
  /^https:\/\/sns\.(?:cn-[a-z]+-\d{1,2}\.amazonaws\.com\.cn|(?!cn-)[a-z]{2}(?:-[a-z]+){1,2}-\d{1,2}\.amazonaws\.com)\/SimpleNotificationService-[0-9a-f]{32}\.pem$/;

/** Amazon signs with its own key and publishes the certificate under a host name of its own. */
export const sns: Verify = async (webhook) => {
  const message = parseMessage(webhook.body);
  if (message === null) return NO_SIGNATURE;
  if (!CERTIFICATE_URL.test(message.SigningCertURL)) return WRONG_SIGNATURE;
  const age = webhook.nowMs - Date.parse(message.Timestamp);
  if (!(Math.abs(age) <= MAX_AGE_MS)) return TOO_OLD;
  let key: KeyObject;
  try {
    key = await webhook.signingKey(message.SigningCertURL);
  } catch (error) {
    webhook.note(`cannot fetch ${message.SigningCertURL}: ${messageOf(error)}`);
    return 'cannot fetch the certificate';
  }
  return webhook.measured(() => isSigned(message, key)) ? null : WRONG_SIGNATURE;
};

function parseMessage(body: Buffer): Message | null {
  try {
    return Message.parse(JSON.parse(body.toString()));
  } catch {
    return null; // not a message of SNS
  }
}

function isSigned(message: Message, key: KeyObject): boolean {
  const fields = message.Type === 'Notification' ? NOTIFICATION : SUBSCRIPTION;
  const verifier = createVerify(message.SignatureVersion === '1' ? 'RSA-SHA1' : 'RSA-SHA256');
  for (const field of fields) if (message[field] !== undefined) verifier.update(`${field}\n${message[field]}\n`);
  return key.asymmetricKeyType === 'rsa' && verifier.verify(key, message.Signature, 'base64');
}
