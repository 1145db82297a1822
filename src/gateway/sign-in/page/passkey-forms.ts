import { randomBytes } from 'node:crypto';
import { BoundedMap } from '../../../lib/bounded-map.ts';
import type { Person } from '../../../traffic-policy/sign-in/identity-provider.ts';
import { CookieSeal } from '../cookie-seal.ts';

/** Milliseconds for which a page can be open before its passkey is used. */
const FORM_MS = 15 * 60_000;
const MAX_USED = 1_000;
/** ES256, Ed25519, RS256. */
export const ALGORITHMS = [-7, -8, -257];

export interface PasskeyForm {
  readonly kind: 'create' | 'get';
  readonly action: string;
  /** For the browser's authenticator, as WebAuthn describes them in JSON. */
  readonly options: object;
  /** The challenge, sealed. */
  readonly ticket: string;
}

interface Ticket {
  readonly challenge: string;
  readonly issuedAt: number;
}

/** Makes forms for passkeys. The gateway stores no challenges: each comes back sealed. */
export class PasskeyForms {
  readonly #seal: CookieSeal<Ticket>;
  readonly #used = new BoundedMap<string, true>(MAX_USED);

  /** @param host whose passkeys they are; `wallClock`: milliseconds since 1970 */
  constructor(
    keyFor: (purpose: string) => string,
    private readonly host: string,
    private readonly wallClock: () => number,
  ) {
    this.#seal = new CookieSeal('passkey', keyFor, 0, wallClock);
  }

  /** For anyone who has a passkey: it says itself whose it is. */
  async signIn(): Promise<PasskeyForm> {
    const { challenge, ticket } = await this.#issue(SIGN_IN);
    const options = { challenge, rpId: this.host, userVerification: 'required', allowCredentials: [] };
    return { kind: 'get', action: '/passkey', options, ticket };
  }

  /** For the first passkey of a person with a link. */
  async choose({ subject, email, name }: Person, token: string): Promise<PasskeyForm> {
    const { challenge, ticket } = await this.#issue(subject);
    const options = {
      challenge,
      rp: { id: this.host, name: this.host },
      user: { id: Buffer.from(subject).toString('base64url'), name: email, displayName: name || email },
      pubKeyCredParams: ALGORITHMS.map((alg) => ({ type: 'public-key', alg })),
      authenticatorSelection: { residentKey: 'required', requireResidentKey: true, userVerification: 'required' },
      attestation: 'none',
    };
    return { kind: 'create', action: `/link/${token}/passkey`, options, ticket };
  }

  /** @returns the challenge of a form, once; null for one that is too old, or another person's */
  async use(ticket: string, owner = SIGN_IN): Promise<string | null> {
    const opened = await this.#seal.open(ticket, owner);
    if (opened === null || this.wallClock() - opened.issuedAt > FORM_MS || this.#used.has(opened.challenge))
      return null;
    this.#used.set(opened.challenge, true);
    return opened.challenge;
  }

  async #issue(owner: string): Promise<{ challenge: string; ticket: string }> {
    const challenge = randomBytes(32).toString('base64url');
    return { challenge, ticket: await this.#seal.seal({ challenge, issuedAt: this.wallClock() }, owner) };
  }
}

/** What challenges of sign-ins are bound to, as nobody has said yet who it is. */
const SIGN_IN = 'sign-in';
