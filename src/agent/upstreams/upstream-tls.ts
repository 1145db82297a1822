import { constants, X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import { readFile, stat } from 'node:fs/promises';
import { isIP } from 'node:net';
import tls, { type ConnectionOptions, createSecureContext, type SecureContext, type TLSSocket } from 'node:tls';
import { BoundedMap } from '../../lib/bounded-map.ts';
import { messageOf } from '../../lib/errors.ts';
import { displayUpstream, isNamed, type TcpUpstream, type Upstream } from '../../lib/network/upstream-address.ts';
import { printable } from '../../lib/terminal-text.ts';
import { DeadlineExceeded, withDeadline } from '../../lib/time/deadline.ts';
import { checkServerIdentity } from '../../lib/tls/tls-options.ts';
import { TLS_VERSIONS, type TlsVersion, UpstreamFault, UpstreamTls } from '../connectors/connector.ts';
import { AgentError } from '../errors/agent-error.ts';

/** How to connect to one https upstream, with the defaults of the agent. */
export interface TlsTarget {
  upstream: TcpUpstream;
  /** How to connect to it without TLS. */
  connection: ConnectionOptions;
  options: UpstreamTls;
  /** What counts where the tunnel says nothing. */
  verifyByDefault: boolean;
  /** PEM of the CAs that count without a file. */
  upstreamCas: () => string;
  protocol: 'h2' | 'http/1.1';
  connectMs: number;
}

const DEFAULT_VERSION: TlsVersion = '1.2';
const WEAK = 'set upstream_tls_min_version to 1.0, which is weak';
const UNVERIFIED = 'or set upstream_tls_verify to false';
const MAX_CONTEXTS = 64;
/** More than a certificate authority's file has. */
const MAX_CA_BYTES = 4 * 1024 * 1024;

/** Contexts cost milliseconds each, as they parse all CAs. A file is read again for each connection, as it can change. */
const contexts = new BoundedMap<string, { pem: string | null; context: SecureContext }>(MAX_CONTEXTS);
/** Attempts to find out what an upstream speaks; concurrent failures share one. */
const attempts = new Map<string, Promise<string | null>>();

/** The options with which the agent connects to the upstream of a tunnel; empty unless it is https. */
export function tlsOf(upstream: Upstream, tunnel: object): UpstreamTls {
  if (upstream.kind !== 'tcp' || upstream.scheme !== 'https') return {};
  const options = UpstreamTls.safeParse(tunnel).data ?? {};
  const name = options.upstream_tls_server_name ?? nameForAddress(upstream, tunnel);
  return { ...options, ...(name !== undefined && { upstream_tls_server_name: name }) };
}

/** A device that is known by its address only has the name that the tunnel gives it as Host. */
function nameForAddress(upstream: TcpUpstream, { host_header: host }: { host_header?: unknown }): string | undefined {
  if (isNamed(upstream) || typeof host !== 'string' || host === 'rewrite' || host.startsWith('[')) return undefined;
  return host.replace(/:\d+$/, '');
}

/**
 * Connects with TLS.
 *
 * @throws {UpstreamFault} when TLS fails, in words; otherwise the system's error
 */
export async function connectTls(target: TlsTarget): Promise<TLSSocket> {
  const { upstream, options, verifyByDefault, connectMs } = target;
  const verify = options.upstream_tls_verify ?? verifyByDefault;
  const minVersion = options.upstream_tls_min_version ?? DEFAULT_VERSION;
  const socket = openTls(target, await contextFor(target, verify, minVersion));
  let isConnected = false;
  socket.once('connect', () => {
    isConnected = true;
  });
  try {
    await withDeadline(once(socket, 'secureConnect'), 'connecting', connectMs);
  } catch (error) {
    socket.destroy();
    throw isConnected ? await handshakeFault(error, target, minVersion) : error;
  }
  // Checked here rather than by Node, whose error does not say what the certificate is.
  if (verify && !socket.authorized) {
    const fault = certificateFault(socket, serverNameOf(upstream, options));
    socket.destroy();
    throw fault;
  }
  return socket;
}

/** @throws {AgentError} 400 when the file with the CAs, if one is set, cannot be used now */
export async function checkCaFile({ upstream_tls_ca_file: path }: UpstreamTls): Promise<void> {
  if (path === undefined) return;
  try {
    checkCas(await readCas(path));
  } catch (cause) {
    const problem = messageOf(cause);
    const details = { upstream_tls_ca_file: problem };
    throw new AgentError('ERR_AGENT_INVALID_REQUEST', `upstream_tls_ca_file: ${problem}`, { details, cause });
  }
}

/** Devices and pipes could be read forever. */
async function readCas(path: string): Promise<string> {
  const found = await stat(path);
  if (!found.isFile() || found.size > MAX_CA_BYTES) throw new Error(`${path} is not a file of at most 4 MiB`);
  return readFile(path, 'utf8');
}

function checkCas(pem: string): void {
  const certificates = pem.match(/-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g) ?? [];
  if (certificates.length === 0) throw new Error('the file has no certificate as PEM');
  for (const certificate of certificates) new X509Certificate(certificate);
}

/** A half-open connection; errors without another listener are ignored. */
function openTls(target: TlsTarget, secureContext: SecureContext): TLSSocket {
  const { upstream, connection, options, protocol } = target;
  const name = serverNameOf(upstream, options);
  const socket = tls.connect({
    ...connection,
    ...(isIP(name) === 0 && { servername: name }),
    secureContext,
    ALPNProtocols: [protocol],
    rejectUnauthorized: false,
    checkServerIdentity: (_, certificate) => checkServerIdentity(name, certificate),
  });
  return socket.on('error', () => {});
}

function serverNameOf({ host }: TcpUpstream, { upstream_tls_server_name: name }: UpstreamTls): string {
  return name ?? host;
}

async function contextFor(target: TlsTarget, verify: boolean, minVersion: TlsVersion): Promise<SecureContext> {
  const { upstream, options, upstreamCas } = target;
  const { upstream_tls_ca_file: file } = options;
  const ofSystem = isNamed(upstream) ? 'Node.js' : 'system';
  const source = verify ? (file ?? ofSystem) : 'none';
  const key = `${minVersion} ${source}`;
  const known = contexts.get(key);
  let pem: string | null = null;
  try {
    pem = verify && file !== undefined ? await readCas(file) : null;
    if (known?.pem === pem) return known.context;
    if (pem !== null) checkCas(pem);
  } catch (cause) {
    throw new UpstreamFault('cannot be verified', `upstream_tls_ca_file: ${messageOf(cause)}`, { cause });
  }
  const ca = pem ?? (source === 'system' ? upstreamCas() : undefined);
  const context = createSecureContext({ ...versionOptions(minVersion), ...(ca !== undefined && { ca }) });
  contexts.set(key, { pem, context });
  return context;
}

/** The weak versions come with what devices of their time need: old ciphers, small keys, SHA-1 and plain renegotiation. */
function versionOptions(version: TlsVersion): tls.SecureContextOptions {
  if (version === '1.2' || version === '1.3') return { minVersion: `TLSv${version}` };
  return {
    minVersion: version === '1.0' ? 'TLSv1' : 'TLSv1.1',
    ciphers: 'ALL:!aNULL:!eNULL:!PSK:!SRP:@SECLEVEL=0',
    secureOptions: constants.SSL_OP_LEGACY_SERVER_CONNECT,
  };
}

function codeOf(error: unknown): string {
  return error instanceof Error && 'code' in error ? String(error.code) : '';
}

async function handshakeFault(error: unknown, target: TlsTarget, minVersion: TlsVersion): Promise<Error> {
  const { upstream, options } = target;
  const fault = (summary: string, advice: string | null) => new UpstreamFault(summary, advice, { cause: error });
  const known = faultByCode(codeOf(error));
  const allowsWeak = minVersion < DEFAULT_VERSION;
  if (known?.says === 'weakness') return fault(known.summary, allowsWeak ? null : WEAK);
  const isClear = known?.says === 'cause' || minVersion === TLS_VERSIONS[0];
  const spoken = isClear ? null : await versionSpoken(target);
  if (spoken !== null && spoken < minVersion) {
    const weak = spoken < DEFAULT_VERSION ? ', which is weak' : '';
    return fault(`speaks TLS ${spoken} only`, `allow it with upstream_tls_min_version ${spoken}${weak}`);
  }
  // A connection that broke may work the next time.
  if (spoken !== null && !allowsWeak && codeOf(error).startsWith('ERR_SSL_'))
    return fault('needs outdated ciphers of TLS', WEAK);
  if (known) return fault(known.summary, known.advice?.(upstream, options) ?? null);
  if (error instanceof DeadlineExceeded) return fault('does not answer the TLS handshake', null);
  const reason = error instanceof Error && 'reason' in error ? printable(String(error.reason)) : null;
  if (reason !== null) return fault('fails the TLS handshake', reason);
  return fault('ends connections during the TLS handshake', null);
}

/**
 * Finds out which version of TLS an upstream speaks when everything is allowed.
 *
 * @returns such as `1.1`; null when it speaks none
 */
function versionSpoken(target: TlsTarget): Promise<string | null> {
  const { upstream, options } = target;
  const key = `${displayUpstream(upstream)} ${serverNameOf(upstream, options)} ${target.protocol}`;
  let attempt = attempts.get(key);
  if (attempt === undefined) {
    attempt = tryAnyVersion(target).finally(() => attempts.delete(key));
    attempts.set(key, attempt);
  }
  return attempt;
}

async function tryAnyVersion(target: TlsTarget): Promise<string | null> {
  const socket = openTls(target, await contextFor(target, false, '1.0'));
  try {
    await withDeadline(once(socket, 'secureConnect'), 'connecting', target.connectMs);
    const version = socket.getProtocol()?.replace(/^TLSv/, '') ?? '';
    return version === '1' ? '1.0' : version;
  } catch {
    return null;
  } finally {
    socket.destroy();
  }
}

interface FaultOfCode {
  codes: RegExp;
  summary: string;
  advice?: (upstream: TcpUpstream, options: UpstreamTls) => string | null;
  /** A weakness that can be allowed, another cause, or little: an attempt with all versions may say more. */
  says: 'weakness' | 'cause' | 'little';
}

const FAULTS: readonly FaultOfCode[] = [
  {
    codes:
      /WRONG_VERSION_NUMBER|PACKET_LENGTH_TOO_LONG|HTTP_REQUEST|UNKNOWN_PROTOCOL|RECORD_LAYER_FAILURE|BAD_RECORD_TYPE/,
    summary: 'does not speak TLS',
    says: 'cause',
    advice: (upstream) => `forward to ${displayUpstream({ ...upstream, scheme: 'http' })} if it speaks HTTP`,
  },
  {
    codes: /UNSUPPORTED_PROTOCOL|ALERT_PROTOCOL_VERSION|NO_PROTOCOLS_AVAILABLE/,
    summary: 'speaks no version of TLS that the agent supports',
    says: 'little',
  },
  {
    codes: /LEGACY_RENEGOTIATION/,
    summary: 'needs the legacy renegotiation of TLS',
    says: 'weakness',
  },
  {
    codes: /DH_KEY_TOO_SMALL|BAD_DH_VALUE|BAD_ECPOINT|MODULUS_TOO_SMALL/,
    summary: 'exchanges keys that are too small',
    says: 'weakness',
  },
  {
    codes: /(?:EE|CA)_KEY_TOO_SMALL/,
    summary: 'presents a certificate with a key that is too small',
    says: 'weakness',
  },
  {
    codes: /MD_TOO_WEAK|SIGNATURE_(?:TYPE|ALGORITHM)|UNKNOWN_DIGEST|LEGACY_SIGALG/,
    summary: 'signs with an outdated algorithm such as SHA-1',
    says: 'weakness',
  },
  {
    codes: /UNRECOGNIZED_NAME/,
    summary: 'does not know the server name',
    says: 'cause',
    advice: (upstream, options) =>
      `it was asked for ${serverNameOf(upstream, options)}; set upstream_tls_server_name to a name that it knows`,
  },
  {
    codes: /CERTIFICATE_REQUIRED|ALERT_BAD_CERTIFICATE|ALERT_NO_CERTIFICATE/,
    summary: 'requires a client certificate',
    says: 'cause',
    advice: () => 'the agent has none',
  },
  {
    codes: /NO_APPLICATION_PROTOCOL/,
    summary: 'does not speak the HTTP version of this tunnel',
    says: 'cause',
    advice: () => 'app_protocol sets it',
  },
  {
    codes: /HANDSHAKE_FAILURE|NO_CIPHERS?_|INSUFFICIENT_SECURITY|ALERT_INTERNAL_ERROR|NO_SHARED_CIPHER/,
    summary: 'refuses the TLS handshake',
    says: 'little',
    advice: (upstream, options) =>
      isIP(serverNameOf(upstream, options)) === 0
        ? 'it may require a client certificate or another upstream_tls_server_name'
        : 'it may require a client certificate or upstream_tls_server_name',
  },
];

function faultByCode(code: string): FaultOfCode | undefined {
  return FAULTS.find(({ codes }) => codes.test(code));
}

/** Why a certificate is not accepted. */
function certificateFault(socket: TLSSocket, name: string): UpstreamFault {
  const cause = new Error(String(socket.authorizationError));
  const code = cause.message;
  const fault = (summary: string, advice: string) => new UpstreamFault(summary, advice, { cause });
  const certificate = socket.getPeerX509Certificate();
  if (certificate === undefined) return fault('presents no certificate', 'set upstream_tls_verify to false');
  if (code === 'ERR_TLS_CERT_ALTNAME_INVALID') {
    const [first = 'no name', ...others] = namesOf(certificate);
    const all = others.length > 0 ? `${first} and ${others.length} more` : first;
    const isName = /^[\w.:-]+$/.test(first);
    const remedy = isName
      ? `set upstream_tls_server_name to ${first}, ${UNVERIFIED}`
      : 'set upstream_tls_verify to false';
    return fault('presents a certificate for another name', `it is for ${all}, not for ${name}; ${remedy}`);
  }
  if (code === 'CERT_HAS_EXPIRED')
    return fault(
      'presents an expired certificate',
      `it was valid until ${day(certificate.validTo)}; renew it, ${UNVERIFIED}`,
    );
  if (code === 'CERT_NOT_YET_VALID') {
    const advice = `it is valid from ${day(certificate.validFrom)}; check the clock of this device, ${UNVERIFIED}`;
    return fault('presents a certificate that is not valid yet', advice);
  }
  if (code === 'DEPTH_ZERO_SELF_SIGNED_CERT')
    return fault('presents a self-signed certificate', `set upstream_tls_ca_file to a copy of it, ${UNVERIFIED}`);
  if (/^(?:SELF_SIGNED_CERT_IN_CHAIN|UNABLE_TO_)/.test(code)) {
    const advice = `${oneLine(certificate.issuer)} has issued it; set upstream_tls_ca_file to the certificate of that CA, ${UNVERIFIED}`;
    return fault('presents a certificate of an unknown CA', advice);
  }
  // Node.js has no codes for these.
  if (code === 'UNSPECIFIED') {
    const bits = certificate.publicKey.asymmetricKeyDetails?.modulusLength ?? Number.POSITIVE_INFINITY;
    const weakness =
      bits < 2048 ? `has a key of ${bits} bits, which is too small` : 'is signed with an outdated algorithm';
    return fault(`presents a certificate that ${weakness}`, `${WEAK}, ${UNVERIFIED}`);
  }
  return fault(
    'presents a certificate that is not accepted',
    `${code.toLowerCase().replaceAll('_', ' ')}; replace it, ${UNVERIFIED}`,
  );
}

function namesOf({ subjectAltName, subject }: X509Certificate): string[] {
  const names = [...(subjectAltName ?? '').matchAll(/(?:DNS|IP Address):([\w.*:-]+)/g)].map(([, name = '']) =>
    name.slice(0, 253),
  );
  const common = /^CN=(.+)$/m.exec(subject ?? '')?.[1];
  return names.length > 0 || common === undefined ? names : [oneLine(common)];
}

const oneLine = (text: string): string => printable(text.replaceAll('\n', ', ')).slice(0, 200);

/** @param date as OpenSSL writes it, such as `Jan  1 00:00:00 2026 GMT` */
const day = (date: string): string => new Date(date).toISOString().slice(0, 10);
