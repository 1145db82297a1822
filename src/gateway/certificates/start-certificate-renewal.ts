import { join } from 'node:path';
import type { Log } from '../../lib/log/log.ts';
import { systemClock } from '../../lib/time/clock.ts';
import type { AcmeSettings, ChallengeDnsSettings, OwnNamesChoice } from '../../settings/certificate-settings.ts';
import {
  apiHost,
  connectHost,
  type DnsTargets,
  type DomainSettings,
  dnsTargets,
  signInHost,
} from '../endpoints/domain-names.ts';
import type { CertificatePolicy, ManagedDomainRow } from '../store/domains.ts';
import type { Activity } from '../store/events.ts';
import type { Store } from '../store/store.ts';
import { CertificateRenewal, type ManagedTable } from './certificate-renewal.ts';
import type { Challenges } from './challenges/challenges.ts';
import {
  type CertificateIssuer,
  type IssuedCertificate,
  type IssueRequest,
  makePrivateKey,
} from './issuing/certificate-issuer.ts';
import type { LocalCa } from './local-ca/local-ca.ts';
import { freshJob, withPolicy } from './renewal-schedule.ts';

interface CertificateRenewalSettings {
  /** Null: the gateway's own CA issues the certificates of reserved domains. */
  acme?: AcmeSettings | null;
  /** Null: wildcard domains cannot be validated with ACME. */
  challengeDns?: ChallengeDnsSettings | null;
}

interface ProvisioningParts extends IssuerParts {
  /** Of several gateways that share a database, one renews. Null: this gateway is the only one. */
  cluster: {
    readonly primary: { whileSelf(start: () => () => Promise<void>): void };
    /** Values of challenges at a name, of orders at any gateway. */
    challengesAt(name: string): readonly string[];
  } | null;
  activity: Activity;
  log: Log;
  onStop: (stop: () => Promise<void>) => void;
}

/**
 * Starts obtaining and renewing the certificates of reserved domains and of the gateway's own names, and answering their
 * challenges.
 *
 * @throws the system's error when the challenge DNS cannot bind its port
 */
export async function startCertificateRenewal(
  { acme = null, challengeDns = null }: CertificateRenewalSettings,
  parts: ProvisioningParts,
): Promise<{
  /** Port of the challenge DNS; null when it is off. */
  dnsPort: number | null;
  wake: () => void;
}> {
  const { store, domains, cluster, activity, log, onStop } = parts;
  const dnsPort = challengeDns && (await startChallengeDns(challengeDns, parts));
  const issuer = chooseIssuer(acme, parts);
  const running = new Set<() => void>();
  const provision = <Row extends ManagedDomainRow>(table: ManagedTable<Row>) => {
    const start = () => {
      const renewal = new CertificateRenewal({ store, domains: table, issuer, clock: systemClock, activity, log });
      const wake = () => renewal.wake();
      renewal.start();
      running.add(wake);
      return () => {
        running.delete(wake);
        return renewal.stop();
      };
    };
    if (cluster === null) onStop(start());
    else cluster.primary.whileSelf(start);
  };
  provision(store.reservedDomains);
  const names = ownNames(acme?.ownNames ?? 'none', domains, dnsPort !== null);
  if (await claimNames(names, acme?.directoryUrl ?? '', parts)) provision(store.ownDomains);
  const wake = () => {
    for (const each of running) each();
  };
  return { dnsPort, wake };
}

async function startChallengeDns(
  { host, port, nameServer }: ChallengeDnsSettings,
  { domains, challenges, cluster, log, onStop }: ProvisioningParts,
): Promise<number> {
  const { ChallengeDns } = await import('./challenges/challenge-dns.ts');
  const texts = (name: string) => [
    ...new Set([...challenges.txt.lookup(name), ...(cluster?.challengesAt(name) ?? [])]),
  ];
  const zone = { name: domains.acmeZone, nameServer, texts };
  const dns = new ChallengeDns({ host, port, zone }, { clock: systemClock, log });
  const chosen = await dns.start();
  onStop(() => dns.stop());
  return chosen;
}

/** @returns whether the gateway's own names need certificates */
async function claimNames(
  names: readonly string[],
  authority: string,
  { store, log }: ProvisioningParts,
): Promise<boolean> {
  // A read-only disk cannot keep certificates: every start would order them again.
  if (store.database.unwritable !== null) return false;
  try {
    await claimGatewayNames(store, names, { authority, private_key_type: 'ecdsa' });
  } catch (err) {
    log.error({ err }, 'gateway certificates not ordered: cannot write to the database');
  }
  return names.length > 0;
}

interface IssuerParts {
  ca: LocalCa;
  store: Store;
  domains: DomainSettings;
  challenges: Challenges;
  dataDir: string;
}

function chooseIssuer(acme: AcmeSettings | null, parts: IssuerParts): CertificateIssuer {
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
  const [{ AcmeAccountKey }, { AcmeCa }, { AcmeIssuer }] = await Promise.all([
    import('./acme/acme-account.ts'),
    import('./acme/acme-account.ts'),
    import('./acme/acme-issuer.ts'),
  ]);
  const key = new AcmeAccountKey(join(dataDir, 'gateway', 'acme-account.key'), store.box);
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
  /** Settles when the last key has been generated. */
  #turn: Promise<unknown> = Promise.resolve();

  constructor(private readonly ca: Pick<LocalCa, 'certify'>) {}

  async issue({ domain, privateKeyType }: IssueRequest, signal: AbortSignal): Promise<IssuedCertificate> {
    const privateKeyPem = await this.#makeKey(privateKeyType, signal);
    return { certificatePem: await this.ca.certify([domain], privateKeyPem), privateKeyPem };
  }

  /**
   * Generates one key at a time: on a small device an RSA key blocks one of the few worker threads for up to a minute, and
   * they also write files and look up names.
   */
  #makeKey(type: 'rsa' | 'ecdsa', signal: AbortSignal): Promise<string> {
    const key = this.#turn.then(() => {
      signal.throwIfAborted();
      return makePrivateKey(type);
    });
    this.#turn = key.catch(() => {});
    return key;
  }
}

/**
 * The gateway's own names that need certificates. The wildcard covers every endpoint directly below the base domain, and can
 * only be validated with DNS.
 */
function ownNames(choice: OwnNamesChoice, { baseDomain }: DomainSettings, answersDns: boolean): string[] {
  if (choice === 'none') return [];
  if (answersDns) return [`*.${baseDomain}`, baseDomain];
  const forBrowsers = [apiHost(baseDomain), signInHost(baseDomain)];
  return choice === 'all' ? [...forBrowsers, connectHost(baseDomain)] : forBrowsers;
}

/** The expected DNS records of the base domain and of its wildcard, which share one challenge name; null for other names. */
function ownTargets(domain: string, { baseDomain, acmeZone }: DomainSettings): DnsTargets | null {
  if (domain !== baseDomain && domain !== `*.${baseDomain}`) return null;
  return { cname_target: null, acme_challenge_cname_target: `gateway.${acmeZone}` };
}

/**
 * Makes these names the ones that are renewed; a changed policy orders new certificates. Jobs under way continue: frequent
 * restarts must not use up the rate limits of the certificate authority.
 */
export async function claimGatewayNames(
  { database, ids, now, ownDomains, tlsCertificates }: Store,
  names: readonly string[],
  policy: CertificatePolicy,
): Promise<void> {
  const isAsBefore = ({ domain, policy: before }: { domain: string; policy: CertificatePolicy | null }) =>
    names.includes(domain) && before?.authority === policy.authority;
  const known = ownDomains.managed();
  if (known.length === names.length && known.every(isAsBefore)) return;
  await database.write(() => {
    for (const row of known.filter(({ domain }) => !names.includes(domain))) {
      ownDomains.delete(row.id);
      tlsCertificates.discardManaged(row.certificate_id);
    }
    for (const domain of names) {
      const row = ownDomains.byName(domain);
      if (row && !isAsBefore(row)) ownDomains.update(withPolicy(row, policy, now()));
      if (row) continue;
      const common = { id: ids.next('rd'), created_at: now(), domain, certificate_id: null, renews_at: null };
      ownDomains.insert({ ...common, policy, job: freshJob(now()), due_at: now() });
    }
  });
}
