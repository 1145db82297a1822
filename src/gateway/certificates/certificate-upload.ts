import { type KeyObject, X509Certificate } from 'node:crypto';
import { ApiError, messageOf } from '../../lib/errors.ts';
import {
  certificateProblem,
  MAX_CHAIN,
  readPrivateKey as readUsualKey,
  signatureProblem,
} from '../../lib/tls/usual-keys.ts';
import { errorCode } from '../../management/resources/refusal.ts';

/** The leaf and the key of an uploaded certificate chain. @throws {ApiError} 1900 … 1926 when either is invalid */
export function readUploadedPair(
  certificatePem: string,
  privateKeyPem: string,
): { leaf: X509Certificate; key: KeyObject } {
  const [leaf, ...rest] = readChain(certificatePem);
  if (!leaf) throw refuse(1922, 'certificate_pem: holds no certificate');
  const key = readPrivateKey(privateKeyPem);
  if (!leaf.checkPrivateKey(key)) throw refuse(1923, 'private_key_pem: does not match the first certificate');
  for (const [at, certificate] of [leaf, ...rest].entries()) {
    const problem = certificateProblem(certificate);
    if (problem) throw refuse(1900, `certificate_pem: certificate ${at + 1} ${problem}`);
  }
  let child = leaf;
  for (const issuer of rest) {
    if (!child.checkIssued(issuer)) {
      throw refuse(1926, 'certificate_pem: wrong order; each certificate must be followed by its issuer');
    }
    child = issuer;
  }
  const unsound = signatureProblem([leaf, ...rest]);
  if (unsound) throw refuse(1900, `certificate_pem: the certificate ${unsound}`);
  return { leaf, key };
}

/** Parses an uploaded CA certificate; throws an {@link ApiError} 1910 … 1920 when it is invalid. */
export function readAuthority(caPem: string): X509Certificate {
  const blocks = parsePem(caPem);
  const [block] = blocks ?? [];
  if (!blocks || !block) throw refuse(1920, 'ca_pem: not PEM');
  if (blocks.length > 1) throw refuse(1912, 'ca_pem: holds more than one certificate');
  if (block.type !== 'CERTIFICATE') throw refuse(1911, 'ca_pem: the PEM block is not a CERTIFICATE');
  if (block.hasHeaders) throw refuse(1910, 'ca_pem: PEM headers are not supported');
  const certificate = parseCertificate(block, 1920, 'ca_pem');
  const problem = certificateProblem(certificate);
  if (problem) throw refuse(1920, `ca_pem: ${problem}`);
  if (!certificate.ca) throw refuse(1913, 'ca_pem: not a CA certificate: its basic constraints do not say CA');
  return certificate;
}

function readChain(pem: string): X509Certificate[] {
  const blocks = parsePem(pem) ?? [];
  if (blocks.some(isPrivateKey)) throw refuse(1925, 'certificate_pem: holds a private key');
  if (blocks.length === 0 || blocks.some(({ type }) => type !== 'CERTIFICATE')) {
    throw refuse(1900, 'certificate_pem: not a PEM certificate chain');
  }
  if (blocks.length > MAX_CHAIN) throw refuse(1926, `certificate_pem: more than ${MAX_CHAIN} certificates`);
  return blocks.map((block) => parseCertificate(block, 1900, 'certificate_pem'));
}

function parseCertificate(block: PemBlock, code: number, member: string): X509Certificate {
  try {
    return new X509Certificate(block.text);
  } catch (cause) {
    throw refuse(code, `${member}: cannot parse the certificate`, { cause });
  }
}

function readPrivateKey(pem: string): KeyObject {
  const blocks = parsePem(pem) ?? [];
  const key = blocks.find(isPrivateKey);
  if (!key) {
    const isCertificate = blocks.some(({ type }) => type === 'CERTIFICATE');
    throw isCertificate
      ? refuse(1924, 'private_key_pem: holds a certificate')
      : refuse(1903, 'private_key_pem: holds no private key in PEM');
  }
  if (key.hasHeaders || key.type.startsWith('ENCRYPTED')) {
    throw refuse(1902, 'private_key_pem: the key is encrypted; remove its passphrase');
  }
  try {
    return readUsualKey(key.text);
  } catch (error) {
    throw refuse(1903, `private_key_pem: ${messageOf(error)}`);
  }
}

function isPrivateKey({ type }: PemBlock): boolean {
  return type.endsWith('PRIVATE KEY');
}

function refuse(code: number, message: string, cause?: ErrorOptions): ApiError {
  return new ApiError(400, errorCode(code), message, cause);
}

interface PemBlock {
  /** `CERTIFICATE`, `PRIVATE KEY`, … */
  type: string;
  /** Whether headers precede the data, for example `Proc-Type`. */
  hasHeaders: boolean;
  text: string;
}

const BEGIN = '-----BEGIN ';
const DASHES = '-----';

/** Parses PEM blocks, ignoring text between them (RFC 7468, section 2); returns null when one is not closed. */
function parsePem(text: string): PemBlock[] | null {
  const blocks: PemBlock[] = [];
  let at = text.indexOf(BEGIN);
  while (at >= 0) {
    const labelEnd = text.indexOf(DASHES, at + BEGIN.length);
    if (labelEnd < 0) return null;
    const type = text.slice(at + BEGIN.length, labelEnd);
    const closing = `${DASHES}END ${type}${DASHES}`;
    const end = text.indexOf(closing, labelEnd);
    if (end < 0) return null;
    const hasHeaders = text.slice(labelEnd + DASHES.length, end).includes(':');
    blocks.push({ type, hasHeaders, text: text.slice(at, end + closing.length) });
    at = text.indexOf(BEGIN, end + closing.length);
  }
  return blocks;
}
