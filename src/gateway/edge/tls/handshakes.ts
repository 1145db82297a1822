import { hash } from 'node:crypto';
import type { Socket } from 'node:net';
import { createSecureContext, type SecureContext, type SecureVersion, type TLSSocket } from 'node:tls';
import { messageOf } from '../../../lib/errors.ts';
import type { ClientHello } from '../../../lib/tls/client-hello.ts';
import { askedCas } from '../../../lib/tls/pinned-chain.ts';
import { performHandshake } from '../../../lib/tls/server-handshake.ts';
import type { SessionTickets } from '../../../lib/tls/session-tickets.ts';
import { TLS_SERVER_OPTIONS } from '../../../lib/tls/tls-options.ts';
import { MAX_AUTHORITIES, readCertificates, readKeyPair, requireSoundSignatures } from '../../../lib/tls/usual-keys.ts';
import type { TlsTermination } from '../../../traffic-policy/policy-subjects.ts';
import type { CertifiedKey } from '../../certificates/local-ca/certificate-files.ts';
import { EDGE_TERMINATION } from '../../endpoints/online-endpoint.ts';
import type { CertificateSelection } from './certificate-selection.ts';

/** A client before its handshake: its ClientHello has been parsed, but its bytes are still unread. */
export interface HelloClient {
  readonly socket: Socket;
  readonly hello: ClientHello;
  /** The host name in the SNI extension, in lower case; empty without one. */
  readonly hostName: string;
  /** The IP address that the certificate has to be for; left out: the host name. */
  readonly address?: string;
  /** The client has its turn: from now on, it has the whole time for the handshake. */
  handshakeBegins(): void;
  handshakeDone(): void;
}

export class Handshakes {
  readonly #contexts = new TlsContexts();

  /** @param findAuthority finds the PEM of a certificate authority that demands name by its identifier */
  constructor(
    private readonly certificates: CertificateSelection,
    private readonly findAuthority: (id: string) => string | null,
    private readonly agentTickets: SessionTickets | null = null,
  ) {}

  /** When it fails, the connection is closed with an alert, and the result is null. @throws when a demand cannot be met */
  async secure(
    client: HelloClient,
    options: {
      /** Application protocols to offer; left out: no negotiation. */
      protocols?: string[];
      demands?: HandshakeDemands;
      /** Whose endpoint it is for, who pays for the time that certificates of clients take; left out: the gateway's own. */
      owner?: string;
      isAgent?: boolean;
    } = {},
  ): Promise<TLSSocket | null> {
    const { socket, hostName, handshakeBegins, handshakeDone } = client;
    const { protocols, demands = EDGE_TERMINATION, owner = '', isAgent = false } = options;
    const tickets = isAgent ? this.agentTickets : null;
    const requestCert = demands.clientAuthorities.length > 0;
    const rejectUnauthorized = requestCert && demands.clientVerification !== 'request';
    const tls = async () => {
      const pair = await this.#pairFor(client, demands);
      const secureContext = this.#contexts.contextFor(pair, this.#withAuthorities(demands), tickets);
      return { secureContext, requestCert, rejectUnauthorized, ...(protocols && { ALPNProtocols: protocols }) };
    };
    const secured = await performHandshake(socket, tls, { owner, isAgent, onBegin: handshakeBegins });
    if (secured === null) return null;
    if (rejectUnauthorized && !isClientVerified(secured, demands)) {
      secured.destroy();
      return null;
    }
    handshakeDone();
    // OpenSSL knows no name when it resumes a session of TLS 1.2.
    return Object.assign(secured, { servername: hostName });
  }

  async #pairFor(
    { hostName, address = hostName, hello }: HelloClient,
    demands: HandshakeDemands,
  ): Promise<CertifiedKey> {
    const { certificate, privateKey } = demands;
    if (certificate !== null && privateKey !== null) return { cert: certificate, key: privateKey };
    return this.certificates.pairFor(address, askedCas(hello.protocols));
  }

  #withAuthorities(demands: HandshakeDemands): HandshakeDemands {
    const { clientAuthorities } = demands;
    if (!clientAuthorities.some(isIdentifier)) return demands;
    return { ...demands, clientAuthorities: clientAuthorities.map((authority) => this.#pemOf(authority)) };
  }

  #pemOf(authority: string): string {
    if (!isIdentifier(authority)) return authority;
    const pem = this.findAuthority(authority);
    if (pem === null) throw new Error(`unknown certificate authority ${authority}`);
    return pem;
  }
}

const isIdentifier = (authority: string): boolean => authority.startsWith('ca_');

/** OpenSSL ensures that there is a certificate; Node leaves its verification to its own servers. */
function isClientVerified(secured: TLSSocket, { clientVerification }: HandshakeDemands): boolean {
  if (secured.getPeerX509Certificate() === undefined) return false;
  if (clientVerification === 'require-any') return true;
  const { _handle: handle } = secured as TLSSocket & { _handle?: { verifyError(): Error | null } };
  return handle?.verifyError() === null;
}

/** How the edge terminates TLS: what endpoints can ask for, and the old versions that a TLS edge may allow. */
export interface HandshakeDemands extends Omit<TlsTermination, 'minVersion'> {
  readonly minVersion: TlsTermination['minVersion'] | '1.0' | '1.1';
}

/**
 * Combines what is demanded already, for example by the agent's binding, with what a policy demands for one connection.
 * The policy takes precedence, but never lowers what is demanded of the client.
 */
export function mergeDemands(base: TlsTermination | null, policy: TlsTermination | null): TlsTermination | null {
  if (policy === null || base === null) return policy ?? base;
  const { certificate, privateKey } = policy.certificate === null ? base : policy;
  const { clientAuthorities, clientVerification } = policy.clientAuthorities.length === 0 ? base : policy;
  return { ...policy, certificate, privateKey, clientAuthorities, clientVerification };
}

type ClientDemands = Pick<TlsTermination, 'clientAuthorities' | 'clientVerification'>;

/** Whether a handshake has already demanded of the client what a policy demands. */
export function meetsClientDemands(policy: ClientDemands, handshake: ClientDemands | null): boolean {
  if (policy.clientAuthorities.length === 0) return true;
  return handshake !== null && describe(policy) === describe(handshake);
}

function describe({ clientAuthorities, clientVerification }: ClientDemands): string {
  return [clientVerification, ...clientAuthorities].join('\n');
}

/** Contexts in the cache, some tens of KiB each with usual certificates. */
const MAX_CONTEXTS = 1024;
/** Bytes of the PEM texts that all cached contexts were created from. */
const MAX_BYTES = 16 * 1_048_576;

const VERSIONS: Readonly<Record<HandshakeDemands['minVersion'], SecureVersion>> = {
  '1.0': 'TLSv1',
  '1.1': 'TLSv1.1',
  '1.2': 'TLSv1.2',
  '1.3': 'TLSv1.3',
};

/** OpenSSL's own list without its security level, which no suite before TLS 1.2 reaches. */
const OLD_CIPHERS = 'DEFAULT:@SECLEVEL=0';

/**
 * Caches TLS contexts, one for each combination of certificate and demands. Different demands never share one: a client
 * could resume a session that began without the client certificate that is now demanded.
 */
export class TlsContexts {
  /** By a digest of everything that a context was created from, least recently used first. */
  readonly #contexts = new Map<string, { context: SecureContext; bytes: number }>();
  #bytes = 0;

  /** @throws {Error} when the certificate, its key or an authority is invalid, or has an unusual key */
  contextFor(pair: CertifiedKey, demands: HandshakeDemands, tickets: SessionTickets | null = null): SecureContext {
    const { minVersion, maxVersion, clientAuthorities, clientVerification } = demands;
    const { cert, key } = pair;
    const kind = tickets === null ? '' : `agents ${tickets.epoch}`;
    const identity = [minVersion, maxVersion, clientVerification, kind, cert, key, ...clientAuthorities].join('\n');
    const digest = hash('sha256', identity, 'base64');
    const cached = this.#contexts.get(digest) ?? {
      context: createContext(pair, demands, tickets),
      bytes: identity.length,
    };
    this.#remove(digest);
    this.#contexts.set(digest, cached);
    this.#bytes += cached.bytes;
    for (const oldest of this.#contexts.keys()) {
      if (this.#contexts.size <= MAX_CONTEXTS && this.#bytes <= MAX_BYTES) break;
      this.#remove(oldest);
    }
    return cached.context;
  }

  #remove(digest: string): void {
    this.#bytes -= this.#contexts.get(digest)?.bytes ?? 0;
    this.#contexts.delete(digest);
  }
}

function createContext(pair: CertifiedKey, demands: HandshakeDemands, tickets: SessionTickets | null): SecureContext {
  const { minVersion, maxVersion, clientAuthorities } = demands;
  const { cert, key } = pair.isOwn ? pair : readKeyPair(pair.cert, pair.key);
  // One that a policy takes from a secret was not known before.
  if (pair.cert === demands.certificate) requireSoundSignatures(pair.cert);
  const ca = clientAuthorities.flatMap(authoritiesIn);
  if (ca.length > MAX_AUTHORITIES) throw new Error(`there are more than ${MAX_AUTHORITIES} client CAs`);
  return createSecureContext({
    cert,
    key,
    ...TLS_SERVER_OPTIONS,
    ...tickets?.options,
    minVersion: VERSIONS[minVersion],
    maxVersion: VERSIONS[maxVersion],
    ...(minVersion < '1.2' && { ciphers: OLD_CIPHERS }),
    // OpenSSL resumes sessions of clients with a certificate only when the sessions have an ID context.
    ...(clientAuthorities.length > 0 && { ca, sessionIdContext: 'clients' }),
  });
}

function authoritiesIn(pem: string, at: number): string[] {
  try {
    return readCertificates(pem, MAX_AUTHORITIES).map(String);
  } catch (error) {
    throw new Error(`client CA ${at + 1} ${messageOf(error)}`);
  }
}
