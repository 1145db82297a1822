import type { z } from 'zod';
import { messageOf } from '../../../lib/errors.ts';
import { isBelowLocalhost } from '../../../lib/network/loopback-names.ts';
import type { OPERATIONS } from '../../../management/operations.ts';
import { tlsCertificates } from '../../../management/resources/certificate.ts';
import {
  type DnsCheck,
  type DnsRecordCheck,
  endpointConfigurations,
  type ReservedDomain,
  type ReservedDomainUpdate,
  reservedDomains,
} from '../../../management/resources/reserved-domain.ts';
import { discardManaged } from '../../certificates/certificate-errands.ts';
import { DnsLookup, findRecord, type NeededRecord, neededRecords } from '../../certificates/issuing/dns-check.ts';
import { freshJob, withoutPolicy, withPolicy } from '../../certificates/renewal-schedule.ts';
import { dnsTargets, isGatewayName, isUnderBaseDomain } from '../../endpoints/domain-names.ts';
import type { ReservedDomainRow } from '../../store/domains.ts';
import { changed } from '../../store/sql/table.ts';
import type { ApiContext } from '../api-context.ts';
import { type ActionsOf, type ApiCaller, found } from '../operation-router.ts';
import { refuse } from '../request.ts';
import { shownPart, storedActions } from './stored-actions.ts';

type Update = z.output<typeof ReservedDomainUpdate>;

type Detachable =
  | 'certificate'
  | 'certificate_management_policy'
  | 'http_endpoint_configuration'
  | 'https_endpoint_configuration';

export function domainActions(context: ApiContext) {
  return {
    reservedDomains: reservedDomainActions(context),
    endpointConfigurations: storedActions(context, {
      resource: endpointConfigurations,
      rows: context.store.endpointConfigurations,
      inUse: [1619, 'A reserved domain still uses this endpoint configuration.'],
    }),
  };
}

function reservedDomainActions(context: ApiContext): ActionsOf<typeof OPERATIONS.reservedDomains> {
  const { store, live, wakeCertificateRenewal } = context;
  const { database, reservedDomains: rows } = store;
  const shown = (row: ReservedDomainRow) => showDomain(context, row);
  const stored = (id: string) => found(rows.get(id), reservedDomains);
  /** Updates a domain, and deletes the automatic certificate that it no longer uses. */
  const replace = (before: ReservedDomainRow, after: ReservedDomainRow) => {
    rows.update(after);
    if (before.certificate_id !== after.certificate_id) discardManaged(store, before);
  };
  const detach = (what: Detachable) => async (id: string, _body: undefined, caller: ApiCaller) => {
    await database.write(() => {
      const row = stored(id);
      replace(row, detached(row, what));
    }, caller);
    wakeCertificateRenewal();
  };
  return {
    get: (id) => shown(stored(id)),
    list: (before, limit, filters) => shownPart(rows.chosen(before, limit, filters), shown),
    async create({ domain, description, metadata, certificate_id, certificate_management_policy: policy }, caller) {
      const answer = await database.write(() => {
        checkName(context, domain);
        // First: a certificate that fits would not help.
        if (rows.byName(domain)) throw refuse(400, 413, 'domain: already reserved');
        checkCertificateSource(context, domain, { certificate_id, certificate_management_policy: policy });
        const now = store.now();
        const row: ReservedDomainRow = {
          id: store.ids.next('rd'),
          created_at: now,
          description: description ?? null,
          metadata: metadata ?? null,
          domain,
          certificate_id: certificate_id ?? null,
          http_endpoint_configuration_id: null,
          https_endpoint_configuration_id: null,
          policy: policy ?? null,
          renews_at: null,
          job: policy ? freshJob(now) : null,
          due_at: policy ? now : null,
        };
        rows.insert(row);
        return shown(row);
      }, caller);
      if (policy) wakeCertificateRenewal();
      return answer;
    },
    async update(id, body, caller) {
      const answer = await database.write(() => {
        const row = stored(id);
        const changes = withoutPresentCertificate(body, row);
        checkCertificateSource(context, row.domain, changes);
        checkConfigurations(context, changes);
        const next = applyUpdate(row, changes, store.now());
        replace(row, next);
        return shown(next);
      }, caller);
      wakeCertificateRenewal();
      return answer;
    },
    async delete(id, _body, caller) {
      const { domain } = await database.write(() => {
        const row = stored(id);
        const isNamed = (host: string) => rows.covering(host)?.id === id;
        if (store.tlsEdges.hostsUnder(row.domain).some(isNamed))
          throw refuse(400, 446, 'in use: a TLS edge serves a hostport of this domain');
        if (store.cloudEndpoints.hostsUnder(row.domain).some(isNamed))
          throw refuse(400, 446, 'in use: a cloud endpoint serves a name of this domain');
        rows.delete(id);
        discardManaged(store, row);
        return row;
      }, caller);
      wakeCertificateRenewal();
      await live.revoke({ domain });
    },
    detachCertificate: detach('certificate'),
    detachCertificateManagementPolicy: detach('certificate_management_policy'),
    detachHttpEndpointConfiguration: detach('http_endpoint_configuration'),
    detachHttpsEndpointConfiguration: detach('https_endpoint_configuration'),
    checkDns: dnsChecker(context),
  };
}

function checkName({ domains }: ApiContext, domain: string): void {
  if (isGatewayName(domain, domains))
    throw refuse(400, 450, 'domain: the gateway uses this name itself; choose another name');
}

/** Terraform repeats the certificate's id in every update, also beside a policy. */
function withoutPresentCertificate(body: Update, row: ReservedDomainRow): Update {
  return body.certificate_id === row.certificate_id ? { ...body, certificate_id: undefined } : body;
}

function checkCertificateSource(
  { store, domains }: ApiContext,
  domain: string,
  { certificate_id, certificate_management_policy }: Pick<Update, 'certificate_id' | 'certificate_management_policy'>,
): void {
  if (certificate_id !== undefined && certificate_management_policy !== undefined) {
    throw refuse(400, 434, 'certificate_id and certificate_management_policy exclude each other');
  }
  if (isUnderBaseDomain(domain, domains)) {
    const why = "names below the gateway's own domain use the gateway's certificate";
    if (certificate_management_policy) throw refuse(400, 439, `certificate_management_policy: ${why}`);
    if (certificate_id !== undefined) throw refuse(400, 440, `certificate_id: ${why}`);
  }
  // Only uploaded ones: an automatic certificate is deleted when its own domain gets a newer one.
  if (certificate_id === undefined) return;
  const certificate = store.tlsCertificates.get(certificate_id);
  if (certificate?.issued_at !== null) throw refuse(400, 1965, 'certificate_id: no uploaded certificate has this id');
  const names = certificate.facts.subject_alternative_names.dns_names.map((name) => name.toLowerCase());
  // A wildcard stands for one label (RFC 6125, section 6.4.3).
  if (names.includes(domain) || names.includes(domain.replace(/^[^.]+/, '*'))) return;
  const named = names.length === 0 ? 'no name' : names.slice(0, MAX_NAMES).join(', ');
  throw refuse(400, 1965, `certificate_id: clients would refuse the certificate for ${domain}: it is for ${named}`);
}

/** Names of a certificate in a message. */
const MAX_NAMES = 5;

function checkConfigurations({ store }: ApiContext, body: Update): void {
  for (const type of ['http', 'https'] as const) {
    const member = `${type}_endpoint_configuration_id` as const;
    const id = body[member];
    if (id === undefined) continue;
    const configuration = store.endpointConfigurations.get(id);
    if (!configuration) throw refuse(400, 1600, `${member}: no endpoint configuration has this id`);
    if (configuration.type !== type) throw refuse(400, 428, `${member}: must be of type ${type}`);
  }
}

function applyUpdate(row: ReservedDomainRow, body: Update, now: string): ReservedDomainRow {
  const { certificate_id, certificate_management_policy: policy, resolves_to: _, ...others } = body;
  const next = changed(row, others);
  if (certificate_id !== undefined) return { ...withoutPolicy(next), certificate_id };
  return policy ? withPolicy(next, policy, now) : next;
}

function detached(row: ReservedDomainRow, what: Detachable): ReservedDomainRow {
  switch (what) {
    case 'certificate':
      if (row.policy !== null && row.certificate_id !== null) {
        throw refuse(
          400,
          436,
          'the certificate belongs to the certificate management policy; detach the policy instead',
        );
      }
      return { ...row, certificate_id: null };
    case 'certificate_management_policy':
      return row.policy === null ? row : { ...withoutPolicy(row), certificate_id: null };
    case 'http_endpoint_configuration':
      return { ...row, http_endpoint_configuration_id: null };
    case 'https_endpoint_configuration':
      return { ...row, https_endpoint_configuration_id: null };
  }
}

export function showDomain({ store, links, domains }: ApiContext, row: ReservedDomainRow): ReservedDomain {
  const { job } = row;
  return {
    id: row.id,
    uri: links.of(reservedDomains, row.id),
    created_at: row.created_at,
    ...(row.description !== null && { description: row.description }),
    ...(row.metadata !== null && { metadata: row.metadata }),
    domain: row.domain,
    region: '',
    ...dnsTargets(row.domain, store.account, domains),
    certificate: links.refOrNull(tlsCertificates, row.certificate_id),
    certificate_management_policy: row.policy,
    certificate_management_status: row.policy && {
      renews_at: row.renews_at,
      provisioning_job: job && {
        error_code: job.error_code,
        msg: job.msg,
        started_at: job.started_at,
        retries_at: job.retries_at,
      },
    },
    http_endpoint_configuration: links.refOrNull(endpointConfigurations, row.http_endpoint_configuration_id),
    https_endpoint_configuration: links.refOrNull(endpointConfigurations, row.https_endpoint_configuration_id),
    error_redirect_url: null,
  };
}

const DEADLINE_MS = 15_000;
/** Each check asks the resolver a few questions. */
const MAX_RUNNING = 8;

/** Looks up the records of reserved domains at the gateway's resolver, and connects to nothing that they lead to. */
function dnsChecker({ store, domains, dnsServers }: ApiContext): (id: string) => Promise<DnsCheck> {
  const running = new Map<string, Promise<DnsCheck>>();
  const check = async (domain: string): Promise<DnsCheck> => {
    const { baseDomain } = domains;
    const needsDns = !isBelowLocalhost(domain) && baseDomain !== 'localhost' && !isBelowLocalhost(baseDomain);
    const needed = needsDns ? neededRecords(domain, dnsTargets(domain, store.account, domains)) : [];
    const lookup = new DnsLookup(dnsServers, AbortSignal.timeout(DEADLINE_MS));
    const records = await Promise.all(needed.map((record) => shownRecord(record, lookup)));
    return { checked_at: store.now(), records };
  };
  return (id) => {
    const { domain } = found(store.reservedDomains.get(id), reservedDomains);
    const present = running.get(domain);
    if (present) return present;
    if (running.size >= MAX_RUNNING) {
      throw refuse(429, 226, `too many DNS checks: at most ${MAX_RUNNING} at a time`, { retryAfter: 5 });
    }
    const started = check(domain).finally(() => running.delete(domain));
    running.set(domain, started);
    return started;
  };
}

async function shownRecord({ name, target, purpose }: NeededRecord, lookup: DnsLookup): Promise<DnsRecordCheck> {
  try {
    const { inPlace, found: text } = await findRecord({ name, target, purpose }, lookup);
    return { name, target, purpose, in_place: inPlace, found: text };
  } catch (error) {
    return { name, target, purpose, in_place: false, found: messageOf(error).replace(/\.$/, '') };
  }
}
