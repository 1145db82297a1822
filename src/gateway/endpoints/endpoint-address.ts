import type { BindRequest, EndpointOptions } from '../../agent-protocol/messages.ts';
import { RpcError } from '../../agent-protocol/rpc-error.ts';
import { quote } from '../../lib/quote.ts';
import type { Binding } from '../../management/resources/acl-rule.ts';
import { isInternalName } from './domain-names.ts';
import type { EndpointAddress, EndpointProtocol } from './endpoint.ts';
import { checkEndpointName } from './endpoint-name.ts';

export interface AddressSettings {
  /** Names that the gateway chooses are below it; lower case. */
  baseDomain: string;
  /** The ports shared by all public endpoints that are told apart by name. */
  ports: Readonly<Record<'http' | 'https', number>>;
  tcpHost: string;
}

/** The address that an agent asks for; null where it leaves the choice to the gateway. */
export interface WantedAddress {
  readonly protocol: EndpointProtocol;
  readonly internal: boolean;
  readonly host: string | null;
  readonly port: number | null;
}

const DEFAULT_PORTS: Readonly<Record<EndpointProtocol, number | null>> = { http: 80, https: 443, tls: 443, tcp: null };

/** As agents write it: scheme and port are optional; the host is, too, when the gateway chooses it. */
const URL_PARTS = /^(?:([a-z][a-z0-9+.-]*):\/\/)?([^/?#:@]*)(?::([^/?#@]*))?(.*)$/is;

/**
 * Reads the address that a BIND asks for.
 *
 * @throws {RpcError} when it is malformed or contradictory, or the gateway does not offer it
 */
export function wantedAddress(
  request: BindRequest,
  options: EndpointOptions,
  settings: AddressSettings,
): WantedAddress {
  const protocol = protocolOf(request.Proto);
  const given = givenAddress(protocol, options, request.Extra.Token, settings.baseDomain);
  const [host, port] = given === null ? [null, null] : parseAddress(given, protocol);
  const internal = isInternal(request.Extra.Bindings, host, settings.baseDomain);
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

export function urlOf({ protocol, host, port }: Omit<EndpointAddress, 'internal'>): string {
  return `${protocol}://${host}${port === DEFAULT_PORTS[protocol] ? '' : `:${port}`}`;
}

/** The binding that a credential must allow for an address. */
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

/** The address from whichever member carries it; null when none does. */
function givenAddress(
  protocol: EndpointProtocol,
  options: EndpointOptions,
  token: string,
  base: string,
): string | null {
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

function tcpAddress(host: string | null, port: number | null, { tcpHost }: AddressSettings): WantedAddress {
  if (host !== null && host !== tcpHost) {
    throw new RpcError('ERR_NGROK_307', `tcp endpoints of this gateway use the host ${tcpHost}, not ${quote(host)}`);
  }
  return { protocol: 'tcp', internal: false, host: tcpHost, port };
}
