/** Whoever signs certificates for reserved domains: the local CA, or an ACME service. */
export interface CertificateIssuer {
  /** Whether its certificates begin by this machine's clock, right or wrong. */
  readonly usesOurClock: boolean;
  /**
   * Obtains a certificate.
   *
   * @param signal aborts when the domain does not want it any more
   * @throws {IssueError} when it is known what went wrong; anything else counts as a fault of ours
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

/** Why no certificate was issued, in words for the domain's owner. */
export class IssueError extends Error {
  /** Seconds during which another attempt is pointless or forbidden; null when nobody said. */
  readonly retryAfter: number | null;

  /** @param code `DNS_ERROR` when the owner has to correct a record, `INTERNAL_ERROR` when waiting may help */
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
