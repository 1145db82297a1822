import { randomBytes } from 'node:crypto';
import type { SignedInPerson } from '../../../traffic-policy/sign-in/identity-provider.ts';
import { CookieSeal } from '../cookie-seal.ts';

/** Milliseconds for which a page can be open before its passkey is used. */
const FORM_MS = 15 * 60_000;
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

/** The challenge of a form that has come back. */
export interface OpenedForm {
  readonly challenge: string;
  /** In milliseconds since 1970: when no gateway takes it any more, however its clock differs from this one. */
  readonly expiresAt: number;
}

/** Makes forms for passkeys. The gateway stores no challenges: each comes back sealed. */
export class PasskeyForms {
  readonly #seal: CookieSeal<Ticket>;

  /** @param host whose passkeys they are; `wallClock`: milliseconds since 1970 */
  constructor(
    keyFor: (purpose: string) => string,
    private readonly host: string,
    private readonly wallClock: () => number,
  ) {
    this.#seal = new CookieSeal('passkey', keyFor, 0, wallClock);
  }

  /** For anyone who has a passkey: it says itself whose it is. */
  signIn(): PasskeyForm {
    const { challenge, ticket } = this.#issue(SIGN_IN);
    const options = { challenge, rpId: this.host, userVerification: 'required', allowCredentials: [] };
    return { kind: 'get', action: '/passkey', options, ticket };
  }

  /** For the first passkey of a person with a link. */
  choose({ subject, email, name }: SignedInPerson, token: string): PasskeyForm {
    const { challenge, ticket } = this.#issue(subject);
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

  /** @returns the challenge of a form, which may have been used; null for one that is too old, or another person's */
  open(ticket: string, owner = SIGN_IN): OpenedForm | null {
    const opened = this.#seal.open(ticket, owner);
    if (opened === null || this.wallClock() - opened.issuedAt > FORM_MS) return null;
    return { challenge: opened.challenge, expiresAt: opened.issuedAt + 2 * FORM_MS };
  }

  #issue(owner: string): { challenge: string; ticket: string } {
    const challenge = randomBytes(32).toString('base64url');
    return { challenge, ticket: this.#seal.seal({ challenge, issuedAt: this.wallClock() }, owner) };
  }
}

/** What challenges of sign-ins are bound to, as nobody has said yet who it is. */
const SIGN_IN = 'sign-in';
