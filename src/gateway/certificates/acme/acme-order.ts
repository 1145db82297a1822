import type { Authorization, Client, Order } from 'acme-client';
import { backoffCeiling } from '../../../lib/time/backoff.ts';
import type { Clock } from '../../../lib/time/clock.ts';
import { IssueError } from '../issuing/certificate-issuer.ts';
import {
  AcmeProblem,
  type Conversation,
  detailOf,
  isProblem,
  type ProblemDocument,
  problemType,
} from './acme-conversation.ts';

const CHALLENGE_TYPES = ['http-01', 'tls-alpn-01', 'dns-01'] as const;
/** How to prove control of a name (RFC 8555, section 8; RFC 8737). */
export type ChallengeType = (typeof CHALLENGE_TYPES)[number];

/** Publishes the response to a challenge. @returns withdraws it */
export type Publish = (challenge: {
  type: ChallengeType;
  authorization: Authorization;
  token: string;
  /** For `dns-01` already the TXT value. */
  keyAuthorization: string;
}) => Promise<() => void>;

/** The certificate authority did not find the expected response to a challenge. */
export class ValidationFailed extends Error {
  readonly type: string;

  constructor(
    readonly challenge: ChallengeType,
    document: ProblemDocument,
  ) {
    super(detailOf(document) || 'no reason was given');
    this.name = new.target.name;
    this.type = problemType(document);
  }
}

const POLL_PAUSE = { baseMs: 500, maxMs: 10_000 };
/** A CA that asks for a longer wait gets a later attempt instead of a waiting process. */
const MAX_ASKED_WAIT_S = 60;

/** One ACME order (RFC 8555, section 7.1.3), from its creation to the certificate. */
export class AcmeOrder {
  #order: Order;

  private constructor(
    order: Order,
    private readonly client: Client,
    private readonly conversation: Conversation,
    private readonly clock: Clock,
  ) {
    this.#order = order;
  }

  static async begin(domain: string, client: Client, conversation: Conversation, clock: Clock): Promise<AcmeOrder> {
    const order = await client.createOrder({ identifiers: [{ type: 'dns', value: domain }] });
    return new AcmeOrder(order, client, conversation, clock);
  }

  /** Proves control of the name; throws {@link ValidationFailed} when the CA did not find the expected response. */
  async authorize(type: ChallengeType, publish: Publish): Promise<void> {
    for (const authorization of await this.client.getAuthorizations(this.#order)) {
      // The CA keeps a valid authorization for some time.
      if (authorization.status !== 'valid') await this.#prove(authorization, type, publish);
    }
  }

  /** Requests the certificate for a CSR (PEM); returns the certificate and its chain as PEM. */
  async finalize(csr: string | Buffer): Promise<string> {
    await this.#settle('the order', (status) => status !== 'pending');
    this.#expect('ready');
    this.#order = await this.client.finalizeOrder(this.#order, csr);
    await this.#settle('the certificate', (status) => status === 'valid' || status === 'invalid');
    this.#expect('valid');
    return this.client.getCertificate(this.#order);
  }

  async #prove(authorization: Authorization, type: ChallengeType, publish: Publish): Promise<void> {
    const challenge = authorization.challenges.find((offered) => String(offered.type) === type);
    if (!challenge) {
      throw new IssueError('INTERNAL_ERROR', `The certificate authority does not offer ${type} validation.`);
    }
    const keyAuthorization = await this.client.getChallengeKeyAuthorization(challenge);
    const withdraw = await publish({ type, authorization, token: challenge.token, keyAuthorization });
    try {
      await this.client.completeChallenge(challenge);
      await this.#awaitValidation(authorization.url, type);
    } finally {
      withdraw();
    }
  }

  async #awaitValidation(url: string, type: ChallengeType): Promise<void> {
    const fetch = async () => {
      const [authorization] = await this.client.getAuthorizations({ ...this.#order, authorizations: [url] });
      return { authorization, challenge: authorization?.challenges.find((offered) => String(offered.type) === type) };
    };
    const { authorization, challenge } = await this.#poll('the validation', fetch, (found) => {
      // Some CAs leave the authorization pending after a failure, so that the client can retry (section 8.2).
      const hasGivenUp = found.challenge?.status !== 'processing' && found.challenge?.error !== undefined;
      return found.authorization?.status !== 'pending' || hasGivenUp;
    });
    if (authorization?.status === 'valid') return;
    throw new ValidationFailed(type, isProblem(challenge?.error) ? challenge.error : {});
  }

  async #settle(what: string, isSettled: (status: Order['status']) => boolean): Promise<void> {
    if (isSettled(this.#order.status)) return;
    const fetch = () => this.client.getOrder(this.#order);
    this.#order = await this.#poll(what, fetch, (order) => isSettled(order.status));
  }

  #expect(wanted: Order['status']): void {
    const { status, error } = this.#order;
    if (status === wanted) return;
    throw new AcmeProblem(isProblem(error) ? error : { detail: `the order became ${status}` }, 200, null);
  }

  /** Polls until the result is final; the conversation's signal limits the time. */
  async #poll<T>(what: string, fetch: () => Promise<T>, isFinal: (found: T) => boolean): Promise<T> {
    for (let polls = 0; ; polls += 1) {
      const found = await fetch();
      if (isFinal(found)) return found;
      const asked = this.conversation.retryAfter ?? 0;
      if (asked > MAX_ASKED_WAIT_S) {
        const message = `The certificate authority needs more time for ${what}.`;
        throw new IssueError('INTERNAL_ERROR', message, { retryAfter: asked });
      }
      await this.clock.sleep(Math.max(backoffCeiling(polls, POLL_PAUSE), asked * 1000), this.conversation.signal);
    }
  }
}
