import { randomInt } from 'node:crypto';
import type { BindOptions, BindRequest } from '../../agent-protocol/messages.ts';
import { RpcError } from '../../agent-protocol/rpc.ts';
import { quote } from '../../lib/errors.ts';
import { type HostnameFlaw, hostnameFlaws, MAX_HOSTNAME } from '../../lib/network/hostname-grammar.ts';
import { urlHostOf } from '../../lib/network/ip-address.ts';
import type { Binding } from '../../management/resources/acl-rule.ts';
import { type DomainSettings, isInternalName } from './domain-names.ts';
import type { LiveEndpoint } from './live-view.ts';
import type { EndpointAddress, EndpointProtocol } from './online-endpoint.ts';

export interface AddressSettings {
  /** Names that the gateway chooses are below it; lower case. */
  baseDomain: string;
  /** The ports shared by all public endpoints that are told apart by name. */
  ports: Readonly<Record<'http' | 'https', number>>;
  tcpHost: string;
  /** The gateway's address, whose ports stand for names that no DNS has; left out: it has none. */
  byPort?: NamedPorts;
}

/** Ports of the gateway's address, which stand for names. */
interface NamedPorts {
  /** Without brackets, also for IPv6. */
  readonly ip: string;
  /** Whether clients need a port to reach an address. */
  needsPort(address: Pick<EndpointAddress, 'protocol' | 'internal' | 'host'>): boolean;
  /** Null: nobody has the port. */
  nameAt(port: number): string | null;
  /** Where clients reach a name; null: at no port yet. */
  urlOf(protocol: string, name: string): string | null;
  /** Where they reach it besides, by a name of the gateway's domain; null: nowhere. */
  domainUrlOf(address: EndpointAddress, domains: DomainSettings, httpsPort: number): string | null;
}

/** The address that an agent asks for; null where it leaves the choice to the gateway. */
export interface WantedAddress {
  readonly protocol: EndpointProtocol;
  readonly internal: boolean;
  readonly host: string | null;
  readonly port: number | null;
  /** The port of the gateway's address for a name that the gateway chooses; null: any. Left out: the address names none. */
  readonly namedPort?: number | null;
}

const DEFAULT_PORTS: Readonly<Record<EndpointProtocol, number | null>> = { http: 80, https: 443, tls: 443, tcp: null };

/** As agents write it: scheme and port are optional; the host is, too, when the gateway chooses it. */
const URL_PARTS = /^(?:([a-z][a-z0-9+.-]*):\/\/)?(\[[0-9a-f:.]+\]|[^/?#:@]*)(?::([^/?#@]*))?(.*)$/is;

/** @throws {RpcError} when the address is malformed or contradictory, or the gateway does not offer it */
export function wantedAddress(request: BindRequest, options: BindOptions, settings: AddressSettings): WantedAddress {
  const protocol = protocolOf(request.Proto);
  const given = givenAddress(protocol, options, request.Extra.Token, settings.baseDomain);
  return readAddress(protocol, given, request.Extra.Bindings, settings);
}

/** The address of a cloud endpoint; the port is null where it leaves the choice to the gateway. */
export interface CloudAddress extends Omit<EndpointAddress, 'port'> {
  readonly port: number | null;
}

/** The address that a cloud endpoint's URL names. @throws {RpcError} when it is malformed, or not offered */
export function addressOfUrl(url: string, bindings: readonly string[], settings: AddressSettings): CloudAddress {
  const [, scheme = ''] = URL_PARTS.exec(url) ?? [];
  if (scheme === '')
    throw new RpcError('ERR_NGROK_18022', 'the URL has no scheme; use https://, http://, tls:// or tcp://');
  const { protocol, internal, host, port } = readAddress(protocolOf(scheme.toLowerCase()), url, bindings, settings);
  if (host === null) throw new RpcError('ERR_NGROK_18001', 'the URL has no host');
  return { protocol, internal, host, port };
}

function readAddress(
  protocol: EndpointProtocol,
  given: string | null,
  bindings: readonly string[],
  settings: AddressSettings,
): WantedAddress {
  const named = readNamedPort(protocol, given, bindings, settings);
  if (named !== null) return named;
  const [host, port] = given === null ? [null, null] : parseAddress(given, protocol);
  const internal = isInternal(bindings, host, settings.baseDomain);
  if (internal) return internalAddress(protocol, host, port);
  if (protocol === 'tcp') return tcpAddress(host, port, settings);
  const publicPort = settings.ports[protocol === 'http' ? 'http' : 'https'];
  if (port !== null && port !== publicPort && port !== DEFAULT_PORTS[protocol]) {
    throw new RpcError(
      'ERR_NGROK_9035',
      `${protocol} endpoints of this gateway use port ${publicPort}, not ${port}; leave out the port`,
    );
  }
  return { protocol, internal, host: host === null ? null : checkEndpointName(host), port: publicPort };
}

/** An endpoint's address as the gateway shows it without a domain, `IP:port`: the name that has the port. */
function readNamedPort(
  protocol: EndpointProtocol,
  given: string | null,
  bindings: readonly string[],
  { byPort, ports }: AddressSettings,
): WantedAddress | null {
  const at = given === null || byPort === undefined || protocol === 'tcp' ? null : portIn(given, byPort.ip);
  if (at === null || byPort === undefined || isInternal(bindings, null, '')) return null;
  const scheme = /^[a-z]+(?=:\/\/)/i.exec(given ?? '')?.[0].toLowerCase() ?? protocol;
  if (scheme !== protocol)
    throw new RpcError('ERR_NGROK_9036', `the URL scheme ${quote(scheme)} does not match the protocol ${protocol}`);
  const host = at.port === null ? null : byPort.nameAt(at.port);
  const port = ports[protocol === 'http' ? 'http' : 'https'];
  return { protocol, internal: false, host, port, ...(host === null && { namedPort: at.port }) };
}

/** The port in `IP`, `IP:port` or `scheme://IP:port`, which names an address of the gateway; null: a text that names none. */
function portIn(text: string, ip: string): { port: number | null } | null {
  const bare = text
    .replace(/^[a-z]+:\/\//i, '')
    .replace(/\/$/, '')
    .toLowerCase();
  for (const host of ip.includes(':') ? [`[${ip}]`, ip] : [ip]) {
    if (bare === host) return { port: null };
    const port = bare.startsWith(`${host}:`) ? bare.slice(host.length + 1) : '';
    if (/^[1-9]\d{0,4}$/.test(port) && Number(port) <= 65_535) return { port: Number(port) };
  }
  return null;
}

/** The URL at which clients reach an endpoint. */
export function publicUrlOf(address: EndpointAddress, { byPort }: Pick<AddressSettings, 'byPort'>): string {
  const atPort = byPort?.needsPort(address) ? byPort.urlOf(address.protocol, address.host) : null;
  return atPort ?? urlOf(address);
}

export function urlOf({ protocol, host, port }: Omit<EndpointAddress, 'internal'>): string {
  return `${protocol}://${host}${port === DEFAULT_PORTS[protocol] ? '' : `:${port}`}`;
}

/** What endpoints compete for: clients of `https` and `tls` are told apart by the name alone. */
export function placeOf({ proto, host, port, internal }: Pick<LiveEndpoint, 'proto' | 'host' | 'port' | 'internal'>) {
  if (internal) return `internal ${proto}://${host}:${port}`;
  if (proto === 'tcp') return tcpPlace(port);
  return namePlace(proto === 'http' ? 'http' : 'tls', host);
}

export const tcpPlace = (port: number) => `tcp ${port}`;
export const namePlace = (port: 'http' | 'tls', name: string) => `${port} ${name}`;
/** The name in a {@link namePlace}. */
export const nameOfPlace = (place: string) => place.slice(place.indexOf(' ') + 1);

export function bindingOf({ protocol, host, port }: EndpointAddress): Binding {
  return protocol === 'tcp' ? { kind: 'address', address: `${host}:${port}` } : { kind: 'hostname', hostname: host };
}

/** The members of the answer's `Opts` that carry the address; an SDK that reconnects sends them back. */
export function addressOptions({ protocol, internal, host, port }: EndpointAddress): object {
  if (protocol === 'tcp') return { Addr: `${host}:${port}` };
  return { Domain: internal && port !== DEFAULT_PORTS[protocol] ? `${host}:${port}` : host };
}

function protocolOf(proto: string): EndpointProtocol {
  if (proto === 'http' || proto === 'https' || proto === 'tcp' || proto === 'tls') return proto;
  throw new RpcError('ERR_NGROK_332', `the protocol ${quote(proto)} is not supported; use http, https, tcp or tls`);
}

function givenAddress(protocol: EndpointProtocol, options: BindOptions, token: string, base: string): string | null {
  const { Addr, Domain, Hostname, Subdomain, URL } = options;
  const named = protocol === 'tcp' ? [Addr, URL] : [Domain, Hostname, Subdomain && `${Subdomain}.${base}`, URL];
  const [given, ...more] = named.filter((text) => text !== '');
  if (more.length > 0) throw new RpcError('ERR_NGROK_9021', 'the endpoint is named in more than one option; use one');
  return given ?? addressOfToken(token);
}

/** Carries an address across a restart of the gateway. It proves nothing: the gateway checks the address again. */
export function tokenFor(address: EndpointAddress): string {
  return Buffer.from(urlOf(address)).toString('base64url');
}

function addressOfToken(token: string): string | null {
  return token === '' ? null : Buffer.from(token, 'base64url').toString();
}

function parseAddress(text: string, protocol: EndpointProtocol): [host: string | null, port: number | null] {
  const [, scheme, host = '', port, rest = ''] = URL_PARTS.exec(text) ?? [];
  if (rest.startsWith('@') || (rest.startsWith('/') && rest !== '/')) {
    throw new RpcError(
      'ERR_NGROK_9037',
      `the URL of an endpoint cannot have credentials, a path, query or fragment: ${quote(rest)}`,
    );
  }
  if (rest !== '' && rest !== '/') throw new RpcError('ERR_NGROK_9034', `the address ${quote(text)} is malformed`);
  if (scheme !== undefined && scheme.toLowerCase() !== protocol) {
    throw new RpcError('ERR_NGROK_9036', `the URL scheme ${quote(scheme)} does not match the protocol ${protocol}`);
  }
  return [host === '' ? null : host.toLowerCase(), port === undefined ? null : parsePort(port)];
}

function parsePort(text: string): number {
  const port = /^[1-9]\d{0,4}$/.test(text) ? Number(text) : Number.NaN;
  if (port <= 65_535) return port;
  throw new RpcError('ERR_NGROK_9030', `the port ${quote(text)} is not a number from 1 to 65535`);
}

function isInternal(bindings: readonly string[], host: string | null, baseDomain: string): boolean {
  if (new Set(bindings).size < bindings.length) throw new RpcError('ERR_NGROK_15006', 'a binding is given twice');
  const unknown = bindings.find((binding) => binding !== 'public' && binding !== 'internal');
  if (unknown !== undefined) {
    throw new RpcError('ERR_NGROK_15005', `the binding ${quote(unknown)} is not supported; use public or internal`);
  }
  if (bindings.length > 1) throw new RpcError('ERR_NGROK_15005', 'an endpoint has exactly one binding');
  const named = host !== null && isInternalName(host, { baseDomain });
  const [binding = named ? 'internal' : 'public'] = bindings;
  if (named !== (binding === 'internal') && host !== null) {
    throw new RpcError('ERR_NGROK_9029', 'names of internal endpoints must end in .internal; other names must not');
  }
  return binding === 'internal';
}

function internalAddress(protocol: EndpointProtocol, host: string | null, port: number | null): WantedAddress {
  if (host?.startsWith('*')) throw new RpcError('ERR_NGROK_9029', 'an internal endpoint cannot be a wildcard');
  const chosen = port ?? DEFAULT_PORTS[protocol];
  if (chosen === null)
    throw new RpcError('ERR_NGROK_9035', 'an internal tcp endpoint needs a port: name.internal:port');
  return { protocol, internal: true, host: host === null ? null : checkEndpointName(host), port: chosen };
}

function tcpAddress(host: string | null, port: number | null, { tcpHost, byPort }: AddressSettings): WantedAddress {
  // Endpoints that were bound before the gateway got a domain keep their addresses.
  if (byPort && host === urlHostOf(byPort.ip)) return { protocol: 'tcp', internal: false, host, port };
  if (host !== null && host !== tcpHost) {
    throw new RpcError('ERR_NGROK_307', `tcp endpoints of this gateway use the host ${tcpHost}, not ${quote(host)}`);
  }
  return { protocol: 'tcp', internal: false, host: tcpHost, port };
}

/** Rules for names without a wildcard's `*.`; the first broken rule is reported. */
const RULES: readonly [code: string, problem: string, ...broken: HostnameFlaw[]][] = [
  ['ERR_NGROK_397', `is longer than ${MAX_HOSTNAME} characters`, 'too long'],
  ['ERR_NGROK_355', 'contains an underscore', 'underscore'],
  ['ERR_NGROK_326', 'contains a character other than a-z, 0-9, "-" and "."', 'character'],
  ['ERR_NGROK_327', 'contains an empty label ("..")', 'empty label'],
  [
    'ERR_NGROK_328',
    'has a label that does not start with a letter or digit',
    'starts with a dot',
    'label starts with a hyphen',
  ],
  [
    'ERR_NGROK_329',
    'has a label that does not end with a letter or digit',
    'ends with a dot',
    'label ends with a hyphen',
  ],
  ['ERR_NGROK_347', 'contains punycode that cannot be decoded', 'punycode'],
  ['ERR_NGROK_330', 'contains a double hyphen', 'double hyphen'],
  ['ERR_NGROK_396', 'has a label longer than 63 characters', 'label too long'],
];

/** @param wanted its first label can be `*` @throws {RpcError} when it is not a hostname */
export function checkEndpointName(wanted: string): string {
  const name = wanted.toLowerCase();
  const flaws = new Set(hostnameFlaws(name.replace(/^\*\./, '')));
  for (const [code, problem, ...broken] of RULES) {
    if (broken.some((flaw) => flaws.has(flaw))) throw new RpcError(code, `the domain ${quote(name)} ${problem}`);
  }
  return name;
}

const ADJECTIVES =
  'agile amber brave bright brisk calm clever cosmic crisp daring eager early fair gentle golden happy honest keen kind light lively lucky mellow merry noble polite proud quick quiet royal silent smart snowy solid sunny swift tidy vivid warm wise'.split(
    ' ',
  );
const NOUNS =
  'acorn badger beaver birch brook canyon cedar comet coral crane delta dune eagle falcon fern fjord forest fox glacier harbor heron island lagoon lark maple meadow otter owl panda pebble pine planet prairie raven reef river robin sparrow spruce willow'.split(
    ' ',
  );

/** A pronounceable name below the base domain. */
export function randomEndpointName(base: string): string {
  return `${pick(ADJECTIVES)}-${pick(NOUNS)}-${randomInt(1000, 10_000)}.${base}`;
}

function pick(words: readonly string[]): string {
  return words[randomInt(words.length)] ?? '';
}
