import { createPrivateKey, generateKeyPair, X509Certificate } from 'node:crypto';
import { isIP } from 'node:net';
import { promisify } from 'node:util';

/** Issues certificates for reserved domains: the local CA, or an ACME CA. */
export interface CertificateIssuer {
  /** Whether the validity of its certificates starts by this machine's clock, which may be wrong. */
  readonly usesOurClock: boolean;
  /** @throws {IssueError} for a known cause; any other error is internal */
  issue(request: IssueRequest, signal: AbortSignal): Promise<IssuedCertificate>;
  /** When a certificate should be renewed; null or left out: by its age. */
  renewalAdvice?(certificatePem: string, signal: AbortSignal): Promise<RenewalAdvice | null>;
  /** Revokes certificates, and changes the account's key, as commands have asked; left out: it does neither. */
  doErrands?(signal: AbortSignal): Promise<void>;
}

export interface IssueRequest {
  /** Lower case; may be a wildcard, or an IP address. */
  domain: string;
  privateKeyType: 'rsa' | 'ecdsa';
  /** PEM of the certificate in use; null or left out: there is none. */
  replaces?: string | null;
  /** An order that an earlier process has begun; null or left out: none. */
  begun?: BegunOrder | null;
  /** Keeps an order, for `begun` after a restart. */
  keep?(order: BegunOrder): Promise<void>;
}

/** An order under way. A CA counts orders and certificates: one that was begun is continued. */
export interface BegunOrder {
  /** URL of the CA's directory. */
  authority: string;
  url: string;
  /** Of the certificate. */
  privateKeyPem: string;
}

/** The window in which a CA wants a certificate renewed, in milliseconds since the Unix epoch. */
export interface RenewalAdvice {
  start: number;
  end: number;
  /** URL of a page about it; null: none. */
  why: string | null;
  /** Seconds after which to ask again; null: the CA does not say. */
  askAgainS: number | null;
}

export interface IssuedCertificate {
  /** The leaf first, then the intermediates. */
  certificatePem: string;
  privateKeyPem: string;
  /** A difference from the settings, as a clause for the log; null or left out: none. */
  remark?: string | null;
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
  const covers = isIP(domain) === 0 ? leaf.checkHost(name) : leaf.checkIP(domain);
  return leaf.checkPrivateKey(createPrivateKey(privateKeyPem)) && covers !== undefined;
}
