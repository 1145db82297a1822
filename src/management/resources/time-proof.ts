import { z } from 'zod';
import { refused, WRONG_VALUE } from './refusal.ts';
import { body } from './resource.ts';

/** Where the gateway proves the time, on the host of the management API; needs no API key. */
export const TIME_PATH = '/time';
/** For what the gateway's CA certifies the key that signs times. No host can have this name. */
export const TIME_NAME = '_time._device-agent';
/** What a payload begins with: the key signs nothing else. */
export const TIME_STATEMENT = 'time by device-agent, 1';

/** Far more than a gateway has. */
export const MAX_CAS = 8;
export const MAX_ENDED = 32;

const NONCE = /^[A-Za-z0-9_-]{43}$/;

export const TimeRequest = body({
  nonce: z
    .string()
    .regex(NONCE, refused(WRONG_VALUE, 'must be 32 bytes in base64url'))
    .describe('Random, 32 bytes in base64url: the answer is for this request only.'),
});

/** What is signed, as JSON. */
export const TimePayload = z.object({
  statement: z.literal(TIME_STATEMENT),
  nonce: z.string(),
  /** RFC 3339. */
  time: z.iso.datetime(),
  /** SHA-256 of the certificates at the gateway's own names that other CAs have signed, as OpenSSL shows it. */
  certificates: z.array(z.string()),
  /** PEM of the gateway's own CAs, which a device trusts from here on; left out: an earlier gateway. */
  cas: z.array(z.string()).max(MAX_CAS).optional(),
  /** PEM of roots that certificates at the gateway's names lead to, beside the public ones; left out: none. */
  roots: z.array(z.string()).max(MAX_CAS).optional(),
  /** Ids of the CAs that it had before, which a device trusts no longer; left out: an earlier gateway. */
  ended_cas: z.array(z.string()).max(MAX_ENDED).optional(),
});
export type TimePayload = z.infer<typeof TimePayload>;

const signatureMembers = {
  signature: z.string().describe('ECDSA with SHA-256 over the bytes of `payload`, in DER and base64url.'),
  certificate: z.string().describe(`That of the key, PEM: for \`${TIME_NAME}\`, by the gateway’s own CA.`),
  ca: z.string().describe('The certificate of that CA, PEM.'),
};

export const TimeProof = z
  .object({
    payload: z
      .string()
      .describe(
        'JSON with `statement`, `nonce`, `time` (RFC 3339), `certificates`: SHA-256 of the certificates at the gateway’s own names that public CAs have signed, `cas`: the certificates of the gateway’s own CAs, PEM, `ended_cas`: the ids of those before, and `roots`: those that its certificates lead to beside the public ones, PEM.',
      ),
    ...signatureMembers,
    others: z
      .array(z.object(signatureMembers))
      .max(MAX_CAS)
      .optional()
      .describe('While the CA is being changed, the same by the next one.'),
  })
  .describe('A time that the gateway has signed.');
export type TimeProof = z.infer<typeof TimeProof>;
