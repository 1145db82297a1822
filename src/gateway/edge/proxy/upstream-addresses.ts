import { isName, nameAt, valueAt } from '../../../lib/http/header-fields.ts';
import { isLoopbackHost } from '../../../lib/network/ip-address.ts';

interface Authority {
  readonly host: string;
  readonly port: number;
}

/** Request headers that name the site beside Host (RFC 9110, 10.1.3; RFC 6454; RFC 4918, 10.3). */
const NAMES_SITE: ReadonlySet<string> = new Set(['origin', 'referer', 'destination']);
/** Response headers that are a URL. */
const IS_URL: ReadonlySet<string> = new Set(['location', 'content-location']);
const CHANGED: ReadonlySet<string> = new Set([...IS_URL, 'refresh', 'set-cookie']);
const LENGTHS: ReadonlySet<number> = new Set([...CHANGED].map(({ length }) => length));
const ABSOLUTE = /^(?:(https?):)?\/\/([^/?#\s"'<>]+)/i;
const REFRESH = /^(\s*[\d.]+\s*[;,]\s*url\s*=\s*["']?)(.*)$/i;
const DOMAIN = /(;\s*domain\s*=\s*)\.?([^;\s]+)/i;

/**
 * Makes the headers of a request those of a client that knows the upstream by another name: Host, and what names the site.
 *
 * @param headers flat name, value list; changes in place
 * @param hostHeader `rewrite` for the upstream's own address, or a host with or without a port
 * @param forwardsTo the upstream's address, as the agent reports it
 */
export function nameUpstream(headers: string[], hostHeader: string, forwardsTo: string): void {
  const upstream = /^unix:/.test(forwardsTo) ? 'localhost' : forwardsTo.replace(/^[a-z]+:\/\//i, '').replace(/\/$/, '');
  const host = hostHeader === 'rewrite' ? upstream : hostHeader;
  const client = hostIn(headers);
  const scheme = /^(?:https|tls):/i.test(forwardsTo) ? 'https' : 'http';
  const site = new RegExp(`^https?://${client.replace(/[^\w-]/g, '\\$&')}(?=[/?#]|$)`, 'i');
  for (let at = 0; at < headers.length; at += 2) {
    const name = nameAt(headers, at).toLowerCase();
    if (name === 'host') headers[at + 1] = host;
    else if (NAMES_SITE.has(name)) headers[at + 1] = valueAt(headers, at).replace(site, `${scheme}://${host}`);
  }
}

/** The Host header of a request, which has one. */
export function hostIn(headers: readonly string[]): string {
  for (let at = 0; at < headers.length; at += 2) if (isName(nameAt(headers, at), 'host')) return valueAt(headers, at);
  return '';
}

/** The names that a response's upstream may have for itself. */
export interface UpstreamNames {
  /** The upstream's address, as the agent reports it. */
  readonly forwardsTo: string;
  /** The Host that it got. */
  readonly sentHost: string;
  /** The Host of the client, and the scheme by which it reached the endpoint. */
  readonly clientHost: string;
  readonly clientScheme: string;
}

/**
 * Makes what leads to the upstream's own address lead to the endpoint: clients cannot reach that address. URLs become paths; cookies
 * for another name that the upstream got become those of the client's.
 *
 * @param headers of a response, flat name, value list; changes in place
 * @param namesOf called when they are needed, which is seldom
 */
export function leadToEndpoint(headers: string[], namesOf: () => UpstreamNames): void {
  for (let at = 0; at < headers.length; at += 2) {
    const name = nameAt(headers, at);
    if (!LENGTHS.has(name.length)) continue;
    const lower = name.toLowerCase();
    if (!CHANGED.has(lower)) continue;
    const value = valueAt(headers, at);
    const names = namesOf();
    if (IS_URL.has(lower)) headers[at + 1] = pathOf(value, names);
    else if (lower === 'refresh')
      headers[at + 1] = value.replace(REFRESH, (_, before: string, url: string) => before + pathOf(url, names));
    else if (names.sentHost !== names.clientHost) headers[at + 1] = cookieOf(value, names);
  }
}

/** The path of a URL at the upstream; other URLs as they are. */
function pathOf(url: string, names: UpstreamNames): string {
  const [origin = '', scheme = 'http', authority = ''] = ABSOLUTE.exec(url) ?? [];
  const target = split(authority, scheme);
  if (target === null || !isUpstream(target, names)) return url;
  const rest = url.slice(origin.length);
  return rest.startsWith('/') ? rest : `/${rest}`;
}

/** Also the client's name with the port that the upstream listens on, of which it knows no other. */
function isUpstream(
  { host, port }: Authority,
  { forwardsTo, sentHost, clientHost, clientScheme }: UpstreamNames,
): boolean {
  const [, scheme = 'http', address = forwardsTo] = /^([a-z]+):\/\/(.*)$/i.exec(forwardsTo) ?? [];
  const upstream = forwardsTo.startsWith('unix:') ? null : split(address.replace(/\/$/, ''), scheme);
  const client = split(clientHost, clientScheme);
  const sent = split(sentHost, scheme);
  if (client !== null && host === client.host && port === client.port) return false;
  if (sent !== null && sentHost !== clientHost && host === sent.host && (port === sent.port || port === upstream?.port))
    return true;
  if (upstream === null || port !== upstream.port) return false;
  return host === upstream.host || host === client?.host || (isLoopbackHost(host) && isLoopbackHost(upstream.host));
}

function cookieOf(cookie: string, { sentHost, clientHost }: UpstreamNames): string {
  const sent = split(sentHost, 'http')?.host ?? '';
  const client = split(clientHost, 'http')?.host ?? '';
  return cookie.replace(DOMAIN, (all, before: string, domain: string) => {
    const lower = domain.toLowerCase();
    return sent === lower || sent.endsWith(`.${lower}`) ? before + client : all;
  });
}

/** @returns null when it is none */
function split(authority: string, scheme: string): Authority | null {
  const [, host, port] = /^\[?([^[\]@]+?)\]?(?::(\d{1,5}))?$/.exec(authority.toLowerCase()) ?? [];
  if (host === undefined) return null;
  return { host: host.replace(/\.$/, ''), port: port === undefined ? (/s$/i.test(scheme) ? 443 : 80) : Number(port) };
}
