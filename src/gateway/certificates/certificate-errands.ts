import { X509Certificate } from 'node:crypto';
import { z } from 'zod';
import { OperatorError } from '../../lib/errors.ts';
import type { ManagedDomainRow, ProvisioningJob } from '../store/domains.ts';
import type { Store } from '../store/store.ts';
import { SEALED_FACTS } from '../store/stored-secrets.ts';
import { parseFact } from '../store/update-facts.ts';
import { makePrivateKey } from './issuing/certificate-issuer.ts';
import { freshJob, latestRevocation, restartedJob } from './renewal-schedule.ts';

/*
 * Requests of commands to the gateway that orders certificates. The database keeps them until they are done, also over kill -9.
 */

/** Why a certificate is revoked, and the number of it (RFC 5280, section 5.3.1). */
export const REVOCATION_REASONS = { keyCompromise: 1, superseded: 4, cessationOfOperation: 5 } as const;
export type RevocationReason = keyof typeof REVOCATION_REASONS;

/** Row of `facts`: certificates to revoke, most of them no longer in use. */
const REVOCATIONS = 'acme_revocations';
/** Row of `facts`: the key that the account at the CA is to have, encrypted. */
const NEXT_KEY = 'acme_account_next_key';

const revocations = z.array(z.object({ certificate: z.string(), reason: z.string() }));
type Revocation = z.output<typeof revocations>[number];

type Facts = Pick<Store['database'], 'fact' | 'setFact' | 'forgetFact'>;

/**
 * Has a name's certificate replaced by one with another key, and then revoked; when its key has leaked, within a day in any case.
 * Works while the gateway runs, or before it starts.
 *
 * @param caPem of the gateway's own CA; null: unknown
 * @param isAtOnce revokes it first, while the name still has no other one
 * @throws {OperatorError} when no CA can revoke it for the gateway
 */
export function revokeCertificate(
  store: Store,
  domain: string,
  reason: RevocationReason,
  { caPem = null, isAtOnce = false }: { caPem?: string | null; isAtOnce?: boolean } = {},
): Promise<void> {
  const { ownDomains, reservedDomains, now } = store;
  return store.database.write(() => {
    const [own, reserved] = [ownDomains.byName(domain), reservedDomains.byName(domain)];
    const row = own ?? reserved;
    if (!row?.policy || row.certificate_id === null) {
      throw new OperatorError(
        `${domain} has no automatic certificate: a certificate that was uploaded is revoked at the CA that issued it`,
      );
    }
    const pem = store.tlsCertificates.get(row.certificate_id)?.certificate_pem;
    if (pem && caPem !== null && new X509Certificate(pem).verify(new X509Certificate(caPem).publicKey)) {
      throw new OperatorError(
        `the certificate of ${domain} was issued by the gateway's own CA, which cannot revoke: only an ACME CA can`,
      );
    }
    if (isAtOnce && pem) noteRevocation(store.database, pem, reason);
    const order = { job: isAtOnce ? freshJob(now()) : revokingJob(row.job, reason, now()), due_at: now() };
    if (own) ownDomains.update({ ...own, ...order });
    else if (reserved) reservedDomains.update({ ...reserved, ...order });
  });
}

/** Repeated, it does not put the revocation off, and a key that has leaked stays so. */
function revokingJob(before: ProvisioningJob | null, reason: RevocationReason, now: string): ProvisioningJob {
  const revokes = before?.revokes === 'keyCompromise' ? before.revokes : reason;
  if (revokes !== 'keyCompromise') return { ...freshJob(now), revokes };
  const revokes_by = restartedJob(now, before).revokes_by ?? latestRevocation(now);
  return { ...freshJob(now), revokes, revokes_by };
}

/**
 * Requests the revocations that have waited long enough for other certificates.
 *
 * @returns their names
 */
export async function requestOverdueRevocations<Row extends ManagedDomainRow>(
  { database, tlsCertificates, now }: Store,
  table: { overdue(now: string): Row[]; update(row: Row): void },
): Promise<string[]> {
  if (table.overdue(now()).length === 0) return [];
  return database.write(() => {
    const overdue = table.overdue(now());
    for (const row of overdue) {
      const { revokes, revokes_by: _, ...job } = row.job as ProvisioningJob;
      const pem = row.certificate_id === null ? null : tlsCertificates.get(row.certificate_id)?.certificate_pem;
      if (pem && revokes !== undefined) noteRevocation(database, pem, revokes);
      table.update({ ...row, job });
    }
    return overdue.filter(({ certificate_id }) => certificate_id !== null).map(({ domain }) => domain);
  });
}

/**
 * Deletes the automatic certificate that a name no longer uses, and has it revoked if that was to follow its replacement. Uploaded
 * certificates stay. Only inside a transaction.
 */
export function discardManaged(
  { database, tlsCertificates }: Pick<Store, 'database' | 'tlsCertificates'>,
  { certificate_id, job }: Pick<ManagedDomainRow, 'certificate_id' | 'job'>,
): void {
  const old = certificate_id === null ? null : tlsCertificates.get(certificate_id);
  if (!old?.issued_at) return;
  if (job?.revokes !== undefined) noteRevocation(database, old.certificate_pem, job.revokes);
  tlsCertificates.delete(old.id);
}

/** Requests the revocation of a certificate. Only inside a transaction. */
export function noteRevocation(database: Facts, certificate: string, reason: string): void {
  const others = pendingRevocations(database).filter((each) => each.certificate !== certificate);
  database.setFact(REVOCATIONS, JSON.stringify([...others, { certificate, reason }]));
}

export function pendingRevocations(database: Pick<Facts, 'fact'>): Revocation[] {
  return parseFact(revocations, database.fact(REVOCATIONS)) ?? [];
}

/** Only inside a transaction. */
export function forgetRevocation(database: Facts, certificate: string): void {
  const left = pendingRevocations(database).filter((each) => each.certificate !== certificate);
  if (left.length === 0) database.forgetFact(REVOCATIONS);
  else database.setFact(REVOCATIONS, JSON.stringify(left));
}

/** Has the account at the CA get another key. Repeated before that is done, it changes nothing. */
export async function changeAccountKey({ database, box }: Store): Promise<void> {
  const sealed = box.seal(await makePrivateKey('ecdsa'), SEALED_FACTS.acme_account_next_key).toString('base64');
  await database.write(() => {
    if (database.fact(NEXT_KEY) === null) database.setFact(NEXT_KEY, sealed);
  });
}

/** The key that the account is to have, as PEM; null: the one that it has. */
export function nextAccountKey({
  database,
  box,
}: Pick<Store, 'box'> & { database: Pick<Facts, 'fact'> }): string | null {
  const sealed = database.fact(NEXT_KEY);
  return sealed === null ? null : box.open(Buffer.from(sealed, 'base64'), SEALED_FACTS.acme_account_next_key);
}

/** Only inside a transaction. */
export function forgetNextKey(database: Facts): void {
  database.forgetFact(NEXT_KEY);
}
