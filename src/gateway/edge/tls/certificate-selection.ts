import type { SecureContext } from 'node:tls';
import type { Log } from '../../../lib/log.ts';
import type { DomainCertificates } from '../../certificates/domain-certificates.ts';
import { LeafCache } from '../../certificates/local-ca/leaf-cache.ts';
import type { CertifiedKey } from '../../certificates/local-ca/leaf-store.ts';
import type { LocalCa } from '../../certificates/local-ca/local-ca.ts';
import { EDGE_TERMINATION } from '../../endpoints/endpoint.ts';
import { type HandshakeDemands, TlsContexts } from './tls-contexts.ts';

export interface CertificateSelectionOptions {
  ca: LocalCa;
  /** Certificates of reserved domains, which go before the CA's. */
  domains?: Pick<DomainCertificates, 'pairFor'> | undefined;
  /** Names in the certificate that clients get who ask for none of ours. */
  defaultNames: readonly string[];
  /**
   * As what a name is served here just now, so that a certificate may be made for it: under itself or a wildcard; null
   * when it is not.
   */
  servedAs: (name: string) => string | null;
  log: Log;
}

/** Chooses which certificate the public TLS ports present. */
export class CertificateSelection {
  readonly #options: CertificateSelectionOptions;
  readonly #leaves: LeafCache;
  readonly #default: LeafCache;
  readonly #contexts = new TlsContexts();

  constructor(options: CertificateSelectionOptions) {
    const { ca, defaultNames } = options;
    this.#options = options;
    this.#leaves = new LeafCache(ca, 1024);
    this.#default = new LeafCache({ issue: () => ca.issue(defaultNames) }, 1);
  }

  /**
   * What to present to a client.
   *
   * @param name lower case; empty when the client named none
   * @param demands of whatever it asks for, perhaps with a certificate of its own
   * @throws when a certificate has to be made and cannot, or one of the demands cannot be met
   */
  async contextFor(name: string, demands: HandshakeDemands = EDGE_TERMINATION): Promise<SecureContext> {
    const { certificate, privateKey } = demands;
    const own = certificate !== null && privateKey !== null ? { cert: certificate, key: privateKey } : null;
    return this.#contexts.contextFor(own ?? (await this.#pairFor(name)), demands);
  }

  /** Makes the certificate for clients who ask for none of our names. */
  async prepare(): Promise<void> {
    await this.#default.leafFor('');
  }

  async #pairFor(name: string): Promise<CertifiedKey> {
    const pair = name === '' ? null : this.#domainPair(name);
    if (pair) return pair;
    // Certificates are not made for just anybody who asks. An endpoint that has just gone offline can still say so.
    const servedAs = this.#options.servedAs(name);
    const certified = servedAs === null ? null : certifiedName(name, servedAs);
    const known = certified ?? [name, parentWildcard(name)].find((each) => this.#leaves.has(each));
    return known === undefined ? this.#default.leafFor('') : this.#leaves.leafFor(known);
  }

  #domainPair(name: string): CertifiedKey | null {
    const { domains, log } = this.#options;
    try {
      return domains?.pairFor(name) ?? null;
    } catch (err) {
      // The local CA's certificate is better than none.
      log.error({ err, name }, 'a reserved domain’s certificate could not be looked up');
      return null;
    }
  }
}

/** A wildcard has one certificate, however many names clients think up; but for those that clients refuse. */
function certifiedName(name: string, servedAs: string): string {
  const isAccepted = servedAs.split('.').length > 2;
  return servedAs.startsWith('*.') && isAccepted ? servedAs : name;
}

function parentWildcard(name: string): string {
  return `*${name.slice(name.indexOf('.'))}`;
}
