import { hash } from 'node:crypto';
import { isName, nameAt, trimSpace, valueAt } from '../../../lib/http/header-fields.ts';
import type { NamedPort } from '../../endpoints/port-names.ts';

/*
 * Cookies know no ports (RFC 6265, section 8.5): browsers send those of one port of an address to all of them, where other agents
 * are. So those that no script reads, as sessions usually are, have a mark in their names outside of the gateway: the port, and a
 * digest of the endpoint's name, as ports get other names in time.
 */

/** Also without a digest. */
const MARKED = /~\d{1,5}(?:-[\w-]{12})?$/;
/** Of the gateway's own pages, at ports that no endpoint has. */
const OF_GATEWAY = /^__Host-(?:device-agent|gateway-person)/;
const HTTP_ONLY = /;[^\w=;]*httponly[^\w=;]*(?:=[^;]*)?(?=;|$)/i;
const SECURE = /;[\t ]*secure[\t ]*(?:=[^;]*)?(?=;|$)/i;

/**
 * Takes the cookies of other endpoints, and of the gateway itself, out of the headers of a request, and the mark out of the
 * names of its own.
 *
 * @param headers flat name, value list; changes in place
 */
export function takeForeignCookies(headers: string[], place: NamedPort): void {
  for (let at = headers.length - 2; at >= 0; at -= 2) {
    if (!isName(nameAt(headers, at), 'cookie')) continue;
    const mark = markOf(place);
    const kept = valueAt(headers, at)
      .split(';')
      .flatMap((pair) => ownPair(trimSpace(pair), mark) ?? []);
    if (kept.length === 0) headers.splice(at, 2);
    else headers[at + 1] = kept.join('; ');
  }
}

function ownPair(pair: string, mark: string): string | null {
  const equals = pair.indexOf('=');
  const name = trimSpace(equals === -1 ? pair : pair.slice(0, equals));
  const marked = MARKED.exec(name);
  if (marked === null) return OF_GATEWAY.test(name) ? null : pair;
  if (marked[0] !== mark || equals === -1) return null;
  return name.slice(0, marked.index) + pair.slice(equals);
}

/**
 * Puts the mark into the names of cookies that a response sets, unless scripts may read them: these need the name, and a cookie
 * with the mark that they replace goes.
 *
 * @param headers flat name, value list; changes in place
 */
export function markCookies(headers: string[], place: NamedPort): void {
  for (let at = headers.length - 2; at >= 0; at -= 2) {
    if (!isName(nameAt(headers, at), 'set-cookie')) continue;
    const value = valueAt(headers, at);
    const end = value.search(/[=;]/);
    const name = trimSpace(end === -1 ? value : value.slice(0, end));
    // One without a name would be sent as if its value were a name.
    if (end === -1 || value[end] !== '=' || name === '') continue;
    const rest = value.slice(end);
    const marked = `${name}${markOf(place)}`;
    if (HTTP_ONLY.test(rest) || OF_GATEWAY.test(name) || MARKED.test(name)) headers[at + 1] = marked + secured(rest);
    else headers.splice(at + 2, 0, nameAt(headers, at), `${marked}=${attributesOf(rest)}; Max-Age=0`);
  }
}

/** At the end of a cookie's name. The digest is too long to find another name with the same one. */
function markOf({ name, port }: NamedPort): string {
  return `~${port}-${hash('sha256', name, 'base64url').slice(0, 12)}`;
}

/** Never sent over plain HTTP: other agents have tcp ports of the address. */
function secured(rest: string): string {
  return SECURE.test(rest) ? rest : `${rest}; Secure`;
}

/** The attributes without those that say how long a cookie lasts. */
function attributesOf(rest: string): string {
  const [, ...attributes] = rest.split(';');
  return attributes
    .filter((attribute) => !/^[^\w=]*(?:expires|max-age)/i.test(attribute))
    .map((attribute) => `;${attribute}`)
    .join('');
}
