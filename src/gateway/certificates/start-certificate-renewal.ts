import { systemClock } from '../../lib/clock.ts';
import type { Log } from '../../lib/log.ts';
import type { AcmeSettings, ChallengeDnsSettings } from '../../settings/certificate-settings.ts';
import type { ManagedDomainRow } from '../store/managed-domains.ts';
import { CertificateRenewal, type ManagedTable } from './certificate-renewal.ts';
import { chooseIssuer, type IssuerParts } from './choose-issuer.ts';
import { claimGatewayNames, ownNames } from './gateway-names.ts';

/** How certificates are obtained. */
export interface CertificateRenewalSettings {
  /** Null: reserved domains get theirs from the gateway's own CA. */
  acme: AcmeSettings | null;
  /** Null: the challenges of wildcard domains are answered nowhere. */
  challengeDns: ChallengeDnsSettings | null;
}

interface ProvisioningParts extends IssuerParts {
  log: Log;
}

type OnStop = (stop: () => Promise<void>) => void;

/**
 * Has certificates obtained and renewed from now on, those of reserved domains and of the gateway's own names, and
 * answers the challenges that this takes.
 *
 * @param onStop is given the end of each thing that was started
 * @throws the system's error when the challenge DNS cannot have its port
 */
export async function startCertificateRenewal(
  { acme, challengeDns }: CertificateRenewalSettings,
  parts: ProvisioningParts,
  onStop: OnStop,
): Promise<{
  /** Port of the challenge DNS; null: there is none. */
  dnsPort: number | null;
  /** Looks at the reserved domains now. */
  wake: () => void;
}> {
  const { store, domains, log } = parts;
  const dnsPort = challengeDns && (await startChallengeDns(challengeDns, parts, onStop));
  const issuer = chooseIssuer(acme, parts);
  const provision = <Row extends ManagedDomainRow>(table: ManagedTable<Row>) => {
    const provisioner = new CertificateRenewal({ store, domains: table, issuer, clock: systemClock, log });
    provisioner.start();
    onStop(() => provisioner.stop());
    return provisioner;
  };
  const provisioner = provision(store.reservedDomains);
  const names = ownNames(acme?.ownNames ?? 'none', domains, dnsPort !== null);
  if (await claimNames(names, acme?.directoryUrl ?? '', parts)) provision(store.ownDomains);
  return { dnsPort, wake: () => provisioner.wake() };
}

/** @returns its port */
async function startChallengeDns(
  { host, port, nameServer }: ChallengeDnsSettings,
  { domains, challenges, log }: ProvisioningParts,
  onStop: OnStop,
): Promise<number> {
  const { ChallengeDns } = await import('./challenges/challenge-dns.ts');
  const zone = { name: domains.acmeZone, nameServer, texts: (name: string) => challenges.txt.lookup(name) };
  const dns = new ChallengeDns({ host, port, zone }, { clock: systemClock, log });
  const chosen = await dns.start();
  onStop(() => dns.stop());
  return chosen;
}

/** @returns whether the gateway's own names are to be looked after */
async function claimNames(
  names: readonly string[],
  authority: string,
  { store, log }: ProvisioningParts,
): Promise<boolean> {
  // Whatever was obtained would be forgotten, and ordered again with each start.
  if (!store.database.isDurable) return false;
  try {
    await claimGatewayNames(store, names, { authority, private_key_type: 'ecdsa' });
  } catch (err) {
    log.error({ err }, 'certificates of the gateway’s own names are not ordered: that could not be written down');
  }
  return names.length > 0;
}
