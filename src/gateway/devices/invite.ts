import { X509Certificate } from 'node:crypto';
import type { z } from 'zod';
import { ApiError } from '../../lib/errors.ts';
import { createToken } from '../../lib/ids.ts';
import { parsePortRange } from '../../lib/network/port-range.ts';
import { formatJoinCode } from '../../management/join-code.ts';
import type { EnrolmentKeyCreate } from '../../management/resources/enrolment.ts';
import { freshJob } from '../certificates/renewal-schedule.ts';
import { type DomainSettings, isGatewayName, isUnderBaseDomain } from '../endpoints/domain-names.ts';
import type { EnrolmentKeyRow } from '../store/devices.ts';
import type { Store } from '../store/store.ts';
import { hashSecret } from '../store/tokens.ts';

interface Invitation {
  key: EnrolmentKeyRow;
  /** The key's secret, which is not stored. */
  secret: string;
  /** Whether its domain was reserved just now. */
  isNewSite: boolean;
}

/** Creates an enrolment key inside a transaction, with its site's domain and bot user. @throws {ApiError} 400 */
export function createEnrolmentKey(
  store: Store,
  domains: DomainSettings,
  body: z.output<typeof EnrolmentKeyCreate>,
): Invitation {
  const { site } = body;
  const isNewSite = ensureDomain(store, domains, site);
  const id = store.ids.next('ek');
  const { token, secret } = createToken(id);
  const key: EnrolmentKeyRow = {
    id,
    created_at: store.now(),
    description: body.description ?? null,
    metadata: body.metadata ?? null,
    site,
    owner_id: body.owner_id ?? ensureOwner(store, site),
    secret_hash: hashSecret(secret),
    max_uses: body.max_uses ?? null,
    uses: 0,
    expires_at: body.expires_at ?? null,
    revoked_at: null,
    needs_approval: body.needs_approval,
    tcp_ports: body.tcp_ports === undefined ? null : parsePortRange(body.tcp_ports),
    own_names_only: body.own_names_only,
    internal_names: body.internal_names,
    labels: body.labels,
  };
  store.enrolmentKeys.insert(key);
  return { key, secret: token, isNewSite };
}

/** How devices reach a gateway, and which CA they can trust. */
export interface GatewayPlace {
  /** Origin of the management API, with TLS. */
  origin: string;
  /** Whether another server, with a certificate of its own, serves that origin. */
  isProxied: boolean;
  signInOrigin: string;
  /** `host:port` for agents. */
  sessionAddress: string;
  /** Where else agents are taken, also by names before. */
  sessionAddresses: readonly string[];
  tcpHost: string;
  caPem: string;
  /** While the CA is being changed, the next one; else null. */
  nextCaPem: string | null;
  /** All of them, as `GET /ca.pem` shows them. */
  caBundle: string;
  /** Names whose certificates a public CA signs, as in the settings. */
  publicNames: 'none' | 'public' | 'all';
}

/** The code with which devices join: the secret, and where and how to use it. */
export function joinCode(
  {
    origin,
    isProxied,
    caPem,
    nextCaPem = null,
    publicNames,
  }: Pick<GatewayPlace, 'origin' | 'isProxied' | 'caPem' | 'publicNames'> & Partial<Pick<GatewayPlace, 'nextCaPem'>>,
  secret: string,
): string {
  const isAllPublic = publicNames === 'all';
  const pins = {
    pin: isAllPublic ? null : caPin(caPem),
    timePin: isAllPublic ? caPin(caPem) : null,
    nextPin: nextCaPem === null ? null : caPin(nextCaPem),
  };
  return formatJoinCode({ origin, ...pins, isPublic: isProxied || publicNames !== 'none', secret });
}

/** SHA-256 of a certificate, as `openssl x509 -fingerprint -sha256` shows it. */
function caPin(pem: string): Buffer {
  return Buffer.from(new X509Certificate(pem).fingerprint256.replaceAll(':', ''), 'hex');
}

/** Reserves the site's wildcard. Below the base domain it needs neither a reservation nor a certificate of its own. */
function ensureDomain(store: Store, domains: DomainSettings, site: string): boolean {
  if (site === domains.baseDomain) return false;
  const wildcard = `*.${site}`;
  if (isGatewayName(site, domains)) throw refusedSite('the gateway uses this name itself; choose another name');
  if (store.reservedDomains.byName(wildcard)) return false;
  const isOwn = isUnderBaseDomain(site, domains);
  if (!isOwn && !site.includes('.')) throw refusedSite('a wildcard needs a domain below the top-level domain');
  const now = store.now();
  store.reservedDomains.insert({
    id: store.ids.next('rd'),
    created_at: now,
    description: 'site of devices',
    metadata: null,
    domain: wildcard,
    certificate_id: null,
    http_endpoint_configuration_id: null,
    https_endpoint_configuration_id: null,
    policy: isOwn ? null : { authority: 'letsencrypt', private_key_type: 'rsa' },
    renews_at: null,
    job: isOwn ? null : freshJob(now),
    due_at: isOwn ? null : now,
  });
  return true;
}

function refusedSite(why: string): ApiError {
  return new ApiError(400, 'ERR_NGROK_450', `site: ${why}`);
}

/** The bot user of the site's newest key, else a new one. */
function ensureOwner(store: Store, site: string): string {
  const known = store.enrolmentKeys.newestOf(site);
  if (known && store.botUsers.isActive(known.owner_id)) return known.owner_id;
  const row = { id: store.ids.next('bot'), created_at: store.now(), name: site, active: true };
  store.botUsers.insert(row);
  return row.id;
}
