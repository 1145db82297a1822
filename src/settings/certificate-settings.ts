/**
 * Which of the gateway's own names get certificates from the ACME CA: none; `public`, the endpoints and the management
 * API; or `all`, which adds the name that agents connect to. Agents that trust only the gateway's local CA cannot
 * connect with `all`.
 */
export type OwnNamesChoice = 'none' | 'public' | 'all';

/** How to order certificates from an ACME certificate authority. */
export interface AcmeSettings {
  /** The CA's directory (RFC 8555, section 7.1.1). */
  directoryUrl: string;
  /** Address for the CA's notices; null: none. */
  contactEmail: string | null;
  /** For CAs that require an existing customer account (RFC 8555, section 7.3.4); `hmacKey` in base64url. */
  externalAccountBinding: { kid: string; hmacKey: string } | null;
  /** PEM of the CAs that may sign the ACME server's own certificate; null: the public ones. */
  trust: string | null;
  /** PEM of roots that the certificates lead to, besides the public ones; null or left out: none. */
  issuers?: string | null;
  /** PEM of those of them that devices get; null or left out: none. */
  root?: string | null;
  /** Resolvers to check records with, `ip` or `ip:port`; null: the operating system's. */
  resolvers: readonly string[] | null;
  ownNames: OwnNamesChoice;
  /** The certificate profile to order; null or left out: the CA's default. */
  profile?: string | null;
  /** Common name of the issuer at the top of the chain to serve; null or left out: the chain that the CA sends first. */
  chain?: string | null;
}

/** The DNS server for the challenges of wildcard domains. */
export interface ChallengeDnsSettings {
  /** IP address to listen on. */
  host: string;
  /** 0: any free port. */
  port: number;
  /** The host that the NS record of the challenge zone names. */
  nameServer: string;
}
