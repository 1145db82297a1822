/** Who a provider says somebody is. */
export interface SignedInPerson {
  /** The provider's identifier, which never changes. */
  readonly subject: string;
  /** Empty when the provider tells none, or one that it has not verified. */
  readonly email: string;
  readonly name: string;
  /** Of people of the gateway; no provider tells any. */
  readonly groups?: readonly string[];
}

/** A token that the provider did not issue, or that nothing needs, is empty. */
export interface Tokens {
  readonly identity: string;
  readonly access: string;
  readonly refresh: string;
}

export interface SignedIn extends SignedInPerson {
  readonly tokens: Tokens;
  /**
   * When the gateway has signed its own person in, in milliseconds since 1970: after all sign-ins that were ended before. Another
   * gateway may not have learned of those ends yet.
   */
  readonly signedInAt?: number;
}

/** An identity provider, and how to read what it says. */
export interface ProviderPlace {
  /** Base of the URLs of OpenID Connect; for others, the name that its subjects belong to. */
  readonly issuer: string;
  /** Of a provider without OpenID Connect. */
  readonly oauth?: OAuthEndpoints;
  /** The provider itself, if it is the gateway. */
  readonly people?: GatewayPeople | undefined;
  /** Reads the claims of OpenID Connect, or the documents of {@link OAuthEndpoints.userUrls} in their order. */
  person(...documents: readonly unknown[]): SignedInPerson;
}

export interface OAuthEndpoints {
  readonly authorizationUrl: string;
  readonly tokenUrl: string;
  /** Where the provider describes the bearer of an access token. */
  readonly userUrls: readonly string[];
  /** The header that must name the client besides the token; null: none. */
  readonly clientHeader: string | null;
}

/** A registration at a provider. */
export interface SignInClient {
  readonly place: ProviderPlace;
  readonly clientId: string;
  /** Empty for a public client. */
  readonly clientSecret: string;
}

/** What the gateway keeps of a sign-in until the browser returns from the provider, sealed in a cookie. */
export interface Attempt {
  readonly state: string;
  readonly nonce: string;
  /** Of PKCE (RFC 7636). */
  readonly verifier: string;
  /** Path and query to return to. */
  readonly target: string;
  /** Milliseconds since 1970. */
  readonly startedAt: number;
}

/** Whose browser an exchange with a provider is for. */
export interface ExchangeClient {
  readonly clientIp: string;
  /** Aborts when it leaves, with which the exchange ends; left out: it goes on. */
  readonly clientLeft?: AbortSignal | undefined;
}

/** The requests of one client to its provider. All throw {@link SignInFailed}. */
export interface IdentityProvider {
  /** The URL at which people sign in. */
  authorizationUrl(parameters: Readonly<Record<string, string>>): string | Promise<string>;
  /** @param callback the URL to which the browser has returned */
  redeem(callback: URL, attempt: Attempt, client: ExchangeClient): Promise<SignedIn>;
  /** Asks who somebody is now. */
  renew(person: SignedIn, client: ExchangeClient): Promise<SignedIn>;
}

/** The people of the gateway, which is their provider. */
export interface GatewayPeople extends IdentityProvider {
  /** What their subjects belong to. */
  readonly issuer: string;
  /** Who somebody is now, from memory; null: nobody any more. */
  find(subject: string): SignedInPerson | null;
  /** The page at which they sign in and out, for a browser that is at another host of the gateway. */
  pageFor(origin: string): string;
}

/** Why nobody was signed in. */
export class SignInFailed extends Error {
  /**
   * @param status HTTP status of the page
   * @param code `ERR_NGROK_…` of the page
   * @param message one sentence for the person
   * @param detail what the operator needs to know; it quotes no secret
   */
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly detail: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
    this.name = 'SignInFailed';
  }

  /** Whether the provider is at fault, and has not decided about the person. */
  get isOutage(): boolean {
    return this.status >= 500;
  }
}
