import type { Log } from '../../lib/log/log.ts';
import { systemClock } from '../../lib/time/clock.ts';
import type { AcmeSettings, ChallengeDnsSettings } from '../../settings/certificate-settings.ts';
import type { ManagedDomainRow } from '../store/domains.ts';
import type { Activity } from '../store/events.ts';
import { CertificateRenewal, type ManagedTable } from './certificate-renewal.ts';
import { chooseIssuer, type IssuerParts } from './choose-issuer.ts';
import { claimGatewayNames, ownNames } from './gateway-names.ts';

interface CertificateRenewalSettings {
  /** Null: the gateway's own CA issues the certificates of reserved domains. */
  acme?: AcmeSettings | null;
  /** Whether certificates of the gateway's own names stay as they are when `acme` names none. */
  keepsOwnNames?: boolean;
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

/** Starts obtaining and renewing certificates, and answering challenges. @throws the system's error for the DNS port */
export async function startCertificateRenewal(
  { acme = null, keepsOwnNames = false, challengeDns = null }: CertificateRenewalSettings,
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
  const isKept = keepsOwnNames && names.length === 0;
  if (isKept && store.ownDomains.managed().length > 0) log.warn("certificates of the gateway's own names not renewed");
  if (!isKept && (await claimNames(names, acme?.directoryUrl ?? '', parts))) provision(store.ownDomains);
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
