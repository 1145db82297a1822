import { Resolver } from 'node:dns/promises';
import { type RequestOptions, request as requestHttp } from 'node:http';
import { request as requestHttps } from 'node:https';
import { checkServerIdentity, type PeerCertificate, rootCertificates, type TLSSocket } from 'node:tls';
import { hasErrno, messageOf } from '../../lib/errors.ts';
import { hostPort, isAddressOfUrl, isUnspecified, withoutBrackets } from '../../lib/network/ip-address.ts';
import { VERSION } from '../../packaged.ts';
import type { AccessWay } from '../../traffic-policy/access.ts';
import {
  PROBE_HEADER,
  PROBE_METHOD,
  type ProbeOutcome,
  type ProbeStage,
  type ProbeTokens,
  parseOutcome,
  REACHED,
} from '../endpoints/probe-outcome.ts';

/** What is asked. */
export interface Probed {
  readonly url: string;
  /** How its policy lets clients in. */
  readonly access: readonly AccessWay[];
}

interface Asked {
  readonly host: string;
  /** With its port, where that is not the usual one. */
  readonly name: string;
  readonly isTls: boolean;
}

interface Place {
  readonly address: string;
  readonly port: number;
}

const LOOKUP_MS = 3_000;
const CONNECT_MS = 5_000;
/** The gateway has shorter deadlines for each of its parts. */
const ANSWER_MS = 20_000;
/** How long the gateway's own addresses are believed. */
const OWN_MS = 60_000;
const OFFLINE = 'ERR_NGROK_3200';
const AWAY = 'ERR_GATEWAY_AGENT_AWAY';
/** Node.js says `ECONNRESET` of what it calls "socket hang up", too. */
const CLOSED = ['ECONNRESET', 'EPIPE', 'ECONNABORTED'];
const ERROR_CODE_HEADER = 'ngrok-error-code';

/** A client of an endpoint, as far as one can be that is at the gateway. It connects to nothing but the gateway. */
export class PublicProbe {
  readonly #resolver: Resolver;
  #own: { at: number; addresses: Promise<readonly string[] | Error> } | null = null;

  constructor(
    private readonly own: {
      /** A name of the gateway's own; null: its names are this machine, without DNS. */
      readonly ownName: string | null;
      readonly resolvers: readonly string[] | null;
      readonly tokens: ProbeTokens;
      /** PEM of the gateway's own CAs, which sign certificates besides public ones. */
      readonly trusted: () => string;
      /** Where this gateway listens. */
      readonly here: { readonly host: string; readonly ports: Readonly<Record<'http' | 'https', number>> };
    },
  ) {
    this.#resolver = new Resolver({ timeout: LOOKUP_MS, tries: 1 });
    if (own.resolvers) this.#resolver.setServers(own.resolvers);
  }

  /** @returns null: nothing can be said, because the DNS does not answer at all */
  ask({ url, access }: Probed): Promise<ProbeOutcome | null> {
    return this.#through(url, (asked, place) => this.#request({ ...asked, access }, place));
  }

  async #through(
    url: string,
    ask: (asked: Asked, place: Place) => Promise<ProbeOutcome>,
  ): Promise<ProbeOutcome | null> {
    const { protocol, hostname, port: text } = new URL(url);
    // A name that the wildcard covers.
    const host = hostname.replace(/^\*\./, 'probe.');
    const isTls = protocol === 'https:';
    const usual = isTls ? 443 : 80;
    const port = Number(text) || usual;
    const { here } = this.own;
    const local = {
      address: isUnspecified(here.host) ? '127.0.0.1' : here.host,
      port: here.ports[isTls ? 'https' : 'http'],
    };
    if (isAddressOfUrl(hostname)) return ask({ host, name: new URL(url).host, isTls }, { ...local, port });
    const found = await this.#addressOf(host);
    if (found === null || 'stage' in found) return found;
    const asked = { host, name: port === usual ? host : hostPort(host, port), isTls };
    if (found.address === null) return ask(asked, local);
    const outcome = await ask(asked, { address: found.address, port });
    if (outcome.stage !== 'connection') return outcome;
    // Many networks do not lead their own public address back to them.
    const inside = await ask(asked, local);
    if (inside.stage === 'connection') return outcome;
    return { ...inside, message: inside.message ?? `not by ${found.address}: ${outcome.message}` };
  }

  /** An address that is the gateway's. @returns its `address` null: this machine */
  async #addressOf(host: string): Promise<{ address: string | null } | ProbeOutcome | null> {
    const { ownName } = this.own;
    if (ownName === null) return { address: null };
    const [own, addresses] = await Promise.all([this.#ownAddresses(ownName), this.#lookUp(host)]);
    if (own instanceof Error || own.length === 0) return addresses instanceof Error ? null : { address: null };
    if (addresses instanceof Error) return { stage: 'name', message: `lookup failed: ${addresses.message}` };
    if (addresses.length === 0) return { stage: 'name', message: 'the DNS has no address for it' };
    // Nobody else's address is asked, whatever the owner of the name says.
    const address = addresses.find((each) => own.includes(each));
    if (address !== undefined) return { address };
    return { stage: 'name', message: `the DNS says ${addresses.join(', ')}, but the gateway is ${own.join(', ')}` };
  }

  #ownAddresses(name: string): Promise<readonly string[] | Error> {
    const now = performance.now();
    if (this.#own === null || now - this.#own.at > OWN_MS) this.#own = { at: now, addresses: this.#lookUp(name) };
    return this.#own.addresses;
  }

  async #lookUp(name: string): Promise<readonly string[] | Error> {
    const both = await Promise.all([
      this.#resolve(() => this.#resolver.resolve4(name)),
      this.#resolve(() => this.#resolver.resolve6(name)),
    ]);
    const found = both.flatMap((each) => (each instanceof Error ? [] : each));
    return found.length > 0 ? found : (both.find((each) => each instanceof Error) ?? []);
  }

  async #resolve(lookup: () => Promise<string[]>): Promise<string[] | Error> {
    try {
      return await lookup();
    } catch (error) {
      return ['ENOTFOUND', 'ENODATA'].some((code) => hasErrno(error, code)) ? [] : new Error(messageOf(error));
    }
  }

  #trust(host: string) {
    const trust = { ca: [this.own.trusted(), ...rootCertificates], ALPNProtocols: ['http/1.1'] };
    if (!isAddressOfUrl(host)) return { servername: host, ...trust };
    // Clients name no address in the handshake (RFC 6066, 3), but check that the certificate is for it.
    const address = withoutBrackets(host);
    return { ...trust, checkServerIdentity: (_: string, peer: PeerCertificate) => checkServerIdentity(address, peer) };
  }

  #request(
    { host, name, isTls, access }: Asked & Pick<Probed, 'access'>,
    { address, port }: Place,
  ): Promise<ProbeOutcome> {
    const options: RequestOptions = {
      ...{ host: address, port, method: PROBE_METHOD, path: '/', agent: false },
      headers: {
        host: name,
        'user-agent': `device-agent-probe/${VERSION}`,
        [PROBE_HEADER]: this.own.tokens.issue(host),
      },
    };
    const tls = this.#trust(host);
    return new Promise((resolve) => {
      const request = isTls ? requestHttps({ ...options, ...tls }) : requestHttp(options);
      let reached: 'nothing' | 'connection' | 'handshake' = 'nothing';
      const deadline = (ms: number, what: string) => setTimeout(() => request.destroy(new Error(what)), ms);
      let timer = deadline(CONNECT_MS, `no connection within ${CONNECT_MS / 1000} s`);
      const settle = (outcome: ProbeOutcome) => {
        clearTimeout(timer);
        request.destroy();
        resolve(outcome);
      };
      request.on('socket', (socket) => {
        socket.once('connect', () => {
          reached = 'connection';
          clearTimeout(timer);
          timer = deadline(isTls ? CONNECT_MS : ANSWER_MS, 'no answer in time');
        });
        (socket as TLSSocket).once('secureConnect', () => {
          reached = 'handshake';
          clearTimeout(timer);
          timer = deadline(ANSWER_MS, `no answer within ${ANSWER_MS / 1000} s`);
        });
      });
      request.on('response', ({ headers, statusCode = 0 }) => {
        const told = parseOutcome(String(headers[PROBE_HEADER] ?? ''));
        settle(told ?? untold(statusCode, String(headers[ERROR_CODE_HEADER] ?? '')));
      });
      request.on('error', (error) => settle(failure(error, reached, { isTls, access })));
      request.end();
    });
  }
}

/** The response of something that knows nothing of probes. */
function untold(status: number, code: string): ProbeOutcome {
  if (code === OFFLINE) return { stage: 'session', message: 'no agent has it open' };
  if (code === AWAY) return { stage: 'session', message: 'its agent was lost a moment ago' };
  return { stage: 'name', message: `another server answers at its address, with status ${status}` };
}

function failure(
  error: Error,
  reached: 'nothing' | 'connection' | 'handshake',
  { isTls, access }: { isTls: boolean; access: readonly AccessWay[] },
): ProbeOutcome {
  const message = messageOf(error);
  if (reached === 'nothing') return { stage: 'connection', message };
  const isClosed = CLOSED.some((code) => hasErrno(error, code));
  const isAlert = /alert/i.test(message);
  // What only some clients get, the gateway cannot try.
  if (access.includes('certificate') && (isClosed || isAlert)) return { ...REACHED, message: 'it needs a certificate' };
  if (isClosed && access.includes('addresses')) return { ...REACHED, message: 'it does not let the gateway itself in' };
  if (isClosed) return { stage: 'policy', message: 'the connection is closed before a response' };
  const stage: ProbeStage = isTls && reached === 'connection' ? 'certificate' : 'connection';
  return { stage, message };
}
