import { X509Certificate } from 'node:crypto';
import { caIdOf, certificatesIn } from '../../../lib/tls/pinned-chain.ts';
import { keyFingerprint, USED_WITH_CA } from '../../store/open-gateway-store.ts';
import type { Database } from '../../store/sql/database.ts';
import type { Store } from '../../store/store.ts';
import { freshJob } from '../renewal-schedule.ts';

/** Rows of `facts`. A key is encrypted, and bound to the name of {@link CA_KEY}. */
export const CA_CERTIFICATE = 'ca_certificate';
export const CA_KEY = 'ca_key';
const NEXT_CERTIFICATE = 'ca_next_certificate';
const NEXT_KEY = 'ca_next_key';
const NEXT_TIMES = 'ca_next_times';
/** Ids of CAs that have ended, so that a folder with one gets the present one. */
const ENDED = 'ca_ended';
/** PEM of every certificate that a present CA has had: codes have the digest of one. */
const CERTIFICATES = 'ca_certificates';

/** A CA that comes after the present one, beside which it is until that ends. */
export interface NextCa {
  readonly caPem: string;
  readonly id: string;
  /** RFC 3339. */
  readonly since: string;
  /** When the present CA ends; null: by a command. */
  readonly endsAt: string | null;
}

interface Times {
  since: string;
  endsAt: string | null;
}

/** @returns null when the CA is not being changed */
export function nextCa(database: Database): NextCa | null {
  const caPem = database.fact(NEXT_CERTIFICATE);
  const times = database.fact(NEXT_TIMES);
  if (caPem === null || times === null) return null;
  return { caPem, id: caIdOf(new X509Certificate(caPem)), ...(JSON.parse(times) as Times) };
}

/** How far a change of the CA is. */
export interface CaChange {
  readonly since: string;
  /** When the present CA ends; null: by a command. */
  readonly ends_at: string | null;
  readonly followed: number;
  /** Devices that do not trust the next CA yet, as far as they have said so. */
  readonly missing: readonly string[];
}

/** @param most so many missing devices are named; left out: all @returns null when the CA is not being changed */
export function caChange({ database, devices }: Pick<Store, 'database' | 'devices'>, most?: number): CaChange | null {
  const next = nextCa(database);
  if (next === null) return null;
  const missing = devices.notTrusting(next.id, most).map(({ name, site }) => `${name}.${site}`);
  return { since: next.since, ends_at: next.endsAt, followed: devices.trusting(next.id), missing };
}

/** The PEM of the next CA's key. @throws when the encryption key does not decrypt it */
export function nextCaKey({ database, box }: Pick<Store, 'database' | 'box'>): string {
  return box.open(Buffer.from(database.fact(NEXT_KEY) ?? '', 'base64'), CA_KEY);
}

/** Changes with everything that decides which CAs a gateway has. */
export function caState(database: Database): string {
  const facts = [CA_CERTIFICATE, NEXT_CERTIFICATE, NEXT_TIMES].map((name) => database.fact(name) ?? '');
  return facts.join('\n');
}

/**
 * Begins a change of the CA, or sets when the one that was begun ends: the next CA is trusted beside the present one from here on.
 *
 * @param made the next CA, if none has been begun
 * @returns whether it was begun just now
 */
export function beginCaChange(
  { database, box, now }: Pick<Store, 'database' | 'box' | 'now'>,
  made: { caPem: string; keyPem: string },
  endsAt: string | null | undefined,
): Promise<boolean> {
  const sealed = box.seal(made.keyPem, CA_KEY).toString('base64');
  return database.write(() => {
    const present = nextCa(database);
    const since = present?.since ?? now();
    if (present === null) {
      database.setFact(NEXT_CERTIFICATE, made.caPem);
      database.setFact(NEXT_KEY, sealed);
    }
    const times: Times = { since, endsAt: endsAt === undefined ? (present?.endsAt ?? null) : endsAt };
    database.setFact(NEXT_TIMES, JSON.stringify(times));
    return present === null;
  });
}

/**
 * Ends the present CA: the next one takes its place. What it has signed for reserved domains is ordered again.
 *
 * @param present so that a repetition does not end the next one as well
 * @param dueAt in milliseconds since 1970: only if the date that was set has come; null: in any case
 * @returns whether it was ended just now
 */
export function endCa(
  store: Store,
  present: { readonly id: string; readonly caPem: string },
  dueAt: number | null = null,
): Promise<boolean> {
  const { database, now, reservedDomains, tlsCertificates } = store;
  return database.write(() => {
    const next = nextCa(database);
    const key = database.fact(NEXT_KEY);
    const ended = endedCas(database);
    if (next === null || key === null || next.id === present.id) return false;
    if (ended.includes(next.id) || ended.includes(present.id)) return false;
    if (dueAt !== null && !hasCome(next.endsAt, dueAt)) return false;
    const before = new X509Certificate(present.caPem);
    database.setFact(CA_CERTIFICATE, next.caPem);
    database.setFact(CA_KEY, key);
    database.setFact(ENDED, JSON.stringify([...ended, present.id]));
    database.setFact(USED_WITH_CA, keyFingerprint(next.caPem));
    forgetNextCa(database);
    keepCertificates(database, [next.caPem]);
    for (const row of reservedDomains.managed()) {
      const certificate = row.certificate_id === null ? null : tlsCertificates.get(row.certificate_id);
      if (!certificate || !new X509Certificate(certificate.certificate_pem).checkIssued(before)) continue;
      reservedDomains.update({ ...row, job: freshJob(now()), due_at: now() });
    }
    return true;
  }, null);
}

/** Whether the date at which a CA ends has come; null: it has none. */
export function hasCome(endsAt: string | null, now: number): boolean {
  return endsAt !== null && Date.parse(endsAt) <= now;
}

/** Ends a change of the CA without one, for example when the next CA's key is lost. Only inside a transaction. */
export function forgetNextCa(database: Database): void {
  for (const name of [NEXT_CERTIFICATE, NEXT_KEY, NEXT_TIMES]) database.forgetFact(name);
}

export function endedCas(database: Database): string[] {
  return JSON.parse(database.fact(ENDED) ?? '[]') as string[];
}

/** The certificates that the present CAs have had, also before they were renewed. */
export function knownCertificates(database: Database): string[] {
  return JSON.parse(database.fact(CERTIFICATES) ?? '[]') as string[];
}

/** Remembers certificates of the present CAs, and forgets those of others. */
export async function noteCertificates({ database }: Pick<Store, 'database'>, present: readonly string[]) {
  const known = knownCertificates(database);
  if (present.every((pem) => known.includes(pem))) return;
  await database.write(() => keepCertificates(database, present), null);
}

function keepCertificates(database: Database, present: readonly string[]): void {
  const ids = present.map(idIn);
  const kept = [...new Set([...present, ...knownCertificates(database)])].filter((pem) => ids.includes(idIn(pem)));
  database.setFact(CERTIFICATES, JSON.stringify(kept.slice(0, MAX_CERTIFICATES)));
}

/** A CA is renewed every eight years. */
const MAX_CERTIFICATES = 8;

function idIn(pem: string): string {
  const [certificate] = certificatesIn(pem);
  return certificate ? caIdOf(certificate) : '';
}
