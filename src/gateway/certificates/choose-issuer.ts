import { join } from 'node:path';
import type { AcmeSettings } from '../../settings/certificate-settings.ts';
import type { GatewayContext } from '../context/gateway-context.ts';
import { dnsTargets } from '../endpoints/domain-names.ts';
import type { AcmeIssuer } from './acme/acme-issuer.ts';
import { nextAccountKey } from './certificate-errands.ts';
import type { Challenges } from './challenges/challenges.ts';
import { ownTargets } from './gateway-names.ts';
import {
  type CertificateIssuer,
  type IssuedCertificate,
  type IssueRequest,
  makePrivateKey,
} from './issuing/certificate-issuer.ts';
import type { LocalCa } from './local-ca/local-ca.ts';
import { doPending } from './run-errands.ts';

type IssuerContext = Pick<GatewayContext, 'options' | 'store' | 'domains' | 'clock' | 'log'>;

export function chooseIssuer(context: IssuerContext, ca: LocalCa, challenges: Challenges): CertificateIssuer {
  const { acme = null } = context.options;
  if (acme === null) return new LocalCaIssuer(ca);
  let issuer: Promise<AcmeIssuer> | null = null;
  // Loaded with the first order: many gateways never place one.
  const load = () => (issuer ??= acmeIssuer(acme, context, challenges));
  return {
    usesOurClock: false,
    async issue(request, signal) {
      return (await load()).issue(request, signal);
    },
    async renewalAdvice(certificatePem, signal) {
      return (await load()).renewalAdvice(certificatePem, signal);
    },
    doErrands: (signal) => doPending(context, load, signal),
  };
}

async function acmeIssuer(settings: AcmeSettings, context: IssuerContext, challenges: Challenges) {
  const { options, store, domains, clock } = context;
  const [{ AcmeAccountKey, AcmeCa }, acme] = await Promise.all([
    import('./acme/acme-account.ts'),
    import('./acme/acme-issuer.ts'),
  ]);
  const shared = store.database.isReplica ? store.database : null;
  const facts = store.database.unwritable === null ? store.database : null;
  const key = new AcmeAccountKey(join(options.dataDir, 'gateway', 'acme-account.key'), store.box, shared);
  const order = {
    ca: new AcmeCa(settings, key, facts, () => (facts === null ? null : nextAccountKey(store))),
    targets: (domain: string) => ownTargets(domain, domains) ?? dnsTargets(domain, store.account, domains),
    trust: settings.trust,
    plainChallenges: ['http-01', 'tls-alpn-01'] as const,
    dnsServers: settings.resolvers,
    profile: settings.profile ?? null,
    chain: settings.chain ?? null,
  };
  return new acme.AcmeIssuer(order, { ...challenges, clock });
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
