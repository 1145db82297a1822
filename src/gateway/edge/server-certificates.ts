import type { SecureContext } from 'node:tls';
import type { Log } from '../../lib/log.ts';
import type { DomainContexts } from '../certificates/domain-contexts.ts';
import { LeafContexts } from '../certificates/leaf-contexts.ts';
import type { LocalCa } from '../certificates/local-ca.ts';

export interface ServerCertificatesOptions {
  ca: LocalCa;
  /** Certificates of reserved domains, which go before the CA's. */
  domains?: Pick<DomainContexts, 'contextFor'> | undefined;
  /** Names in the certificate that clients get who ask for none of ours. */
  defaultNames: readonly string[];
  /** Whether a name is served here just now, so that a certificate may be made for it. */
  isServed: (name: string) => boolean;
  log: Log;
}

/** Chooses which certificate the public TLS port presents. */
export class ServerCertificates {
  readonly #options: ServerCertificatesOptions;
  readonly #leaves: LeafContexts;
  readonly #default: LeafContexts;

  constructor(options: ServerCertificatesOptions) {
    const { ca, defaultNames } = options;
    this.#options = options;
    this.#leaves = new LeafContexts(ca, 1024);
    this.#default = new LeafContexts({ issue: () => ca.issue(defaultNames) }, 1);
  }

  /**
   * What to present to a client.
   *
   * @param name lower case; empty when the client named none
   * @throws when a certificate has to be made and cannot
   */
  contextFor(name: string): Promise<SecureContext> {
    const context = name === '' ? null : this.#domainContext(name);
    if (context) return Promise.resolve(context);
    // Certificates are not made for just anybody who asks. An endpoint that has just gone offline can still say so.
    const isOurs = this.#options.isServed(name) || this.#leaves.has(name);
    return isOurs ? this.#leaves.contextFor(name) : this.defaultContext();
  }

  /** For clients who ask for none of our names. */
  defaultContext(): Promise<SecureContext> {
    return this.#default.contextFor('');
  }

  #domainContext(name: string): SecureContext | null {
    const { domains, log } = this.#options;
    try {
      return domains?.contextFor(name) ?? null;
    } catch (err) {
      // The local CA's certificate is better than none.
      log.error({ err, name }, 'a reserved domain’s certificate could not be looked up');
      return null;
    }
  }
}
