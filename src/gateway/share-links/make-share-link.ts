import { randomBytes } from 'node:crypto';
import type { z } from 'zod';
import { ApiError } from '../../lib/errors.ts';
import { createToken } from '../../lib/ids.ts';
import type { ShareLinkCreate } from '../../management/resources/share-link.ts';
import { takesShareLinks } from '../../traffic-policy/access.ts';
import { coveringNames } from '../endpoints/domain-names.ts';
import { type AddressSettings, urlOf } from '../endpoints/endpoint-address.ts';
import type { LiveEndpoint, LiveView } from '../endpoints/live-view.ts';
import type { ShareLinkRow } from '../store/share-links.ts';
import type { Caller } from '../store/sql/database.ts';
import { type Store, timestamp } from '../store/store.ts';
import { hashSecret } from '../store/tokens.ts';

/** Links that one owner of endpoints can have at a time. */
const MAX_LINKS = 1_000;

export interface ShareLinksContext {
  store: Store;
  live: Pick<LiveView, 'endpoints' | 'revoke'>;
  addresses: AddressSettings;
}

/**
 * Makes a link to an endpoint that is online.
 *
 * @param credentialId the authtoken that must have the endpoint; null: the operator asks, for an endpoint of anyone
 * @returns its row, and the link, which is not stored
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

/**
 * Deletes a link. Resolves when no gateway lets anybody in by it.
 *
 * @returns false when there is none
 */
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
export function endpointAt(
  host: string,
  live: Pick<LiveView, 'endpoints'>,
  credentialId: string | null,
): LiveEndpoint | null {
  const names = coveringNames(host);
  const covering = new Set(names);
  const serving = live
    .endpoints()
    .filter(({ proto, internal, host: name }) => proto === 'https' && !internal && covering.has(name));
  const served = new Set(serving.map((endpoint) => endpoint.host));
  const name = names.find((each) => served.has(each));
  const members = serving.filter((endpoint) => endpoint.host === name);
  const own = credentialId === null ? members : members.filter((endpoint) => endpoint.credentialId === credentialId);
  return own.find(({ access }) => takesShareLinks(access ?? [])) ?? own[0] ?? null;
}

/** @throws {ApiError} 400 */
function hostIn(text: string): string {
  const url = URL.canParse(text) ? new URL(text) : null;
  const isPlain = url?.pathname === '/' && url.search === '' && url.username === '' && url.hash === '';
  const isPublic = url?.protocol === 'https:' && !url.hostname.endsWith('.internal');
  if (isPublic && isPlain && !url.hostname.includes('*')) return url.hostname;
  throw new ApiError(
    400,
    'ERR_NGROK_215',
    'url: must be the URL of a public https endpoint, such as https://cam.example.com',
  );
}
