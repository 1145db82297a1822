import { BoundedMap } from '../../../lib/bounded-map.ts';
import type { Log } from '../../../lib/log/log.ts';
import type { DomainCertificates } from '../../certificates/domain-certificates.ts';
import type { CertifiedKey, Leaf } from '../../certificates/local-ca/certificate-files.ts';
import type { LocalCa } from '../../certificates/local-ca/local-ca.ts';

/** Names below a wildcard that clients reject, for example `*.localhost`: each needs a certificate, and clients invent them. */
const MAX_INVENTED = 64;
/** A gateway has three. */
const MAX_OWN_NAMES = 16;
const HOST_NAME = /^[a-z0-9.-]{1,253}$/;

/** Chooses the certificate that the public TLS ports present. */
export class CertificateSelection {
  readonly #leaves: CertificateCache;
  /** For those that ask for a chain of a CA, whatever others get for the same names. */
  readonly #asked = new Map<string, CertificateCache>();
  readonly #default: CertificateCache;
  /** Names that were offline and got a certificate all the same. */
  readonly #invented = new Set<string>();

  constructor(
    private readonly options: {
      ca: LocalCa;
      /** Certificates of reserved domains; they take precedence over those of the local CA. */
      domains: Pick<DomainCertificates, 'pairFor'>;
      defaultNames: readonly string[];
      /** The name or wildcard under which a name is being served, so that a certificate may be issued; null when it is not. */
      servedAs: (name: string) => string | null;
      /** The domain or wildcard of this gateway that a name belongs to, online or not; null for foreign names. */
      domainOf: (name: string) => string | null;
      /** Whether the gateway itself answers at a name, so that clients may have pinned its CA. */
      isOwnName: (name: string) => boolean;
      log: Log;
    },
  ) {
    const { ca, defaultNames } = options;
    this.#leaves = new CertificateCache(ca, 1024);
    this.#default = new CertificateCache(
      {
        issue: () => ca.issue(defaultNames),
        get id() {
          return ca.id;
        },
      },
      1,
    );
  }

  async prepare(): Promise<void> {
    await this.#default.leafFor('');
  }

  /**
   * @param name lower case; empty when the client named none
   * @param asked ids of the CAs that the client asks for, and has pinned
   * @throws when a certificate cannot be issued
   */
  async pairFor(name: string, asked: readonly string[] = []): Promise<CertifiedKey> {
    // Clients that connect to an address name no host.
    if (asked.length > 0 && (name === '' || this.options.isOwnName(name))) {
      const ca = this.options.ca.among(asked);
      if (ca !== null) return this.#leavesOf(ca).leafFor(name);
    }
    const pair = name === '' ? null : this.#domainPair(name);
    if (pair) return pair;
    const servedAs = this.options.servedAs(name);
    const domain = this.options.domainOf(name);
    // A wildcard stands for one label.
    const certified =
      servedAs === null
        ? this.#offlineName(name, domain)
        : certifiedName(name, domain === parentWildcard(name) ? domain : servedAs);
    // A name that has just gone offline keeps its cached certificate, to say so.
    const known = certified ?? [name, parentWildcard(name)].find((each) => this.#leaves.has(each));
    return known === undefined ? this.#default.leafFor('') : this.#leaves.leafFor(known);
  }

  #leavesOf(ca: LocalCa): CertificateCache {
    const { defaultNames } = this.options;
    const issue = (names: readonly string[]) => ca.issue(names[0] === '' ? defaultNames : names);
    const leaves = this.#asked.get(ca.id) ?? new CertificateCache({ id: ca.id, issue }, MAX_OWN_NAMES);
    this.#asked.set(ca.id, leaves);
    return leaves;
  }

  /**
   * The name of the certificate with which an offline endpoint's clients learn that it is offline. Clients must not make the
   * gateway issue any number of certificates: one for each domain of the operator, and a few more.
   */
  #offlineName(name: string, domain: string | null): string | null {
    if (domain === null) return null;
    const certified = certifiedName(name, domain);
    if (certified === domain) return certified;
    if (this.#invented.size < MAX_INVENTED && HOST_NAME.test(name)) this.#invented.add(name);
    return this.#invented.has(name) ? name : null;
  }

  #domainPair(name: string): CertifiedKey | null {
    const { domains, log } = this.options;
    try {
      return domains.pairFor(name);
    } catch (err) {
      log.error({ err, name }, 'domain certificate lookup failed');
      return null;
    }
  }
}

/** A wildcard shares one certificate, however many names clients make up, unless clients reject so wide a wildcard. */
function certifiedName(name: string, servedAs: string): string {
  const isAccepted = servedAs.split('.').length > 2;
  return servedAs.startsWith('*.') && isAccepted ? servedAs : name;
}

function parentWildcard(name: string): string {
  return `*${name.slice(name.indexOf('.'))}`;
}

interface Entry {
  /** See `LocalCa`: another one issues it again. */
  ca: string;
  leaf: Promise<Leaf>;
  /** When the clock is set back behind this, the certificate may not be valid yet. */
  issuedAt: number;
  renewAt: number;
}

/** The local CA's certificates by hostname, issued on first use. One each: many clients reject wildcards like *.localhost. */
export class CertificateCache {
  readonly #ca: Pick<LocalCa, 'issue' | 'id'>;
  readonly #now: () => number;
  readonly #entries: BoundedMap<string, Entry>;

  constructor(ca: Pick<LocalCa, 'issue' | 'id'>, limit: number, now: () => number = Date.now) {
    this.#ca = ca;
    this.#entries = new BoundedMap(limit);
    this.#now = now;
  }

  has(name: string): boolean {
    return this.#entries.has(name);
  }

  /** Concurrent callers share one certificate. The caller has checked that this gateway serves the name. */
  leafFor(name: string): Promise<Leaf> {
    const known = this.#entries.get(name);
    const now = this.#now();
    const isPresent = known?.ca === this.#ca.id;
    const entry = known && isPresent && known.issuedAt <= now && now < known.renewAt ? known : this.#issue(name, now);
    this.#entries.set(name, entry);
    return entry.leaf;
  }

  #issue(name: string, issuedAt: number): Entry {
    const entry: Entry = { ca: this.#ca.id, leaf: this.#ca.issue([name]), issuedAt, renewAt: Infinity };
    entry.leaf.then(
      ({ renewAt }) => {
        entry.renewAt = renewAt;
      },
      // The current callers get the error; the next call tries again.
      () => {
        if (this.#entries.get(name) === entry) this.#entries.delete(name);
      },
    );
    return entry;
  }
}
