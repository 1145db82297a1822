import { createPrivateKey, generateKeyPair, X509Certificate } from 'node:crypto';
import { promisify } from 'node:util';

/** Issues certificates for reserved domains: the local CA, or an ACME CA. */
export interface CertificateIssuer {
  /** Whether the validity of its certificates starts by this machine's clock, which may be wrong. */
  readonly usesOurClock: boolean;
  /** @throws {IssueError} for a known cause; any other error is internal */
  issue(request: IssueRequest, signal: AbortSignal): Promise<IssuedCertificate>;
}

export interface IssueRequest {
  /** Lower case; may be a wildcard. */
  domain: string;
  privateKeyType: 'rsa' | 'ecdsa';
}

export interface IssuedCertificate {
  /** The leaf first, then the intermediates. */
  certificatePem: string;
  privateKeyPem: string;
}

/** Why no certificate was issued, for the domain's owner. */
export class IssueError extends Error {
  /** Seconds to wait before the next attempt, as the CA demands; null without a demand. */
  readonly retryAfter: number | null;

  /** @param code `DNS_ERROR` when the owner must correct a record, `INTERNAL_ERROR` when a retry may succeed */
  constructor(
    readonly code: 'DNS_ERROR' | 'INTERNAL_ERROR',
    message: string,
    options: ErrorOptions & { retryAfter?: number | null } = {},
  ) {
    super(message, options);
    this.name = 'IssueError';
    this.retryAfter = options.retryAfter ?? null;
  }
}

const makeKeyPair = promisify(generateKeyPair);

/** PKCS #8 as PEM. Generated off the main thread: 4096-bit RSA takes a Pi many seconds. */
export async function makePrivateKey(type: 'rsa' | 'ecdsa'): Promise<string> {
  const { privateKey } =
    type === 'rsa'
      ? await makeKeyPair('rsa', { modulusLength: 4096 })
      : await makeKeyPair('ec', { namedCurve: 'P-256' });
  return privateKey.export({ type: 'pkcs8', format: 'pem' }).toString();
}

export function fits(certificatePem: string, privateKeyPem: string, domain: string): boolean {
  const leaf = new X509Certificate(certificatePem);
  const name = domain.replace(/^\*/, 'any');
  return leaf.checkPrivateKey(createPrivateKey(privateKeyPem)) && leaf.checkHost(name) !== undefined;
}
