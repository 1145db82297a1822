import {
  casForCode,
  changeAccountKey,
  type RevocationReason,
  type Row,
  revokeCertificate,
  type Store,
  waitingRevocation,
} from '../../gateway/offline/command-store.ts';
import { OperatorError } from '../../lib/errors.ts';
import { printable } from '../../lib/terminal-text.ts';
import type { GatewayServerSettings } from '../../settings/gateway-settings.ts';
import { jsonText, note, print } from '../output.ts';
import { withStore } from '../settings-place.ts';

/** Prints the status of automatic certificates, those of the gateway's own names first. */
export function listCertificates(settings: GatewayServerSettings, options: { json?: boolean }): Promise<void> {
  return withStore(settings, (store) => showCertificates(store, options));
}

function showCertificates({ ownDomains, reservedDomains, tlsCertificates }: Store, { json }: { json?: boolean }): void {
  const managed = [...ownDomains.managed(), ...reservedDomains.managed()];
  const endOf = ({ certificate_id: id }: Row<'ownDomains'>) => id && tlsCertificates.get(id)?.facts.not_after;
  if (json) {
    const shown = managed.map((row) => {
      const { error_code = null, msg = null, retries_at = null } = row.job ?? {};
      const next = {
        renews_at: row.job ? null : row.renews_at,
        is_pending: row.job !== null,
        error_code,
        msg,
        retries_at,
      };
      return { domain: row.domain, valid_until: endOf(row) ?? null, ...next };
    });
    return void print(jsonText(shown));
  }
  if (managed.length === 0) {
    note('No automatic certificates: no reserved domain has a management policy.');
    return;
  }
  const width = Math.max(...managed.map(({ domain }) => domain.length));
  for (const row of managed) {
    const ends = endOf(row);
    const waiting = waitingRevocation(row.domain, row.job ?? {});
    const parts = [...(ends ? [`valid until ${ends}`] : []), nextStep(row), ...(waiting ? [waiting] : [])];
    print(printable(`${row.domain.padEnd(width)}  ${parts.join('; ')}`));
  }
}

function nextStep({ job, renews_at }: Row<'ownDomains'>): string {
  if (!job) return `renews at ${renews_at}`;
  if (!job.error_code) return 'pending';
  return `${job.error_code}: ${job.msg} Next try at ${job.retries_at}.`;
}

/** Has a name's certificate replaced and revoked. @throws {OperatorError} when no CA can revoke it for the gateway */
export async function revokeDomain(
  settings: GatewayServerSettings,
  domain: string,
  { reason, now: isAtOnce = false }: { reason: RevocationReason; now?: boolean },
): Promise<void> {
  if (settings.acme === null) {
    throw new OperatorError(
      'certificate not revoked: the gateway orders certificates from its own CA, which cannot revoke; set GATEWAY_ACME_DIRECTORY to use an ACME CA',
    );
  }
  await withStore(settings, (store) =>
    revokeCertificate(store, domain.toLowerCase(), reason, { caPem: casForCode(settings, store).caPem, isAtOnce }),
  );
  const latest = reason === 'keyCompromise' ? ', or at the latest in 24 hours without another one' : '';
  const how = isAtOnce
    ? `The gateway revokes the certificate of ${domain} within a minute, and orders another one: until then, clients may refuse it.`
    : `The gateway orders another certificate for ${domain} within a minute and then revokes the one in use${latest}.`;
  note(how);
}

/** Has the account at the CA get another key. */
export async function rotateAccount(settings: GatewayServerSettings): Promise<void> {
  await withStore(settings, (store) => changeAccountKey(store));
  note('The gateway changes the key of its account at the CA within a minute; the account stays the same.');
}
