import type { GatewayContext } from '../context/gateway-context.ts';
import type { ManagedDomainRow } from '../store/domains.ts';
import { pendingRevocations } from './certificate-errands.ts';
import { CertificateRenewal } from './certificate-renewal.ts';
import type { Challenges } from './challenges/challenges.ts';
import { chooseIssuer } from './choose-issuer.ts';
import type { ManagedTable } from './early-renewal.ts';
import { claimGatewayNames, ownNames } from './gateway-names.ts';
import type { LocalCa } from './local-ca/local-ca.ts';
import { runErrands } from './run-errands.ts';

/** Starts obtaining and renewing certificates, and answering challenges. @throws the system's error for the DNS port */
export async function startCertificateRenewal(
  context: GatewayContext,
  own: {
    ca: LocalCa;
    challenges: Challenges;
    /** Of several gateways that share a database, one renews. Null: this gateway is the only one. */
    cluster: {
      readonly primary: { whileSelf(start: () => () => Promise<void>): void };
      /** Values of challenges at a name, of orders at any gateway. */
      challengesAt(name: string): readonly string[];
    } | null;
  },
): Promise<{
  /** Port of the challenge DNS; null when it is off. */
  dnsPort: number | null;
  wake: () => void;
}> {
  const { options, store, domains, clock, log, onStop } = context;
  const { acme = null, keepsOwnNames = false, challengeDns = null } = options;
  const { ca, challenges, cluster } = own;
  let dnsPort: number | null = null;
  if (challengeDns !== null) {
    const { ChallengeDns } = await import('./challenges/challenge-dns.ts');
    const { host, port, nameServer } = challengeDns;
    const texts = (name: string) => [
      ...new Set([...challenges.txt.lookup(name), ...(cluster?.challengesAt(name) ?? [])]),
    ];
    const zone = { name: domains.acmeZone, nameServer, texts };
    const dns = new ChallengeDns({ host, port, zone }, { clock, log });
    dnsPort = await dns.start();
    onStop(() => dns.stop());
  }
  const issuer = chooseIssuer(context, ca, challenges);
  const running = new Set<() => void>();
  const provision = <Row extends ManagedDomainRow>(table: ManagedTable<Row>) => {
    const start = () => {
      const renewal = new CertificateRenewal(context, table, issuer);
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
  const errands = () => runErrands(context, issuer);
  if (cluster === null) onStop(errands());
  else cluster.primary.whileSelf(errands);
  const names = ownNames(acme?.ownNames ?? 'none', domains, dnsPort !== null);
  const isKept = keepsOwnNames && names.length === 0;
  if (isKept && store.ownDomains.managed().length > 0) log.warn("certificates of the gateway's own names not renewed");
  if (!isKept && (await claimNames(context, names))) provision(store.ownDomains);
  const waiting = issuer.doErrands === undefined ? pendingRevocations(store.database).length : 0;
  if (waiting > 0) log.error({ names: waiting }, 'certificates not revoked: no ACME CA is set');
  const wake = () => {
    for (const each of running) each();
  };
  return { dnsPort, wake };
}

/** @returns whether the gateway's own names need certificates */
async function claimNames({ options, store, log }: GatewayContext, names: readonly string[]): Promise<boolean> {
  // A read-only disk cannot keep certificates: every start would order them again.
  if (store.database.unwritable !== null) return false;
  try {
    const authority = options.acme?.directoryUrl ?? '';
    await claimGatewayNames(store, names, { authority, private_key_type: 'ecdsa' });
  } catch (err) {
    log.error({ err }, 'gateway certificates not ordered: cannot write to the database');
  }
  return names.length > 0;
}
