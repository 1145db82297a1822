import { join } from 'node:path';
import { systemClock } from '../../lib/time/clock.ts';
import type { AcmeSettings } from '../../settings/certificate-settings.ts';
import { type DomainSettings, dnsTargets } from '../endpoints/domain-names.ts';
import type { Store } from '../store/store.ts';
import type { Challenges } from './challenges/challenges.ts';
import { ownTargets } from './gateway-names.ts';
import {
  type CertificateIssuer,
  type IssuedCertificate,
  type IssueRequest,
  makePrivateKey,
} from './issuing/certificate-issuer.ts';
import type { LocalCa } from './local-ca/local-ca.ts';

export interface IssuerParts {
  ca: LocalCa;
  store: Store;
  domains: DomainSettings;
  challenges: Challenges;
  dataDir: string;
}

export function chooseIssuer(acme: AcmeSettings | null, parts: IssuerParts): CertificateIssuer {
  if (acme === null) return new LocalCaIssuer(parts.ca);
  let issuer: Promise<CertificateIssuer> | null = null;
  return {
    usesOurClock: false,
    async issue(request, signal) {
      // Loaded with the first order: many gateways never place one.
      issuer ??= acmeIssuer(acme, parts);
      return (await issuer).issue(request, signal);
    },
  };
}

async function acmeIssuer(settings: AcmeSettings, { store, domains, challenges, dataDir }: IssuerParts) {
  const [{ AcmeAccountKey, AcmeCa }, { AcmeIssuer }] = await Promise.all([
    import('./acme/acme-account.ts'),
    import('./acme/acme-issuer.ts'),
  ]);
  const shared = store.database.isReplica ? store.database : null;
  const key = new AcmeAccountKey(join(dataDir, 'gateway', 'acme-account.key'), store.box, shared);
  const options = {
    ca: new AcmeCa(settings, key),
    targets: (domain: string) => ownTargets(domain, domains) ?? dnsTargets(domain, store.account, domains),
    trust: settings.trust,
    plainChallenges: ['http-01', 'tls-alpn-01'] as const,
    dnsServers: settings.resolvers,
  };
  return new AcmeIssuer(options, { ...challenges, clock: systemClock });
}

/** Issues certificates with the gateway's own CA, without checking DNS. Only clients that trust this CA accept them. */
export class LocalCaIssuer implements CertificateIssuer {
  readonly usesOurClock = true;
  #turn: Promise<unknown> = Promise.resolve();

  constructor(private readonly ca: Pick<LocalCa, 'certify'>) {}

  async issue({ domain, privateKeyType }: IssueRequest, signal: AbortSignal): Promise<IssuedCertificate> {
    const privateKeyPem = await this.#makeKey(privateKeyType, signal);
    return { certificatePem: await this.ca.certify([domain], privateKeyPem), privateKeyPem };
  }

  /** One key at a time: RSA blocks one of the few worker threads, which files and DNS need, for a minute on small devices. */
  #makeKey(type: 'rsa' | 'ecdsa', signal: AbortSignal): Promise<string> {
    const key = this.#turn.then(() => {
      signal.throwIfAborted();
      return makePrivateKey(type);
    });
    this.#turn = key.catch(() => {});
    return key;
  }
}
