import { BoundedMap } from '../../lib/bounded-map.ts';
import { parseToken } from '../../lib/ids.ts';
import type { Log } from '../../lib/log/log.ts';
import { clientNetwork } from '../../lib/network/ip-address.ts';
import { systemClock } from '../../lib/time/clock.ts';
import { type RateLimit, RequestRate } from '../../lib/time/token-bucket.ts';
import { credentials } from '../../management/resources/credential.ts';
import { shareLinks } from '../../management/resources/share-link.ts';
import type { ShareLink, ShareLinksPort } from '../../traffic-policy/ports.ts';
import { CookieSeal } from '../sign-in/cookie-seal.ts';
import type { ShareLinkRow } from '../store/share-links.ts';
import type { Store } from '../store/store.ts';
import { secretMatches } from '../store/tokens.ts';

/** Attempts of a client network to open links. */
const ATTEMPTS: RateLimit = { requests: 30, windowMs: 60_000 };
/** Cookies that are kept open, in all some hundred kilobytes. */
const REMEMBERED_COOKIES = 1_000;
const MAX_OPENINGS = 1_000;
/** Milliseconds for which a browser that opens a link again takes no other use: double clicks, lost responses. */
const REPEATED_MS = 60_000;

type LinksStore = Pick<Store, 'box' | 'credentials' | 'database' | 'now' | 'shareLinks'>;

/**
 * Opens share links for policies. A change of a link takes effect on the next request.
 *
 * @returns a function of the id of who pays for the policy: an authtoken, a cloud endpoint or a TLS edge
 */
export function createShareLinks(
  store: LinksStore,
  log: Log,
  wallClock = Date.now,
  clock = systemClock,
): (payer: string) => ShareLinksPort {
  const cookies = new CookieSeal<string>(
    'share link',
    (purpose) => store.box.keyFor(purpose),
    REMEMBERED_COOKIES,
    wallClock,
  );
  const attempts = new RequestRate(ATTEMPTS, () => clock.now());
  const openings = new BoundedMap<string, { at: number; link: Promise<ShareLink | null> }>(MAX_OPENINGS);

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
    const use = async (token: string, host: string, client: string): Promise<ShareLink | null> => {
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
        if (before !== undefined && clock.now() - before.at < REPEATED_MS) {
          // It may have been revoked since.
          return withToken(token, host) === null ? null : before.link;
        }
        if (usable(token, host) === null) return null;
        const link = use(token, host, clientIp);
        if (key === null) return link;
        openings.set(key, { at: clock.now(), link });
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

function shown({ id, expires_at }: ShareLinkRow): ShareLink {
  return { id, expiresAt: Date.parse(expires_at) };
}
