/** Issues certificates for reserved domains: the local CA, or an ACME CA. */
export interface CertificateIssuer {
  /** Whether the validity of its certificates starts by this machine's clock, which may be wrong. */
  readonly usesOurClock: boolean;
  /**
   * Obtains a certificate.
   *
   * @param signal aborts when the certificate is no longer needed
   * @throws {IssueError} for a known cause; any other error is internal
   */
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
