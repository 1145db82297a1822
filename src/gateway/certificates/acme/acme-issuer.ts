import type { CaaRecord } from 'node:dns';
import type { Client } from 'acme-client';
import { messageOf } from '../../../lib/errors.ts';
import { readCertificates } from '../../../lib/network/usual-keys.ts';
import type { Clock } from '../../../lib/time/clock.ts';
import type { Challenges } from '../challenges/challenges.ts';
import {
  type CertificateIssuer,
  fits,
  type IssuedCertificate,
  IssueError,
  type IssueRequest,
  makePrivateKey,
} from '../issuing/certificate-issuer.ts';
import { challengeRecord, checkRecords, DnsLookup, type RecordTargets } from '../issuing/dns-check.ts';
import { AFTER_FAILED_VALIDATION_S } from '../renewal-schedule.ts';
import type { AcmeCa } from './acme-account.ts';
import { AcmeProblem, type Conversation, converse, FailedByClock, toIssueError } from './acme-conversation.ts';
import { AcmeOrder, type ChallengeType, type Publish, ValidationFailed } from './acme-order.ts';

export interface AcmeIssuerOptions {
  targets: (domain: string) => RecordTargets;
  ca: AcmeCa;
  /** PEM of the CAs to trust for the ACME server's own certificate; null: the public CAs. */
  trust: string | null;
  /** Challenges for names without a wildcard, tried in this order; their ports must be public. */
  plainChallenges: readonly ('http-01' | 'tls-alpn-01')[];
  /** Resolvers for checking records, `ip` or `ip:port`; null: the system's. */
  dnsServers: readonly string[] | null;
}

/** Time limit of an order; most take seconds. */
const ISSUANCE_MS = 4 * 60_000;
/** Attempts to see a TXT value before the CA looks it up, and the pause between them. */
const TXT_LOOKS = 3;
const TXT_PAUSE_MS = 2000;

/** A domain to validate, and the name for its TXT value; null without a DNS challenge. */
interface Name {
  domain: string;
  target: string | null;
}

/** Obtains certificates from an ACME certificate authority (RFC 8555). */
export class AcmeIssuer implements CertificateIssuer {
  readonly usesOurClock = false;

  constructor(
    private readonly options: AcmeIssuerOptions,
    private readonly deps: Challenges & {
      clock: Clock;
    },
  ) {}

  async issue(request: IssueRequest, signal: AbortSignal): Promise<IssuedCertificate> {
    const deadline = AbortSignal.timeout(ISSUANCE_MS);
    try {
      return await this.#issue(request, AbortSignal.any([signal, deadline]));
    } catch (error) {
      signal.throwIfAborted();
      const cause = error instanceof FailedByClock ? error.cause : error;
      if (cause instanceof AcmeProblem && cause.type === 'accountDoesNotExist') this.options.ca.forgetAccount();
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
      try {
        return await this.#order(name, privateKeyType, conversation, lookup);
      } catch (error) {
        throw conversation.clock === null ? error : new FailedByClock(conversation.clock, error);
      }
    });
  }

  async #order(
    name: Name,
    privateKeyType: IssueRequest['privateKeyType'],
    conversation: Conversation,
    lookup: DnsLookup,
  ): Promise<IssuedCertificate> {
    const { domain } = name;
    const client = await this.options.ca.client(conversation);
    const order = await this.#authorizedOrder(name, client, conversation, lookup);
    const privateKeyPem = await makePrivateKey(privateKeyType);
    const [, csr] = await conversation.acme.crypto.createCsr({ altNames: [domain] }, privateKeyPem);
    const certificatePem = await order.finalize(csr);
    try {
      readCertificates(certificatePem);
    } catch (cause) {
      const message = `The certificate authority sent a chain that the gateway does not use: one ${messageOf(cause)}.`;
      throw new IssueError('INTERNAL_ERROR', message, { cause });
    }
    if (fits(certificatePem, privateKeyPem, domain)) return { certificatePem, privateKeyPem };
    throw new IssueError('INTERNAL_ERROR', `The certificate authority sent a certificate that is not for ${domain}.`);
  }

  /** An order for a validated name; tries each allowed challenge until one succeeds. */
  async #authorizedOrder(
    name: Name,
    client: Client,
    conversation: Conversation,
    lookup: DnsLookup,
  ): Promise<AcmeOrder> {
    const { domain, target } = name;
    const usable: readonly ChallengeType[] = target === null ? this.options.plainChallenges : ['dns-01'];
    const identities = await this.options.ca.caaIdentities(conversation);
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

/**
 * The validation methods that CAA records (RFC 8659) allow the certificate authority (RFC 8657, section 4).
 *
 * @param identities the CA's names in CAA records, from its directory; without any, nothing is checked
 * @throws {IssueError} `DNS_ERROR` when they allow no method; `INTERNAL_ERROR` when a lookup failed
 */
export async function allowedByCaa<M extends string>(
  domain: string,
  identities: readonly string[],
  methods: readonly M[],
  lookup: DnsLookup,
): Promise<readonly M[]> {
  if (identities.length === 0) return methods;
  const isWildcard = domain.startsWith('*.');
  const { owner, records } = await relevantRecords(domain.replace(/^\*\./, ''), lookup);
  const values = issuers(records, isWildcard);
  if (values === null) return methods;
  const ours = values.map(parse).filter(({ issuer }) => identities.includes(issuer));
  const allowed = methods.filter((method) => ours.some((value) => value.methods?.includes(method) ?? true));
  if (allowed.length > 0) return allowed;
  const found = values.map((value) => JSON.stringify(value)).join(', ');
  const wanted = ours.length > 0 ? `${methods.join(' or ')} for ${identities[0]}` : String(identities[0]);
  throw new IssueError('DNS_ERROR', `The CAA record of ${owner} must allow ${wanted}. Found: ${found}.`);
}

/** The records of the closest name, upwards, that has any (RFC 8659, section 3). */
async function relevantRecords(domain: string, lookup: DnsLookup): Promise<{ owner: string; records: CaaRecord[] }> {
  const labels = domain.split('.');
  for (let depth = 0; depth < labels.length; depth += 1) {
    const owner = labels.slice(depth).join('.');
    const records = await lookup.caa(owner);
    if (records.length > 0) return { owner, records };
  }
  return { owner: domain, records: [] };
}

/** The values that apply; null without a restriction. For wildcards, `issuewild` takes precedence. */
function issuers(records: readonly CaaRecord[], isWildcard: boolean): string[] | null {
  const wild = records.flatMap(({ issuewild }) => (issuewild === undefined ? [] : [issuewild]));
  if (isWildcard && wild.length > 0) return wild;
  const plain = records.flatMap(({ issue }) => (issue === undefined ? [] : [issue]));
  return plain.length > 0 ? plain : null;
}

/** `issuer; name=value; …`; an empty issuer allows no CA. */
function parse(value: string): { issuer: string; methods: string[] | null } {
  const [issuer = '', ...parameters] = value.split(';').map((part) => part.trim());
  const methods = parameters.find((parameter) => parameter.startsWith('validationmethods='));
  return { issuer: issuer.toLowerCase(), methods: methods?.slice('validationmethods='.length).split(',') ?? null };
}
