import type { Client } from 'acme-client';
import type { Clock } from '../../../lib/clock.ts';
import type { HttpChallenges } from '../challenges/challenge-http.ts';
import type { TlsAlpnChallenges } from '../challenges/challenge-tls-alpn.ts';
import type { TxtChallenges } from '../challenges/challenge-txt.ts';
import {
  type CertificateIssuer,
  type IssuedCertificate,
  IssueError,
  type IssueRequest,
} from '../issuing/certificate-issuer.ts';
import { challengeRecord, checkRecords, type RecordTargets } from '../issuing/dns-check.ts';
import { DnsLookup } from '../issuing/dns-lookup.ts';
import { fits, makePrivateKey } from '../issuing/private-key.ts';
import type { AcmeAuthority } from './acme-authority.ts';
import { type Conversation, converse } from './acme-conversation.ts';
import { AcmeOrder, type ChallengeType, type Publish, ValidationFailed } from './acme-order.ts';
import { AcmeProblem, toIssueError } from './acme-problem.ts';
import { allowedByCaa } from './caa-check.ts';

export interface AcmeIssuerOptions {
  /** Where the records of a domain have to lead. */
  targets: (domain: string) => RecordTargets;
  authority: AcmeAuthority;
  /** PEM of the authorities that the ACME server's own certificate may come from; null: the public ones. */
  trust: string | null;
  /** Ways to prove control of plain names, tried in this order: those whose port the world reaches. */
  plainChallenges: readonly ('http-01' | 'tls-alpn-01')[];
  /** Resolvers to check records with, `ip` or `ip:port`; null: those of the system. */
  dnsServers: readonly string[] | null;
}

export interface AcmeIssuerDeps {
  http: HttpChallenges;
  tlsAlpn: TlsAlpnChallenges;
  txt: TxtChallenges;
  clock: Clock;
}

/** All of an order; authorities settle most within seconds. */
const ISSUANCE_MS = 4 * 60_000;
/** Let's Encrypt takes five failed validations of a name, and forgives one every twelve minutes. */
const AFTER_FAILED_VALIDATION_S = 15 * 60;
/** How often, and at which distance, a TXT value is looked for before the authority does. */
const TXT_LOOKS = 3;
const TXT_PAUSE_MS = 2000;

/** What is to be proved: the domain, and where the TXT value of its DNS challenge goes; null: it has none. */
interface Name {
  domain: string;
  target: string | null;
}

/** Obtains certificates from an ACME authority (RFC 8555). */
export class AcmeIssuer implements CertificateIssuer {
  readonly usesOurClock = false;

  constructor(
    private readonly options: AcmeIssuerOptions,
    private readonly deps: AcmeIssuerDeps,
  ) {}

  async issue(request: IssueRequest, signal: AbortSignal): Promise<IssuedCertificate> {
    const deadline = AbortSignal.timeout(ISSUANCE_MS);
    try {
      return await this.#issue(request, AbortSignal.any([signal, deadline]));
    } catch (error) {
      signal.throwIfAborted();
      if (error instanceof AcmeProblem && error.type === 'accountDoesNotExist') this.options.authority.forgetAccount();
      if (!deadline.aborted) throw toIssueError(error);
      const message = `The certificate authority did not finish within ${ISSUANCE_MS / 60_000} minutes.`;
      throw new IssueError('INTERNAL_ERROR', message, { cause: error });
    }
  }

  async #issue({ domain, privateKeyType }: IssueRequest, signal: AbortSignal): Promise<IssuedCertificate> {
    const lookup = new DnsLookup(this.options.dnsServers, signal);
    const targets = this.options.targets(domain);
    await checkRecords(domain, targets, lookup);
    const name = { domain, target: targets.acme_challenge_cname_target };
    return converse(this.options.trust, signal, async (conversation) => {
      const client = await this.options.authority.client(conversation);
      const order = await this.#authorizedOrder(name, client, conversation, lookup);
      const privateKeyPem = await makePrivateKey(privateKeyType);
      const [, csr] = await conversation.acme.crypto.createCsr({ altNames: [domain] }, privateKeyPem);
      const certificatePem = await order.finalize(csr);
      if (fits(certificatePem, privateKeyPem, domain)) return { certificatePem, privateKeyPem };
      throw new IssueError('INTERNAL_ERROR', `The certificate authority sent a certificate that is not for ${domain}.`);
    });
  }

  /** An order whose name is proved to be ours, in the first way that works. */
  async #authorizedOrder(
    name: Name,
    client: Client,
    conversation: Conversation,
    lookup: DnsLookup,
  ): Promise<AcmeOrder> {
    const { domain, target } = name;
    const usable: readonly ChallengeType[] = target === null ? this.options.plainChallenges : ['dns-01'];
    const identities = await this.options.authority.caaIdentities(conversation);
    const failures: ValidationFailed[] = [];
    for (const type of await allowedByCaa(domain, identities, usable, lookup)) {
      const order = await AcmeOrder.begin(domain, client, conversation, this.deps.clock);
      try {
        await order.authorize(type, this.#publisher(name, conversation, lookup));
        return order;
      } catch (error) {
        if (!(error instanceof ValidationFailed)) throw error;
        failures.push(error);
      }
    }
    throw notValidated(domain, failures);
  }

  #publisher({ domain, target }: Name, { acme, signal }: Conversation, lookup: DnsLookup): Publish {
    const { http, tlsAlpn, txt } = this.deps;
    return async ({ type, authorization, token, keyAuthorization }) => {
      if (type === 'http-01') return http.publish(domain, token, keyAuthorization);
      if (type === 'tls-alpn-01') {
        const key = await makePrivateKey('ecdsa');
        const [, certificate] = await acme.crypto.createAlpnCertificate(authorization, keyAuthorization, key);
        return tlsAlpn.publish(domain, certificate, key);
      }
      const withdraw = txt.publish(String(target), keyAuthorization);
      try {
        await this.#awaitVisible(challengeRecord(domain), keyAuthorization, lookup, signal);
        return withdraw;
      } catch (error) {
        withdraw();
        throw error;
      }
    };
  }

  /** Waits until the TXT value is visible: failed validations count against the CA's rate limits. */
  async #awaitVisible(record: string, value: string, lookup: DnsLookup, signal: AbortSignal): Promise<void> {
    for (let look = 1; !(await lookup.txt(record)).includes(value); look += 1) {
      if (look === TXT_LOOKS) {
        const message = `The DNS challenge at ${record} is not visible: the gateway's challenge zone is unreachable from the internet.`;
        throw new IssueError('INTERNAL_ERROR', message);
      }
      await this.deps.clock.sleep(TXT_PAUSE_MS, signal);
    }
  }
}

function notValidated(domain: string, failures: readonly ValidationFailed[]): IssueError {
  const tried = failures.map(({ challenge, message }) => `${challenge}: ${message}`).join('; ');
  const message = `The certificate authority could not validate ${domain} (${tried}).`;
  const isOurs = failures.some(({ type }) => type === 'serverInternal');
  const code = isOurs ? 'INTERNAL_ERROR' : 'DNS_ERROR';
  return new IssueError(code, message, { retryAfter: AFTER_FAILED_VALIDATION_S, cause: failures[0] });
}
