import { isName, nameAt, trimSpace, valueAt } from '../../../lib/http/header-fields.ts';

/*
 * Cookies know no ports (RFC 6265, section 8.5): browsers send those of one port of an address to all of them, where other agents
 * are. So those that no script reads, as sessions usually are, have the port in their names outside of the gateway.
 */

/** Before the port, at the end of a cookie's name. */
const MARK = '~';
const MARKED = /~(\d{1,5})$/;
/** Of the gateway's own pages, at ports that no endpoint has. */
const OF_GATEWAY = /^__Host-(?:device-agent|gateway-person)/;
const HTTP_ONLY = /;[^\w=;]*httponly[^\w=;]*(?:=[^;]*)?(?=;|$)/i;
const SECURE = /;[\t ]*secure[\t ]*(?:=[^;]*)?(?=;|$)/i;

/**
 * Takes the cookies of other ports, and of the gateway itself, out of the headers of a request, and the port out of the names of
 * its own.
 *
 * @param headers flat name, value list; changes in place
 */
export function takeForeignCookies(headers: string[], port: number): void {
  for (let at = headers.length - 2; at >= 0; at -= 2) {
    if (!isName(nameAt(headers, at), 'cookie')) continue;
    const kept = valueAt(headers, at)
      .split(';')
      .flatMap((pair) => ownPair(trimSpace(pair), port) ?? []);
    if (kept.length === 0) headers.splice(at, 2);
    else headers[at + 1] = kept.join('; ');
  }
}

function ownPair(pair: string, port: number): string | null {
  const equals = pair.indexOf('=');
  const name = trimSpace(equals === -1 ? pair : pair.slice(0, equals));
  const marked = MARKED.exec(name);
  if (marked === null) return OF_GATEWAY.test(name) ? null : pair;
  if (Number(marked[1]) !== port || equals === -1) return null;
  return name.slice(0, marked.index) + pair.slice(equals);
}

/**
 * Puts the port into the names of cookies that a response sets, unless scripts may read them: these need the name, and a cookie
 * with the port that they replace goes.
 *
 * @param headers flat name, value list; changes in place
 */
export function markCookies(headers: string[], port: number): void {
  for (let at = headers.length - 2; at >= 0; at -= 2) {
    if (!isName(nameAt(headers, at), 'set-cookie')) continue;
    const value = valueAt(headers, at);
    const end = value.search(/[=;]/);
    const name = trimSpace(end === -1 ? value : value.slice(0, end));
    // One without a name would be sent as if its value were a name.
    if (end === -1 || value[end] !== '=' || name === '') continue;
    const rest = value.slice(end);
    const marked = `${name}${MARK}${port}`;
    if (HTTP_ONLY.test(rest) || OF_GATEWAY.test(name) || MARKED.test(name)) headers[at + 1] = marked + secured(rest);
    else headers.splice(at + 2, 0, nameAt(headers, at), `${marked}=${attributesOf(rest)}; Max-Age=0`);
  }
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
