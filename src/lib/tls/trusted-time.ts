import type { X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import { isIP } from 'node:net';
import type { Duplex } from 'node:stream';
import { connect, type TLSSocket } from 'node:tls';
import { messageOf } from '../errors.ts';
import { namedServer, pinnedProtocols } from './pinned-chain.ts';

/** Somebody who is asked for the time when this machine's clock may be wrong. */
export interface TrustedTime {
  /** @throws when no time can be proved; the message says why */
  prove(): Promise<ProvedTime>;
  /** A certificate has fitted this machine's clock. */
  unneeded(): void;
}

/** A time, and which certificates the one who has proved it stands for. */
export interface ProvedTime {
  /** In milliseconds since 1970. */
  time: number;
  /** The CA that has signed the proof: it may have signed the server's certificate, too. */
  ca: X509Certificate;
  /** SHA-256 of certificates that other CAs have signed, as `fingerprint256` has it. */
  certificates: ReadonlySet<string>;
}

/** What TLS reports when a certificate's dates do not fit the clock. */
const DATE_ERRORS = new Set(['CERT_NOT_YET_VALID', 'CERT_HAS_EXPIRED']);
const SERVER_AUTHENTICATION = '1.3.6.1.5.5.7.3.1';

/** Whether a certificate was refused for its dates, maybe among other reasons: TLS names the last one that it finds. */
function isDateError(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  return isDateCode((error as NodeJS.ErrnoException).code) || isDateError(error.cause);
}

/** The same for a code alone. */
export function isDateCode(code: string | null | undefined): boolean {
  return DATE_ERRORS.has(code ?? '');
}

/**
 * Connects to a server whose certificate is verified as usual. Only when its dates do not fit this machine's clock, a second
 * connection is made, on which the certificate is judged at a proved time. Nothing may be sent before either has settled.
 */
export async function connectInTime<T>(
  time: TrustedTime | null | undefined,
  signal: AbortSignal,
  usual: () => Promise<T>,
  provedAt: (proved: ProvedTime) => Promise<T>,
): Promise<T> {
  try {
    const result = await usual();
    time?.unneeded();
    return result;
  } catch (error) {
    if (!time || !isDateError(error)) throw error;
    const proved = await time.prove().catch((cause: unknown) => {
      signal.throwIfAborted();
      throw new Error(`${messageOf(error)}; ${messageOf(cause)}`, { cause: error });
    });
    return provedAt(proved);
  }
}

/**
 * Does a TLS handshake, and judges the server's certificate at a proved time instead of that of this machine's clock. OpenSSL
 * cannot be given a time, so it accepts every certificate here, and {@link untrustedAt} decides. The handshake itself has
 * shown that the server has the certificate's key.
 *
 * @param socket connected; destroyed when this rejects
 * @returns a connection on which nothing has been sent
 */
export async function secureAt(
  proved: ProvedTime,
  socket: Duplex,
  { host, serverName }: { host: string; serverName: string | undefined },
  signal: AbortSignal,
): Promise<TLSSocket> {
  // The proof names the certificate that clients without a name are shown.
  const named = namedServer(serverName, serverName === undefined ? [] : pinnedProtocols(proved.ca.toString()));
  // Without a session to resume: the server has to show its certificate.
  const tls = connect({ socket, host, rejectUnauthorized: false, ...named });
  tls.on('close', () => socket.destroy());
  try {
    await once(tls, 'secureConnect', { signal });
    const certificate = tls.getPeerX509Certificate();
    const reason = certificate ? untrustedAt(proved, serverName ?? host, certificate) : 'it shows no certificate';
    if (reason !== null) throw new Error(`the certificate is not trusted at the time of its gateway: ${reason}`);
    return tls;
  } catch (error) {
    tls.destroy();
    signal.throwIfAborted();
    throw error;
  }
}

/**
 * Why a server's certificate is not trusted at a proved time; null: it is. It has to be for the host and valid at that time,
 * and either signed by the CA of the proof itself, without others between, or named in the proof.
 */
export function untrustedAt(
  { time, ca, certificates }: ProvedTime,
  host: string,
  certificate: X509Certificate,
): string | null {
  const isOfCa =
    isSignedBy(certificate, ca) &&
    // Node's name for the extended key usages.
    certificate.keyUsage?.includes(SERVER_AUTHENTICATION) === true;
  if (!isOfCa && !certificates.has(certificate.fingerprint256)) return 'neither signed nor named by its CA';
  if (!isForHost(certificate, host)) return 'it is for another name';
  if (!isValidAt(certificate, time) || (isOfCa && !isValidAt(ca, time))) {
    const { validFrom, validTo } = certificate;
    return `it is valid from ${iso(validFrom)} to ${iso(validTo)}, and the time is ${new Date(time).toISOString()}`;
  }
  return null;
}

/** Whether a CA has signed the certificate of somebody who is no CA. */
export function isSignedBy(certificate: X509Certificate, ca: X509Certificate): boolean {
  return ca.ca && !certificate.ca && certificate.checkIssued(ca) && certificate.verify(ca.publicKey);
}

/** @param time in milliseconds since 1970 */
export function isValidAt({ validFrom, validTo }: X509Certificate, time: number): boolean {
  return Date.parse(validFrom) <= time && time <= Date.parse(validTo);
}

function isForHost(certificate: X509Certificate, host: string): boolean {
  if (isIP(host) !== 0) return certificate.checkIP(host) !== undefined;
  return certificate.checkHost(host, { subject: 'never', partialWildcards: false }) !== undefined;
}

const iso = (date: string) => new Date(date).toISOString();
