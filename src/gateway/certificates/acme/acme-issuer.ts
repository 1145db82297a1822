import { createHash, X509Certificate } from 'node:crypto';
import type { CaaRecord } from 'node:dns';
import { isIP } from 'node:net';
import { messageOf } from '../../../lib/errors.ts';
import { reversedAddress } from '../../../lib/network/ip-address.ts';
import type { Clock } from '../../../lib/time/clock.ts';
import { readCertificates } from '../../../lib/tls/usual-keys.ts';
import type { Challenges } from '../challenges/challenges.ts';
import {
  type CertificateIssuer,
  fits,
  type IssuedCertificate,
  IssueError,
  type IssueRequest,
  makePrivateKey,
  type RenewalAdvice,
} from '../issuing/certificate-issuer.ts';
import { challengeRecord, checkRecords, DnsLookup, type RecordTargets } from '../issuing/dns-check.ts';
import { AFTER_FAILED_VALIDATION_S } from '../renewal-schedule.ts';
import type { AcmeAccount, AcmeCa } from './acme-account.ts';
import { AcmeProblem, Conversation, FailedByClock, isRefusedForGood, toIssueError } from './acme-conversation.ts';
import { AcmeOrder, type ChallengeType, type OrderTerms, type Publish, ValidationFailed } from './acme-order.ts';
import type { AcmeRequests, Directory } from './acme-requests.ts';

export interface AcmeIssuerOptions {
  targets: (domain: string) => RecordTargets;
  ca: AcmeCa;
  /** PEM of the CAs to trust for the ACME server's own certificate; null: the public CAs. */
  trust: string | null;
  /** Challenges for names without a wildcard, tried in this order; their ports must be public. */
  plainChallenges: readonly ('http-01' | 'tls-alpn-01')[];
  /** Resolvers for checking records, `ip` or `ip:port`; null: the system's. */
  dnsServers: readonly string[] | null;
  /** The certificate profile; null or left out: the CA's default. */
  profile?: string | null;
  /** Common name of the issuer at the top of the wanted chain; null or left out: the CA's choice. */
  chain?: string | null;
}

/** Time limit of an order; most take seconds. */
const ISSUANCE_MS = 4 * 60_000;
/** Attempts to see a TXT value before the CA looks it up, and the pause between them. */
const TXT_LOOKS = 3;
const TXT_PAUSE_MS = 2000;

/** A domain or IP address to validate, and the name for its TXT value; null without a DNS challenge. */
interface Name {
  domain: string;
  target: string | null;
}

/** How a name is ordered. */
interface Planned {
  terms: OrderTerms;
  types: readonly ChallengeType[];
  privateKeyPem: string;
}

/** The profile that Let's Encrypt issues certificates of IP addresses with. */
const ADDRESS_PROFILE = 'shortlived';

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
      if (cause instanceof AcmeProblem && cause.type === 'accountDoesNotExist') await this.options.ca.forgetAccount();
      if (!deadline.aborted) throw toIssueError(error);
      const message = `The certificate authority did not finish within ${ISSUANCE_MS / 60_000} minutes.`;
      throw new IssueError('INTERNAL_ERROR', message, { cause: error });
    }
  }

  /** When the CA wants a certificate renewed (RFC 9773); null when it does not say. */
  async renewalAdvice(certificatePem: string, signal: AbortSignal): Promise<RenewalAdvice | null> {
    const { askRenewalAdvice } = await import('./renewal-advice.ts');
    const conversation = new Conversation(this.options.trust, signal);
    return askRenewalAdvice(this.options.ca.requests(conversation), certificatePem);
  }

  /** @returns why the CA refuses it for good; null: it is revoked @throws {IssueError} when a retry may succeed */
  async revoke(certificatePem: string, reason: number, signal: AbortSignal): Promise<string | null> {
    const { ca, trust } = this.options;
    try {
      const requests = ca.requests(new Conversation(trust, signal));
      const { revokeCert } = await requests.directory();
      if (revokeCert === undefined) return 'it revokes no certificates';
      const certificate = new X509Certificate(certificatePem).raw.toString('base64url');
      const account = await ca.account(requests);
      return await account.post(revokeCert, { certificate, reason }).then(() => null, refusalOf);
    } catch (error) {
      if (error instanceof AcmeProblem && error.type === 'accountDoesNotExist') await ca.forgetAccount();
      throw toIssueError(error);
    }
  }

  /** @returns why the CA refuses the next key for good; null: the account has it @throws {IssueError} when a retry may succeed */
  async changeAccountKey(signal: AbortSignal): Promise<string | null> {
    const { ca, trust } = this.options;
    try {
      return await ca.changeKey(ca.requests(new Conversation(trust, signal)));
    } catch (error) {
      throw toIssueError(error);
    }
  }

  async #issue(request: IssueRequest, signal: AbortSignal): Promise<IssuedCertificate> {
    const { domain } = request;
    const lookup = new DnsLookup(this.options.dnsServers, signal);
    const isAddress = isIP(domain) !== 0;
    const targets = isAddress ? null : this.options.targets(domain);
    if (targets !== null) await checkRecords(domain, targets, lookup);
    const name = { domain, target: targets?.acme_challenge_cname_target ?? null };
    const conversation = new Conversation(this.options.trust, signal);
    try {
      return await this.#order(name, request, conversation, lookup);
    } catch (error) {
      throw conversation.clock === null ? error : new FailedByClock(conversation.clock, error);
    }
  }

  async #order(
    name: Name,
    request: IssueRequest,
    conversation: Conversation,
    lookup: DnsLookup,
  ): Promise<IssuedCertificate> {
    const { domain } = name;
    const { ca, chain: preferred = null } = this.options;
    const requests = ca.requests(conversation);
    const directory = await requests.directory();
    const account = await ca.account(requests);
    const { certificateRequest } = await import('./request-certificates.ts');
    const privateKeyPem = request.begun?.privateKeyPem ?? (await makePrivateKey(request.privateKeyType));
    const terms = await this.#terms(request, directory);
    const types = await this.#challenges(name, directory, lookup);
    const order = await this.#authorizedOrder(
      name,
      { ...request, ...{ terms, types, privateKeyPem } },
      account,
      lookup,
    );
    const csr = await certificateRequest(domain, privateKeyPem);
    const { chain: certificatePem, isPreferred } = await order.finalize(csr, preferred);
    try {
      readCertificates(certificatePem);
    } catch (cause) {
      const message = `The certificate authority sent a chain that the gateway does not use: one ${messageOf(cause)}.`;
      throw new IssueError('INTERNAL_ERROR', message, { cause });
    }
    if (!fits(certificatePem, privateKeyPem, domain))
      throw new IssueError('INTERNAL_ERROR', `The certificate authority sent a certificate that is not for ${domain}.`);
    const remark = isPreferred ? null : `the certificate authority offers no chain of ${preferred}`;
    return { certificatePem, privateKeyPem, remark };
  }

  async #terms({ domain, replaces }: IssueRequest, { renewalInfo, meta }: Directory): Promise<OrderTerms> {
    const profiles = Object.keys(meta?.profiles ?? {});
    const wanted = this.options.profile ?? null;
    if (wanted !== null && !profiles.includes(wanted)) {
      const offered =
        profiles.length === 0 ? 'It has none' : `It has ${profiles.slice(0, 10).join(', ').slice(0, 200)}`;
      const message = `The certificate authority has no profile ${wanted}. ${offered}; change GATEWAY_ACME_PROFILE.`;
      throw new IssueError('INTERNAL_ERROR', message);
    }
    const usual = isIP(domain) !== 0 && profiles.includes(ADDRESS_PROFILE) ? ADDRESS_PROFILE : null;
    const profile = wanted ?? usual;
    if (renewalInfo === undefined || !replaces) return { profile, replaces: null };
    const { renewalId } = await import('./request-certificates.ts');
    return { profile, replaces: renewalId(replaces) };
  }

  /** The challenges that may be used, in their order. CAA records do not apply to IP addresses (RFC 8738, section 8.3). */
  async #challenges(
    { domain, target }: Name,
    { meta }: Directory,
    lookup: DnsLookup,
  ): Promise<readonly ChallengeType[]> {
    const usable: readonly ChallengeType[] = target === null ? this.options.plainChallenges : ['dns-01'];
    return isIP(domain) === 0 ? allowedByCaa(domain, meta?.caaIdentities ?? [], usable, lookup) : usable;
  }

  /** An order for a validated name; tries each allowed challenge until one succeeds. */
  async #authorizedOrder(
    name: Name,
    { begun, keep, terms, types, privateKeyPem }: IssueRequest & Planned,
    account: AcmeAccount,
    lookup: DnsLookup,
  ): Promise<AcmeOrder> {
    const { clock } = this.deps;
    const { directoryUrl } = this.options.ca.options;
    const failures: ValidationFailed[] = [];
    let earlier = begun && begun.authority === directoryUrl ? await AcmeOrder.resume(begun.url, account, clock) : null;
    // A validation that came while nobody answered says nothing of the challenge.
    const tried = earlier === null ? types : [...types.slice(0, 1), ...types];
    for (const type of tried) {
      const order = earlier ?? (await AcmeOrder.begin(name.domain, terms, account, clock));
      // From here on, a restart continues this order.
      if (earlier === null) await keep?.({ authority: directoryUrl, url: order.url, privateKeyPem });
      earlier = null;
      try {
        await order.authorize(type, this.#publisher(name, account.requests, lookup));
        return order;
      } catch (error) {
        if (!(error instanceof ValidationFailed)) throw error;
        failures.push(error);
      }
    }
    throw notValidated(name.domain, failures);
  }

  #publisher({ domain, target }: Name, { conversation }: AcmeRequests, lookup: DnsLookup): Publish {
    const { http, tlsAlpn, txt } = this.deps;
    return async ({ type, token, keyAuthorization }) => {
      if (type === 'http-01') return http.publish(domain, token, keyAuthorization);
      if (type === 'tls-alpn-01') {
        const { challengeCertificate } = await import('./request-certificates.ts');
        const key = await makePrivateKey('ecdsa');
        const certificate = await challengeCertificate(domain, keyAuthorization, key);
        // Validations of an address name it as the reverse DNS does (RFC 8738, section 6).
        return tlsAlpn.publish(isIP(domain) === 0 ? domain : reversedAddress(domain), certificate, key);
      }
      const value = createHash('sha256').update(keyAuthorization).digest('base64url');
      const withdraw = txt.publish(String(target), value);
      try {
        await this.#awaitVisible(challengeRecord(domain), value, lookup, conversation.signal);
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

/** Why a certificate is not revoked, such as one of another CA; null: it is revoked. @throws a problem that may pass */
function refusalOf(error: unknown): string | null {
  if (!(error instanceof AcmeProblem)) throw error;
  if (error.type === 'alreadyRevoked') return null;
  if (isRefusedForGood(error)) return error.message;
  throw error;
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
