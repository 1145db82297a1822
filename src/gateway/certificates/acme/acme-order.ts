import { isIP } from 'node:net';
import { z } from 'zod';
import { backoffCeiling } from '../../../lib/time/backoff.ts';
import type { Clock } from '../../../lib/time/clock.ts';
import { certificatesIn } from '../../../lib/tls/pinned-chain.ts';
import { IssueError } from '../issuing/certificate-issuer.ts';
import type { AcmeAccount } from './acme-account.ts';
import {
  AcmeProblem,
  type CaResponse,
  detailOf,
  isRefusedForGood,
  type ProblemDocument,
  problemType,
} from './acme-conversation.ts';
import { readAnswer } from './acme-requests.ts';

const CHALLENGE_TYPES = ['http-01', 'tls-alpn-01', 'dns-01'] as const;
/** How to prove control of a name (RFC 8555, section 8; RFC 8737) or of an IP address (RFC 8738). */
export type ChallengeType = (typeof CHALLENGE_TYPES)[number];

/** Publishes the response to a challenge. @returns withdraws it */
export type Publish = (challenge: {
  type: ChallengeType;
  token: string;
  keyAuthorization: string;
}) => Promise<() => void>;

/** The certificate authority did not find the expected response to a challenge. */
export class ValidationFailed extends Error {
  readonly type: string;

  constructor(
    readonly challenge: string,
    document: ProblemDocument,
  ) {
    super(detailOf(document) || 'no reason was given');
    this.name = new.target.name;
    this.type = problemType(document);
  }
}

const problem = z.object({ type: z.string().optional(), detail: z.string().optional() }).optional().catch({});

const order = z.object({
  status: z.enum(['pending', 'ready', 'processing', 'valid', 'invalid']),
  authorizations: z.array(z.string()).default([]),
  finalize: z.string().default(''),
  certificate: z.string().optional(),
  error: problem,
});
type Order = z.output<typeof order>;

const authorization = z.object({
  status: z.string(),
  challenges: z
    .array(
      z.object({
        type: z.string(),
        url: z.string().default(''),
        token: z.string().default(''),
        status: z.string().optional(),
        error: problem,
      }),
    )
    .default([]),
});
type Authorization = z.output<typeof authorization>;

const POLL_PAUSE = { baseMs: 500, maxMs: 10_000 };
/** A CA that asks for a longer wait gets a later attempt instead of a waiting process. */
const MAX_ASKED_WAIT_S = 60;
/** Chains that are looked at for the preferred one. */
const MAX_CHAINS = 8;

/** Members of a new order beside its name. */
export interface OrderTerms {
  /** The certificate profile; null: the CA's default. */
  readonly profile: string | null;
  /** Renewal id of the certificate that this one replaces (RFC 9773, section 5); null: none. */
  readonly replaces: string | null;
}

/** One ACME order (RFC 8555, section 7.1.3), from its creation to the certificate. */
export class AcmeOrder {
  #order: Order;

  private constructor(
    readonly url: string,
    order: Order,
    private readonly account: AcmeAccount,
    private readonly clock: Clock,
  ) {
    this.#order = order;
  }

  /** @param name a domain or an IP address */
  static async begin(
    name: string,
    { profile, replaces }: OrderTerms,
    account: AcmeAccount,
    clock: Clock,
  ): Promise<AcmeOrder> {
    const { newOrder } = await account.requests.directory();
    const identifiers = [{ type: isIP(name) === 0 ? 'dns' : 'ip', value: name }];
    const request = { identifiers, ...(profile !== null && { profile }) };
    const response = await account
      .post(newOrder, { ...request, ...(replaces !== null && { replaces }) })
      .catch((error: unknown) => {
        // Another CA or account has issued the certificate, or it was replaced already: the order counts as a new one.
        if (replaces !== null && isAboutReplacement(error)) return account.post(newOrder, request);
        throw error;
      });
    const url = response.headers.location;
    if (url === undefined)
      throw new AcmeProblem({ detail: 'its server did not name the order' }, response.status, null);
    return new AcmeOrder(url, readAnswer(response, order), account, clock);
  }

  /** An order that was begun earlier; null when it has failed or is unknown. */
  static async resume(url: string, account: AcmeAccount, clock: Clock): Promise<AcmeOrder | null> {
    try {
      const found = readAnswer(await account.post(url, null), order);
      return found.status === 'invalid' ? null : new AcmeOrder(url, found, account, clock);
    } catch (error) {
      if (error instanceof AcmeProblem && error.status >= 400 && error.status < 500 && error.status !== 429)
        return null;
      throw error;
    }
  }

  /** Proves control of the name; throws {@link ValidationFailed} when the CA did not find the expected response. */
  async authorize(type: ChallengeType, publish: Publish): Promise<void> {
    if (this.#order.status !== 'pending') return;
    for (const url of this.#order.authorizations) {
      const found = await this.#authorization(url);
      // The CA keeps a valid authorization for some time.
      if (found.status !== 'valid') await this.#prove(url, found, type, publish);
    }
  }

  /**
   * Requests the certificate for a request in DER.
   *
   * @param preferred common name of the issuer at the top of the wanted chain; null: the CA's choice
   * @returns the certificate and its chain as PEM; `isPreferred`: whether the chain is the wanted one
   */
  async finalize(csr: Buffer, preferred: string | null): Promise<{ chain: string; isPreferred: boolean }> {
    await this.#settle('the order', (status) => status !== 'pending');
    if (this.#order.status === 'ready') {
      const payload = { csr: csr.toString('base64url') };
      this.#order = this.#updated(await this.account.post(this.#order.finalize, payload));
    }
    await this.#settle('the certificate', (status) => status === 'valid' || status === 'invalid');
    const { status, error, certificate } = this.#order;
    if (status !== 'valid' || certificate === undefined)
      throw new AcmeProblem(error ?? { detail: `the order became ${status}` }, 200, null);
    return this.#chosenChain(await this.account.post(certificate, null), preferred);
  }

  async #chosenChain(first: CaResponse, preferred: string | null): Promise<{ chain: string; isPreferred: boolean }> {
    if (preferred === null) return { chain: first.text, isPreferred: true };
    if (isIssuedBy(first.text, preferred)) return { chain: first.text, isPreferred: true };
    for (const url of alternates(first.headers.link ?? '').slice(0, MAX_CHAINS)) {
      const { text } = await this.account.post(url, null);
      if (isIssuedBy(text, preferred)) return { chain: text, isPreferred: true };
    }
    return { chain: first.text, isPreferred: false };
  }

  async #prove(url: string, found: Authorization, type: ChallengeType, publish: Publish): Promise<void> {
    const challenge = found.challenges.find((offered) => offered.type === type);
    if (!challenge) {
      throw new IssueError('INTERNAL_ERROR', `The certificate authority does not offer ${type} validation.`);
    }
    const { token } = challenge;
    const withdraw = await publish({ type, token, keyAuthorization: this.account.keyAuthorization(token) });
    try {
      // One that was sent before is under way.
      if (challenge.status !== 'processing') await this.#respond(url, challenge.url);
      await this.#awaitValidation(url, type);
    } finally {
      withdraw();
    }
  }

  /** Tells the CA that a challenge can be validated, unless that has been done before, and failed or succeeded meanwhile. */
  async #respond(authorization: string, challenge: string): Promise<void> {
    try {
      await this.account.post(challenge, {});
    } catch (error) {
      const isSettled = async () => (await this.#authorization(authorization)).status !== 'pending';
      if (!(error instanceof AcmeProblem && isRefusedForGood(error) && (await isSettled()))) throw error;
    }
  }

  async #awaitValidation(url: string, type: ChallengeType): Promise<void> {
    const fetch = async () => {
      const { status, challenges } = await this.#authorization(url);
      const own = challenges.find((offered) => offered.type === type);
      // An order that is continued may have failed by another challenge.
      const failed = status === 'pending' ? undefined : challenges.find(({ error }) => error !== undefined);
      return { status, challenge: own?.error === undefined ? (failed ?? own) : own };
    };
    const { status, challenge } = await this.#poll('the validation', fetch, (found) => {
      // Some CAs leave the authorization pending after a failure, so that the client can retry (section 8.2).
      const hasGivenUp = found.challenge?.status !== 'processing' && found.challenge?.error !== undefined;
      return found.status !== 'pending' || hasGivenUp;
    });
    if (status === 'valid') return;
    throw new ValidationFailed(challenge?.type ?? type, challenge?.error ?? {});
  }

  async #authorization(url: string): Promise<Authorization> {
    return readAnswer(await this.account.post(url, null), authorization);
  }

  async #settle(what: string, isSettled: (status: Order['status']) => boolean): Promise<void> {
    if (isSettled(this.#order.status)) return;
    const fetch = async () => this.#updated(await this.account.post(this.url, null));
    this.#order = await this.#poll(what, fetch, ({ status }) => isSettled(status));
  }

  #updated(response: CaResponse): Order {
    const { status, certificate, error } = readAnswer(response, order);
    return { ...this.#order, status, certificate, error };
  }

  /** Polls until the result is final; the conversation's signal limits the time. */
  async #poll<T>(what: string, fetch: () => Promise<T>, isFinal: (found: T) => boolean): Promise<T> {
    const { conversation } = this.account.requests;
    for (let polls = 0; ; polls += 1) {
      const found = await fetch();
      if (isFinal(found)) return found;
      const asked = conversation.retryAfter ?? 0;
      if (asked > MAX_ASKED_WAIT_S) {
        const message = `The certificate authority needs more time for ${what}.`;
        throw new IssueError('INTERNAL_ERROR', message, { retryAfter: asked });
      }
      await this.clock.sleep(Math.max(backoffCeiling(polls, POLL_PAUSE), asked * 1000), conversation.signal);
    }
  }
}

/** Refusals that can be due to the certificate to replace, and that the same order without it may not get. */
const ABOUT_REPLACEMENT = ['alreadyReplaced', 'malformed', 'unauthorized', 'conflict', ''];

function isAboutReplacement(error: unknown): boolean {
  return (
    error instanceof AcmeProblem && error.status >= 400 && error.status < 500 && ABOUT_REPLACEMENT.includes(error.type)
  );
}

/** Whether the last certificate of a chain was issued by a CA with this common name, or is that CA's own. */
function isIssuedBy(chainPem: string, commonName: string): boolean {
  return certificatesIn(chainPem).at(-1)?.issuer.split('\n').includes(`CN=${commonName}`) ?? false;
}

/** The URLs of other chains of a certificate (RFC 8555, section 7.4.2). */
function alternates(link: string): string[] {
  return [...link.matchAll(/<([^>]*)>\s*;\s*rel="?alternate"?/gi)].map(([, url]) => String(url));
}
