import { randomBytes } from 'node:crypto';
import type { z } from 'zod';
import { BoundedMap } from '../../lib/bounded-map.ts';
import { ApiError } from '../../lib/errors.ts';
import { createToken, parseToken } from '../../lib/ids.ts';
import type { Log } from '../../lib/log/log.ts';
import { clientNetwork, isAddressOfUrl } from '../../lib/network/ip-address.ts';
import { systemClock } from '../../lib/time/clock.ts';
import { type RateLimit, RequestRate } from '../../lib/time/token-bucket.ts';
import { credentials } from '../../management/resources/credential.ts';
import { type ShareLinkCreate, shareLinks } from '../../management/resources/share-link.ts';
import { takesShareLinks } from '../../traffic-policy/access.ts';
import type { ShareLinksPort, UsedShareLink } from '../../traffic-policy/ports.ts';
import { coveringNames } from '../endpoints/domain-names.ts';
import { type AddressSettings, namePlace, urlOf } from '../endpoints/endpoint-address.ts';
import type { LiveEndpoint, LiveView } from '../endpoints/live-view.ts';
import { CookieSeal } from '../sign-in/cookie-seal.ts';
import type { ShareLinkRow } from '../store/share-links.ts';
import type { Caller } from '../store/sql/database.ts';
import { type Store, timestamp } from '../store/store.ts';
import { hashSecret, secretMatches } from '../store/tokens.ts';

/** Attempts of a client network to open links. */
const ATTEMPTS: RateLimit = { requests: 30, windowMs: 60_000 };
/** Cookies that are kept open, in all some hundred kilobytes. */
const REMEMBERED_COOKIES = 1_000;
const MAX_OPENINGS = 1_000;
/** Milliseconds for which a browser that opens a link again takes no other use: double clicks, lost responses. */
const REPEATED_MS = 60_000;

type LinksStore = Pick<Store, 'box' | 'credentials' | 'database' | 'now' | 'shareLinks'>;

/** Opens share links for policies. @returns a function of the payer: an authtoken, cloud endpoint or TLS edge */
export function createShareLinks(store: LinksStore, log: Log): (payer: string) => ShareLinksPort {
  const cookies = new CookieSeal<string>(
    'share link',
    (purpose) => store.box.keyFor(purpose),
    REMEMBERED_COOKIES,
    Date.now,
  );
  const attempts = new RequestRate(ATTEMPTS, () => systemClock.now());
  const openings = new BoundedMap<string, { at: number; link: Promise<UsedShareLink | null> }>(MAX_OPENINGS);

  return (payer) => {
    const present = (id: string, host: string): ShareLinkRow | null => {
      const row = store.shareLinks.get(id);
      if (row === null || row.host !== host || row.expires_at <= store.now()) return null;
      return row.owner === ownerOf(payer, store) ? row : null;
    };
    const withToken = (token: string, host: string): ShareLinkRow | null => {
      const parts = parseToken(token);
      const row = parts && present(shareLinks.idPrefix + parts.ksuid, host);
      return row && secretMatches(parts.secret, row.secret_hash) ? row : null;
    };
    const usable = (token: string, host: string): ShareLinkRow | null => {
      const row = withToken(token, host);
      return row && (row.max_uses === null || row.uses < row.max_uses) ? row : null;
    };
    const use = async (token: string, host: string, client: string): Promise<UsedShareLink | null> => {
      const used = await store.database.write(() => {
        const row = usable(token, host);
        if (row !== null) store.shareLinks.update({ ...row, uses: row.uses + 1, last_used_at: store.now() });
        return row;
      }, null);
      if (used !== null) log.info({ link: used.id, host, client }, 'share link opened');
      return used && shown(used);
    };
    return {
      cookies,
      find: (id, host) => {
        const row = present(id, host);
        return row && shown(row);
      },
      withToken: (token, host) => {
        const row = usable(token, host);
        return row && shown(row);
      },
      async open(token, host, browser, clientIp) {
        const key = browser === '' ? null : `${token} ${browser}`;
        const before = key === null ? undefined : openings.get(key);
        if (before !== undefined && systemClock.now() - before.at < REPEATED_MS) {
          // It may have been revoked since.
          return withToken(token, host) === null ? null : before.link;
        }
        if (usable(token, host) === null) return null;
        const link = use(token, host, clientIp);
        if (key === null) return link;
        openings.set(key, { at: systemClock.now(), link });
        // It was not used: the next attempt may succeed.
        link.catch(() => openings.delete(key));
        return link;
      },
      countAttempt: (clientIp) => attempts.take(clientNetwork(clientIp)),
    };
  };
}

/** Whose links open an endpoint, as its rows name the owner. */
export function ownerOf(payer: string, { credentials: authtokens }: Pick<Store, 'credentials'>): string | null {
  return payer.startsWith(credentials.idPrefix) ? (authtokens.get(payer)?.owner_id ?? payer) : null;
}

function shown({ id, expires_at }: ShareLinkRow): UsedShareLink {
  return { id, expiresAt: Date.parse(expires_at) };
}

/** Links that one owner of endpoints can have at a time. */
const MAX_LINKS = 1_000;

interface ShareLinksContext {
  store: Store;
  live: Pick<LiveView, 'find' | 'revoke'>;
  addresses: AddressSettings;
}

/**
 * Makes a link to an endpoint that is online. @returns its row, and the link, which is not stored
 * @param credentialId the authtoken that must have the endpoint; null: the operator asks, for an endpoint of anyone
 * @throws {ApiError} when nothing is online there, its policy takes no links, or its owner has too many
 */
export async function makeShareLink(
  { store, live, addresses }: ShareLinksContext,
  { url, expires_in, ...sent }: z.output<typeof ShareLinkCreate>,
  caller: Caller,
  credentialId: string | null,
): Promise<{ row: ShareLinkRow; link: string }> {
  const host = hostIn(url);
  const endpoint = endpointAt(host, live, credentialId);
  if (endpoint === null) {
    throw new ApiError(404, 'ERR_GATEWAY_NOT_ONLINE', `url: no tunnel is online at https://${host}; start it first`);
  }
  if (!takesShareLinks(endpoint.access ?? [])) {
    throw new ApiError(
      409,
      'ERR_GATEWAY_NO_SHARE_LINKS',
      `url: the policy of https://${host} takes no share links; add the action gateway-share-links to it`,
    );
  }
  const owner = endpointOwner(endpoint);
  await store.database.write(() => store.shareLinks.forgetExpired(store.now()), null);
  const { row, token } = await store.database.write(() => {
    if (store.shareLinks.countOfOwner(owner) >= MAX_LINKS) {
      throw new ApiError(
        409,
        'ERR_GATEWAY_TOO_MANY_SHARE_LINKS',
        `the owner of the endpoint has ${MAX_LINKS} share links, which is the maximum; revoke some`,
      );
    }
    const id = store.ids.next('sl');
    const created = store.now();
    const { token, secret } = createToken(id, randomBytes(32));
    const row: ShareLinkRow = {
      ...{ id, created_at: created, description: sent.description ?? null, metadata: sent.metadata ?? null },
      ...{ host, owner, secret_hash: hashSecret(secret), created_by: caller.by },
      ...{ expires_at: timestamp(Date.parse(created) + expires_in * 1000), max_uses: sent.max_uses ?? null },
      ...{ uses: 0, last_used_at: null },
    };
    store.shareLinks.insert(row);
    return { row, token };
  }, caller);
  // Also at the other gateways of a cluster.
  await live.revoke({});
  return { row, link: `${urlOfHost(host, addresses)}/ngrok/share/${token}` };
}

/** Deletes a link; resolves when no gateway lets anybody in by it. @returns false when there is none */
export async function revokeShareLink(
  { store, live }: Pick<ShareLinksContext, 'store' | 'live'>,
  id: string,
  caller: Caller,
): Promise<boolean> {
  const isDeleted = await store.database.write(() => store.shareLinks.delete(id), caller);
  await live.revoke({});
  return isDeleted;
}

/** The URL of what a link opens. */
export function urlOfHost(host: string, { ports }: AddressSettings): string {
  return urlOf({ protocol: 'https', host, port: ports.https });
}

/** Whose links open an endpoint, see the column of {@link ShareLinkRow}. */
export function endpointOwner({
  ownerId,
  credentialId,
}: Pick<LiveEndpoint, 'ownerId' | 'credentialId'>): string | null {
  return ownerId ?? credentialId;
}

/** The endpoint that serves a host, preferring one that takes links; null when there is none, or not of the authtoken. */
function endpointAt(host: string, live: Pick<LiveView, 'find'>, credentialId: string | null): LiveEndpoint | null {
  const serving = (name: string) =>
    live.find.endpointsAt(namePlace('tls', name)).filter(({ proto, internal }) => proto === 'https' && !internal);
  const members =
    coveringNames(host)
      .map(serving)
      .find((found) => found.length > 0) ?? [];
  const own = credentialId === null ? members : members.filter((endpoint) => endpoint.credentialId === credentialId);
  return own.find(({ access }) => takesShareLinks(access ?? [])) ?? own[0] ?? null;
}

/** @throws {ApiError} 400 */
function hostIn(text: string): string {
  const url = URL.canParse(text) ? new URL(text) : null;
  if (url && isAddressOfUrl(url.hostname))
    throw new ApiError(
      409,
      'ERR_GATEWAY_NO_SHARE_LINKS',
      'url: share links need a gateway with a domain: browsers send the cookies of one port of an address to all',
    );
  const isPlain = url?.pathname === '/' && url.search === '' && url.username === '' && url.hash === '';
  const isPublic = url?.protocol === 'https:' && !url.hostname.endsWith('.internal');
  if (isPublic && isPlain && !url.hostname.includes('*')) return url.hostname;
  throw new ApiError(
    400,
    'ERR_NGROK_215',
    'url: must be the URL of a public https endpoint, such as https://cam.example.com',
  );
}
