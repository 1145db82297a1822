import { createPrivateKey, X509Certificate } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import {
  databaseProblems,
  endsSoon,
  expectGateway,
  type Row,
  readStore,
  type Store,
  type StoreLocation,
  undecryptable,
  undecryptableCounts,
} from '../../gateway/offline/command-store.ts';
import { hasErrno, messageOf, OperatorError } from '../../lib/errors.ts';
import { ownCommand } from '../../lib/process/own-command.ts';
import { failed, NotKnown, ok, type Result, skipped, summarize } from '../finding.ts';

/** Judges the database's integrity, without its encryption key. */
export function databaseResults(location: StoreLocation): Result {
  return withGateway(location, () => {
    const [problem, ...more] = databaseProblems(location);
    if (problem === undefined) return ok('intact');
    const isCopy = (location.databaseUrl ?? null) !== null;
    const others = more.length > 0 ? ` and ${more.length} more` : '';
    return failed(
      `damaged: ${problem}${others}`,
      isCopy
        ? 'stop the gateway, move gateway.db* to another folder and start it: the copy of the shared database is made again'
        : 'stop the gateway and restore a backup; docs/operations.md describes how',
    );
  });
}

/** Judges the files that belong to the database: its encryption key and the gateway's CA. */
export async function companionResults(location: StoreLocation, now: number): Promise<Result[]> {
  const folder = join(location.dataDir, 'gateway');
  const caPem = await readIfThere(join(folder, 'ca.pem'));
  const keyPem = await readIfThere(join(folder, 'ca-key.pem'));
  if (caPem === null && keyPem === null)
    return [withGateway(location, () => failed(`${join(folder, 'ca.pem')} is missing`, RESTORE))];
  if (keyPem === null) return [failed(`${join(folder, 'ca-key.pem')} is missing`, RESTORE)];
  if (caPem === null) return [skipped('will be created when the gateway starts')];
  try {
    const ca = new X509Certificate(caPem);
    if (!ca.checkPrivateKey(createPrivateKey(keyPem))) return [failed('ca.pem does not match ca-key.pem', RESTORE)];
    const ends = Date.parse(ca.validTo);
    if (ends < now) return [failed(`the CA expired at ${iso(ends)}`, 'restart the gateway, which renews it')];
    return [ok(`the CA is valid until ${iso(ends)}`)];
  } catch (error) {
    return [failed(`the CA is damaged: ${messageOf(error)}`, RESTORE)];
  }
}

/** Judges whether the encryption key decrypts what is in the database. */
export function keyResults(location: StoreLocation): Result | Result[] {
  return readGateway(location, (store) => {
    const found = undecryptable(store);
    if (found === null) return ok('it is the one of the database');
    const counts = undecryptableCounts(found);
    if (!found.isForeignKey)
      return failed(
        `it does not decrypt ${counts}`,
        `upload or set these again: ${ownCommand('gateway keys')} names them`,
      );
    return failed(
      `it is not the one that the database was used with${counts === '' ? '' : `, and does not decrypt ${counts}`}`,
      `restore that key; if it is lost for good, stop the gateway and run ${ownCommand('gateway keys replace-lost')}`,
    );
  });
}

const RESTORE = 'restore ca.pem and ca-key.pem from a backup: without them, no device trusts this gateway';

/** Judges the certificates in the database: automatic ones and those that were uploaded for reserved domains. */
export function certificateResults(location: StoreLocation, now: number): Result | Result[] {
  return readGateway(location, (store) => {
    const rows = [
      ...store.ownDomains.managed(),
      ...store.reservedDomains.where('certificate_id IS NOT NULL OR policy IS NOT NULL', []),
    ];
    if (rows.length === 0) return ok('none besides those of its own CA');
    const results = rows.map((row) => judge(row, store, now));
    return summarize(
      results,
      (count) => `${count} ${count === 1 ? 'name has a certificate' : 'names have certificates'}`,
    );
  });
}

function judge({ domain, certificate_id, job, policy }: Row<'ownDomains'>, store: Store, now: number): Result {
  if (job?.error_code) {
    return failed(`${domain}: ${job.error_code}: ${job.msg}`, `the gateway tries again at ${job.retries_at}`);
  }
  const facts = certificate_id === null ? undefined : store.tlsCertificates.get(certificate_id)?.facts;
  if (facts === undefined) return skipped(`${domain}: the certificate is being issued`);
  const { not_before: begins, not_after: ends } = facts;
  if (!endsSoon(begins, ends, now)) return ok(domain);
  const when = Date.parse(ends) < now ? 'expired' : 'expires';
  const advice = policy === null ? 'upload a new certificate' : 'check that the gateway runs, and its log';
  return failed(`${domain}: the certificate ${when} at ${ends}`, advice);
}

/** Judges the destinations of events by what their last deliveries have come to. */
export function eventResults(location: StoreLocation): Result | Result[] {
  return readGateway(location, (store) => {
    const rows = store.eventDestinations.where('id > ?', ['']);
    if (rows.length === 0) return ok('no destinations');
    const results = rows.map(({ id, address }) => {
      const { failing_since: since = null, error = null } = store.eventDeliveries.get(id) ?? {};
      const refused = store.refusedEvents.countOf(id);
      if (since === null && refused > 0)
        return failed(
          `${address} has refused events, which were passed over: ${refused}`,
          `see why on the page of ${id} in the dashboard; then send them again, or let them go`,
        );
      if (since === null) return ok(address);
      const advice = `fix the receiver, or change the target of ${id}; events wait until then`;
      return failed(`${address} has acknowledged no event since ${since}: ${error}`, advice);
    });
    return summarize(results, (count) => `${count} ${count === 1 ? 'destination gets' : 'destinations get'} events`);
  });
}

function readGateway<T extends Result | Result[]>(location: StoreLocation, read: (store: Store) => T): T | Result {
  return withGateway(location, () => readStore(location, read));
}

/** Opens what is there: a doctor must not create a gateway. */
function withGateway<T extends Result | Result[]>(location: StoreLocation, work: () => T): T | Result {
  try {
    expectGateway(location);
  } catch (error) {
    if (error instanceof OperatorError && error.exitCode === 2) throw new NotKnown('no gateway was started here yet');
    throw error;
  }
  try {
    return work();
  } catch (error) {
    if (error instanceof OperatorError) return failed(error.message, null);
    throw error;
  }
}

async function readIfThere(file: string): Promise<string | null> {
  try {
    return await readFile(file, 'utf8');
  } catch (error) {
    if (hasErrno(error, 'ENOENT')) return null;
    throw error;
  }
}

const iso = (time: number) => `${new Date(time).toISOString().slice(0, 19)}Z`;
