import { isName, nameAt, trimSpace, valueAt } from '../../../lib/http/header-fields.ts';
import { setsOwnCookie } from '../../../traffic-policy/sign-in/sign-in-cookies.ts';
import { hostNameOf } from '../http/headers.ts';

/** What responses may delete of their own origin. Cookies are not of an origin: browsers delete those of its neighbours, too. */
const OWN_SITE_DATA = ['"cache"', '"storage"', '"executionContexts"'];

/** With anything around the name that somebody may take for white space. */
const DOMAIN = /^[^\w=]*domain[^\w=]*(?:=|$)/i;

/**
 * Takes out of a response's headers what would set or delete cookies of others: those of sign-ins and share links, those for a
 * domain that names of the gateway share, and those of all neighbours at once (`Clear-Site-Data`).
 *
 * @param headers flat name, value list; changes in place
 * @param host that the client has asked for
 * @param ownNames of the gateway's services
 */
export function guardCookies(headers: string[], host: string, ownNames: Iterable<string>): void {
  for (let at = headers.length - 2; at >= 0; at -= 2) {
    const name = nameAt(headers, at);
    const isCookie = isName(name, 'set-cookie');
    if (!isCookie && !isName(name, 'clear-site-data')) continue;
    const value = valueAt(headers, at);
    const kept = isCookie ? keptCookie(value, ownNames) : keptSiteData(value, host, ownNames);
    if (kept === null) headers.splice(at, 2);
    else headers[at + 1] = kept;
  }
}

/** Takes the cookies of sign-ins and share links, which another gateway sets, out of the headers of its response. */
export function takeSetCookies(headers: string[]): string[] {
  const taken: string[] = [];
  for (let at = headers.length - 2; at >= 0; at -= 2) {
    if (isName(nameAt(headers, at), 'set-cookie') && setsOwnCookie(valueAt(headers, at)))
      taken.unshift(...headers.splice(at, 2));
  }
  return taken;
}

/**
 * A cookie as browsers would take it if the gateway's domain were a public suffix: for the host alone. Otherwise some of them
 * would make the heads of all requests too long, for the gateway and for other tenants.
 */
function keptCookie(value: string, ownNames: Iterable<string>): string | null {
  if (setsOwnCookie(value)) return null;
  if (!/domain/i.test(value)) return value;
  const [pair, ...attributes] = value.split(';');
  return [pair, ...attributes.filter((attribute) => !isForOthers(attribute, ownNames))].join(';');
}

function isForOthers(attribute: string, ownNames: Iterable<string>): boolean {
  if (!DOMAIN.test(attribute)) return false;
  const domain = trimSpace(attribute.slice(attribute.indexOf('=') + 1)).replace(/^\./, '');
  // Browsers decode what is no plain name, each in its way.
  if (!/^[\w.-]+$/.test(domain)) return true;
  return isAtOrBelow(ownNames, domain.toLowerCase());
}

function keptSiteData(value: string, host: string, ownNames: Iterable<string>): string | null {
  if (!isNeighbour(hostNameOf(host), ownNames)) return value;
  const kinds = value.split(',').map((kind) => trimSpace(kind));
  const kept = kinds.includes('"*"') ? OWN_SITE_DATA : kinds.filter((kind) => OWN_SITE_DATA.includes(kind));
  return kept.length === 0 ? null : kept.join(', ');
}

/** Whether a name of the gateway is at a domain or below it. */
function isAtOrBelow(ownNames: Iterable<string>, domain: string): boolean {
  for (const name of ownNames) if (name === domain || name.endsWith(`.${domain}`)) return true;
  return false;
}

/** Whether a host is at or below the domain of the gateway's names. */
function isNeighbour(host: string, ownNames: Iterable<string>): boolean {
  for (const name of ownNames) if (`.${host}`.endsWith(name.slice(name.indexOf('.')))) return true;
  return false;
}
