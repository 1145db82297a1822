import {
  AuthorizationResponseError,
  authorizationCodeGrant,
  buildAuthorizationUrl,
  type ClientAuth,
  ClientError,
  ClientSecretBasic,
  ClientSecretPost,
  Configuration,
  type CustomFetch,
  clockTolerance,
  customFetch,
  discovery,
  enableNonRepudiationChecks,
  fetchUserInfo,
  None,
  ResponseBodyError,
  refreshTokenGrant,
  type TokenEndpointResponse,
  type TokenEndpointResponseHelpers,
  WWWAuthenticateChallengeError,
} from 'openid-client';
import { z } from 'zod';
import { messageOf, quote } from '../../lib/errors.ts';
import { ClientPlaces, NoPlaceLeft } from '../../lib/network/client-places.ts';
import { unusualJwk } from '../../lib/tls/usual-jwk.ts';
import type { PublicResponse, requestPublic } from '../../traffic-policy/fetch-document.ts';
import { ClientLeft } from '../../traffic-policy/policy-errors.ts';
import {
  type Attempt,
  type ExchangeClient,
  type IdentityProvider,
  type OAuthEndpoints,
  type SignedIn,
  type SignedInPerson,
  type SignInClient,
  SignInFailed,
  type Tokens,
} from '../../traffic-policy/sign-in/identity-provider.ts';

/** Bytes of a provider's response. */
const MAX_BYTES = 64 * 1024;
/** Seconds that clocks of providers may differ from the gateway's. */
const METADATA = { [clockTolerance]: 180 };
/** Exchanges with the provider at a time, of people who return from it, and of those who are asked about again. Networks share them. */
const MAX_EXCHANGES = 20;

type Send = typeof requestPublic;
/** Reads a provider's responses so that the library accepts them. */
type Adapt = (response: PublicResponse) => PublicResponse;
type FetchUntil = (signal?: AbortSignal, adapt?: Adapt) => CustomFetch;
type Answer = TokenEndpointResponse & Partial<TokenEndpointResponseHelpers>;

/** Learns how to use a client at its provider. @throws {SignInFailed} when the provider does not describe itself */
export async function connectToProvider(client: SignInClient, send: Send): Promise<IdentityProvider> {
  const { place, clientId, clientSecret } = client;
  const authentication = authenticationWith(clientSecret);
  const until: FetchUntil = (signal, adapt) => fetchWith(send, signal, adapt);
  if (place.oauth !== undefined) {
    const configuration = new Configuration(metadataOf(place.issuer, place.oauth), clientId, METADATA, authentication);
    return new OpenIdClient(client, configuration, { send, until });
  }
  const describe = (issuer: string) =>
    discovery(new URL(issuer), clientId, METADATA, authentication, {
      [customFetch]: until(),
      // Signatures are checked also where TLS alone would do.
      execute: [enableNonRepudiationChecks],
    });
  try {
    const configuration = await describe(place.issuer).catch((error: unknown) => {
      if (!isClientError(error, 'OAUTH_JSON_ATTRIBUTE_COMPARISON_FAILED')) throw error;
      // The document is at the same URL, with and without a slash at the end of the issuer.
      return describe(place.issuer.endsWith('/') ? place.issuer.slice(0, -1) : `${place.issuer}/`);
    });
    return new OpenIdClient(client, configuration, { send, until });
  } catch (error) {
    throw outage('ERR_NGROK_5208', place.issuer, error);
  }
}

function metadataOf(issuer: string, { authorizationUrl, tokenUrl }: OAuthEndpoints) {
  return {
    issuer,
    authorization_endpoint: authorizationUrl,
    token_endpoint: tokenUrl,
    token_endpoint_auth_methods_supported: ['client_secret_post'],
  };
}

function authenticationWith(secret: string): ClientAuth {
  if (secret === '') return None();
  const post = ClientSecretPost(secret);
  const basic = ClientSecretBasic(secret);
  return (server, ...rest) => {
    // Without the list, only Basic is supported (OpenID Connect Discovery, section 3).
    const isPost = server.token_endpoint_auth_methods_supported?.includes('client_secret_post') === true;
    (isPost ? post : basic)(server, ...rest);
  };
}

const KEY_SET = 'application/jwk-set+json';

/** A key set without keys whose signatures take long to check. @throws Error when no other is left */
function withUsualKeys(response: PublicResponse, url: string): PublicResponse {
  const parsed = KeySet.safeParse(jsonOf(response.body));
  // The library says what is wrong with it.
  if (!parsed.success) return response;
  const keys = parsed.data.keys.filter((key) => unusualJwk(key) === null);
  const [unusual] = parsed.data.keys;
  if (keys.length === 0 && unusual) throw new Error(`the keys of ${url} are not used: ${unusualJwk(unusual)}`);
  return { ...response, body: Buffer.from(JSON.stringify({ keys })) };
}

const KeySet = z.object({ keys: z.array(z.record(z.string(), z.unknown())) });

/** Reaches the addresses that policies may reach, and no others. */
function fetchWith(send: Send, signal: AbortSignal | undefined, adapt: Adapt = withoutNull): CustomFetch {
  return async (url, { method, headers, body }) => {
    const text = body === undefined || body === null ? undefined : String(body);
    const request = { method, headers, ...(text !== undefined && { body: text }), ...(signal && { signal }) };
    const sent = await send(url, MAX_BYTES, request);
    const read = method === 'POST' ? asTokens : adapt;
    const response = headers.accept?.includes(KEY_SET) ? withUsualKeys(sent, url) : read(sent);
    const relevant = new Headers();
    for (const name of ['content-type', 'www-authenticate']) {
      const [value] = [response.headers[name]].flat();
      if (value !== undefined) relevant.set(name, value);
    }
    const hasBody = response.status !== 204 && response.status !== 304;
    return new Response(hasBody ? new Uint8Array(response.body) : null, { status: response.status, headers: relevant });
  };
}

const JsonObject = z.record(z.string(), z.unknown());

/** Changes a response that is a JSON object; leaves out members that are null, as providers send them for what they lack. */
function changed(
  response: PublicResponse,
  json: unknown,
  change: (members: Record<string, unknown>) => object,
): PublicResponse {
  const parsed = JsonObject.safeParse(json);
  if (!parsed.success) return response;
  const members = Object.fromEntries(Object.entries(parsed.data).filter(([, value]) => value !== null));
  return { ...response, body: Buffer.from(JSON.stringify(change(members))) };
}

const withoutNull: Adapt = (response) => changed(response, jsonOf(response.body), (members) => members);

/** A response with tokens, in a form that other clients accept, too: GitHub reports errors with status 200, Twitch lists scopes. */
const asTokens: Adapt = (response) => {
  const { status, body } = response;
  const json = jsonOf(body) ?? formOf(body);
  const hasFailed = TokenError.safeParse(json).success;
  const isOk = status >= 200 && status < 300;
  return changed({ ...response, status: !isOk ? status : hasFailed ? 400 : 200 }, json, (members) => {
    if (hasFailed || !isOk) return members;
    const { expires_in: seconds, refresh_token: refresh, scope, ...rest } = members;
    return {
      ...rest,
      // Nobody has asked for tokens of another type.
      token_type: 'bearer',
      ...(Number.parseFloat(String(seconds)) >= 0 && { expires_in: seconds }),
      ...(refresh !== '' && { refresh_token: refresh }),
      ...(Array.isArray(scope) ? { scope: scope.join(' ') } : typeof scope === 'string' && { scope }),
    };
  });
};

const TokenError = z.looseObject({ error: z.string() });

/** User info that may leave out whom it is about: the token that asked for it came with the subject. Some write it as a number. */
function asUserInfo(subject: string): Adapt {
  return (response) =>
    changed(response, jsonOf(response.body), ({ sub = subject, ...rest }) => ({
      ...rest,
      sub: typeof sub === 'number' ? String(sub) : sub,
    }));
}

/** Tokens as OAuth had them before JSON. */
function formOf(body: Buffer): Record<string, string> | null {
  const fields = Object.fromEntries(new URLSearchParams(body.toString()));
  return fields.access_token === undefined && fields.error === undefined ? null : fields;
}

function jsonOf(body: Buffer): unknown {
  try {
    // Unlike toString, it leaves out a byte order mark.
    return JSON.parse(new TextDecoder().decode(body));
  } catch {
    // The reader finds that everything is missing. An error would quote the text, which may have secrets.
    return null;
  }
}

class OpenIdClient implements IdentityProvider {
  readonly #places = new ClientPlaces(MAX_EXCHANGES);

  constructor(
    private readonly client: SignInClient,
    private readonly configuration: Configuration,
    private readonly to: { readonly send: Send; readonly until: FetchUntil },
  ) {
    configuration[customFetch] = to.until();
  }

  authorizationUrl(parameters: Readonly<Record<string, string>>): string {
    try {
      return buildAuthorizationUrl(this.configuration, { ...parameters }).href;
    } catch (error) {
      throw outage('ERR_NGROK_5208', this.client.place.issuer, error);
    }
  }

  redeem(callback: URL, { state, nonce, verifier }: Attempt, client: ExchangeClient): Promise<SignedIn> {
    return this.#exchange(client, async (signal) => {
      const isOpenId = this.client.place.oauth === undefined;
      const checks = {
        pkceCodeVerifier: verifier,
        expectedState: state,
        ...(isOpenId && { expectedNonce: nonce, idTokenExpected: true }),
      };
      const answer = await this.#until(signal, () => authorizationCodeGrant(this.configuration, callback, checks));
      return { ...(await this.#personOf(answer, null, signal)), tokens: tokensOf(answer) };
    });
  }

  renew(known: SignedIn, client: ExchangeClient): Promise<SignedIn> {
    return this.#exchange(client, async (signal) => {
      const { access, refresh } = known.tokens;
      if (refresh === '' && access === '') return known;
      const answer: Answer =
        refresh === ''
          ? { access_token: access, token_type: 'bearer' }
          : await this.#until(signal, () => refreshTokenGrant(this.configuration, refresh));
      const tokens = { ...known.tokens, ...withoutEmpty(tokensOf(answer)) };
      const person = await this.#personOf(answer, known, signal);
      if (person.subject !== known.subject) throw sessionEnded('another subject');
      return { ...person, tokens };
    }).catch((error: unknown) => {
      throw isRefusal(error) ? sessionEnded(detailOf(error.cause, this.client.place.issuer)) : error;
    });
  }

  /** @param known whom the answer is about; null when it is somebody new */
  async #personOf(answer: Answer, known: SignedInPerson | null, signal: AbortSignal): Promise<SignedInPerson> {
    const { place } = this.client;
    if (place.oauth !== undefined)
      return place.person(...(await this.#userDocuments(answer.access_token, place.oauth, signal)));
    const claims = answer.claims?.();
    const hasUserInfo = this.configuration.serverMetadata().userinfo_endpoint !== undefined;
    const subject = claims?.sub ?? known?.subject;
    if (subject === undefined) throw new Error('the provider has sent no ID token');
    const isWhole = typeof claims?.email === 'string' && typeof claims.name === 'string';
    if (!hasUserInfo || (isWhole && known === null)) return claims ? place.person(claims) : (known as SignedInPerson);
    const ask = () => fetchUserInfo(this.configuration, answer.access_token, subject);
    const userInfo = await this.#until(signal, ask, asUserInfo(subject)).catch((error: unknown) => {
      // Entra ID refuses tokens for other APIs. The ID token has just said who it is.
      if (known === null && isUserInfoRefused(error)) return {};
      throw error;
    });
    return place.person({ ...claims, ...userInfo });
  }

  async #userDocuments(
    token: string,
    { userUrls, clientHeader }: OAuthEndpoints,
    signal: AbortSignal,
  ): Promise<unknown[]> {
    const headers = {
      authorization: `Bearer ${token}`,
      'user-agent': 'device-agent',
      ...(clientHeader !== null && { [clientHeader]: this.client.clientId }),
    };
    const documents: unknown[] = [];
    for (const url of userUrls) {
      const { status, body } = await this.to.send(url, MAX_BYTES, { headers, signal });
      if (status === 401 || status === 403) {
        const message = 'The identity provider does not let this endpoint read your account.';
        throw new SignInFailed(403, 'ERR_NGROK_3113', message, `${url} responded with status ${status}`);
      }
      if (status !== 200) throw new Error(`${url} responded with status ${status}`);
      documents.push(jsonOf(body));
    }
    return documents;
  }

  async #exchange<T>({ clientIp, clientLeft }: ExchangeClient, work: (signal: AbortSignal) => Promise<T>): Promise<T> {
    try {
      return await this.#places.run(clientIp, clientLeft, ({ signal }) => work(signal));
    } catch (error) {
      throw error instanceof ClientLeft ? error : failureOf(error, this.client.place.issuer);
    }
  }

  /**
   * Ends a request of the library with a signal, which has no parameter for it. Its functions read how to fetch before they wait
   * for anything. What they fetch for later requests, such as keys, goes on.
   */
  #until<T>(signal: AbortSignal, request: () => Promise<T>, adapt?: Adapt): Promise<T> {
    this.configuration[customFetch] = this.to.until(signal, adapt);
    try {
      return request();
    } finally {
      this.configuration[customFetch] = this.to.until();
    }
  }
}

function tokensOf({ id_token: identity = '', access_token: access, refresh_token: refresh = '' }: Answer): Tokens {
  return { identity, access, refresh };
}

function withoutEmpty(tokens: Tokens): Partial<Tokens> {
  return Object.fromEntries(Object.entries(tokens).filter(([, token]) => token !== ''));
}

/** What openid-client calls answers that are not what they have to be, so that nobody is signed in by them. */
const UNVERIFIED = [
  'OAUTH_INVALID_RESPONSE',
  'OAUTH_JWT_CLAIM_COMPARISON_FAILED',
  'OAUTH_JWT_TIMESTAMP_CHECK_FAILED',
  'OAUTH_JSON_ATTRIBUTE_COMPARISON_FAILED',
  'OAUTH_KEY_SELECTION_FAILED',
];

function isClientError(error: unknown, ...codes: readonly string[]): boolean {
  return error instanceof ClientError && codes.includes(error.code ?? '');
}

function failureOf(error: unknown, issuer: string): SignInFailed {
  if (error instanceof SignInFailed) return error;
  if (error instanceof NoPlaceLeft) {
    const message = 'Too many people sign in at the moment. Try again later.';
    return new SignInFailed(503, 'ERR_NGROK_3165', message, `${issuer}: too many at a time`);
  }
  const fail = (status: number, code: string, message: string, detail = detailOf(error, issuer)) =>
    new SignInFailed(status, code, message, detail, { cause: error });
  const refusedClient = (word: string) =>
    fail(502, 'ERR_NGROK_3125', `The identity provider refuses this endpoint's client: ${wordOf(word)}.`);
  if (error instanceof AuthorizationResponseError) {
    if (error.error === 'access_denied') return fail(403, 'ERR_NGROK_3114', 'Signing in was declined.', '');
    return fail(403, 'ERR_NGROK_3112', `The identity provider has refused: ${wordOf(error.error)}.`);
  }
  if (error instanceof WWWAuthenticateChallengeError) {
    if (error.cause.every(({ scheme }) => scheme !== 'bearer')) return refusedClient('invalid_client');
    return sessionEnded(detailOf(error, issuer));
  }
  if (error instanceof ResponseBodyError && error.status < 500) {
    if (error.error === 'invalid_grant' || error.error === 'bad_verification_code') {
      return fail(400, 'ERR_NGROK_3122', "The identity provider's code has expired, or was used before. Start again.");
    }
    return refusedClient(error.error);
  }
  if (isClientError(error, ...UNVERIFIED)) {
    return fail(403, 'ERR_NGROK_5204', "The identity provider's response cannot be verified. Try again.");
  }
  return outage('ERR_NGROK_3160', issuer, error);
}

function sessionEnded(detail: string): SignInFailed {
  const message = 'The identity provider has ended this session. Sign in again.';
  return new SignInFailed(403, 'ERR_NGROK_3151', message, detail);
}

/** Whether a provider has refused the tokens of a session in its own way: Dex calls that `invalid_request`, and access denied. */
function isRefusal(error: unknown): error is SignInFailed {
  if (!(error instanceof SignInFailed)) return false;
  const { cause } = error;
  if (cause instanceof ResponseBodyError) return cause.status === 400 && cause.error === 'invalid_request';
  return [401, 403].includes(statusOf(cause));
}

/** Whether a provider has no user info for a token, which trying again does not change. */
function isUserInfoRefused(error: unknown): boolean {
  return error instanceof WWWAuthenticateChallengeError || [401, 403, 404].includes(statusOf(error));
}

/** The status of a response that the library has not accepted; 0 without one. */
function statusOf(error: unknown): number {
  const answer = error instanceof ClientError ? error.cause : null;
  return answer instanceof Response ? answer.status : 0;
}

function outage(code: string, issuer: string, error: unknown): SignInFailed {
  const message = 'The identity provider is unavailable. Try again later.';
  return new SignInFailed(502, code, message, detailOf(error, issuer), { cause: error });
}

/** The values that an error compares are left out: they are parts of tokens. */
function detailOf(error: unknown, issuer: string): string {
  const said = error instanceof AuthorizationResponseError || error instanceof ResponseBodyError;
  if (said) return `${issuer}: ${quote(error.error)} ${quote(error.error_description ?? '')}`;
  const { cause } = error instanceof Error ? error : {};
  return `${issuer}: ${messageOf(error)}${cause instanceof Error ? `: ${cause.message}` : ''}`;
}

/** An error code of OAuth, if it is one: anyone can write anything into a link. */
function wordOf(error: string): string {
  return /^[a-z_]{1,60}$/.test(error) ? error : 'unknown error';
}
