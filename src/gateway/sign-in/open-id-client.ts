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
import type { PublicResponse, requestPublic } from '../../traffic-policy/fetch-document.ts';
import {
  type Attempt,
  type IdentityProvider,
  type OAuthEndpoints,
  type Person,
  type SignedIn,
  type SignInClient,
  SignInFailed,
  type Tokens,
} from '../../traffic-policy/sign-in/identity-provider.ts';

/** Bytes of a provider's response. */
const MAX_BYTES = 64 * 1024;
/** Seconds that clocks of providers may differ from the gateway's. */
const METADATA = { [clockTolerance]: 180 };
/** Exchanges with the provider at a time, of people who return from it, and of those who are asked about again. */
const MAX_EXCHANGES = 20;

type Send = typeof requestPublic;
type Answer = TokenEndpointResponse & Partial<TokenEndpointResponseHelpers>;

/** Learns how to use a client at its provider. @throws {SignInFailed} when the provider does not describe itself */
export async function connectToProvider(client: SignInClient, send: Send): Promise<IdentityProvider> {
  const { place, clientId, clientSecret } = client;
  const authentication = authenticationWith(clientSecret);
  if (place.oauth !== undefined) {
    const configuration = new Configuration(metadataOf(place.issuer, place.oauth), clientId, METADATA, authentication);
    configuration[customFetch] = fetchWith(send, asStandard);
    return new OpenIdClient(client, configuration, send);
  }
  const describe = (issuer: string) =>
    discovery(new URL(issuer), clientId, METADATA, authentication, {
      [customFetch]: fetchWith(send),
      // Signatures are checked also where TLS alone would do.
      execute: [enableNonRepudiationChecks],
    });
  try {
    const configuration = await describe(place.issuer).catch((error: unknown) => {
      if (!isClientError(error, 'OAUTH_JSON_ATTRIBUTE_COMPARISON_FAILED')) throw error;
      // The document is at the same URL, with and without a slash at the end of the issuer.
      return describe(place.issuer.endsWith('/') ? place.issuer.slice(0, -1) : `${place.issuer}/`);
    });
    return new OpenIdClient(client, configuration, send);
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

/** Reaches the addresses that policies may reach, and no others. @param adapt makes a provider's responses standard ones */
function fetchWith(send: Send, adapt = (response: PublicResponse) => response): CustomFetch {
  return async (url, { method, headers, body }) => {
    const text = body === undefined || body === null ? undefined : String(body);
    const response = adapt(await send(url, MAX_BYTES, { method, headers, ...(text !== undefined && { body: text }) }));
    const relevant = new Headers();
    for (const name of ['content-type', 'www-authenticate']) {
      const [value] = [response.headers[name]].flat();
      if (value !== undefined) relevant.set(name, value);
    }
    const hasBody = response.status !== 204 && response.status !== 304;
    return new Response(hasBody ? new Uint8Array(response.body) : null, { status: response.status, headers: relevant });
  };
}

/** GitHub reports errors with status 200, Twitch lists scopes. */
function asStandard(response: PublicResponse): PublicResponse {
  const parsed = TokenDocument.safeParse(jsonOf(response.body));
  if (!parsed.success) return response;
  const { error, scope } = parsed.data;
  const body = Array.isArray(scope) ? { ...parsed.data, scope: scope.join(' ') } : parsed.data;
  const hasFailed = error !== undefined && response.status === 200;
  return { ...response, status: hasFailed ? 400 : response.status, body: Buffer.from(JSON.stringify(body)) };
}

const TokenDocument = z.looseObject({ error: z.string().optional(), scope: z.unknown().optional() });

function jsonOf(body: Buffer): unknown {
  try {
    return JSON.parse(body.toString());
  } catch {
    // The reader finds that everything is missing. An error would quote the text, which may have secrets.
    return null;
  }
}

class OpenIdClient implements IdentityProvider {
  #exchanges = 0;

  constructor(
    private readonly client: SignInClient,
    private readonly configuration: Configuration,
    private readonly send: Send,
  ) {}

  authorizationUrl(parameters: Readonly<Record<string, string>>): string {
    try {
      return buildAuthorizationUrl(this.configuration, { ...parameters }).href;
    } catch (error) {
      throw outage('ERR_NGROK_5208', this.client.place.issuer, error);
    }
  }

  redeem(callback: URL, { state, nonce, verifier }: Attempt): Promise<SignedIn> {
    return this.#exchange(async () => {
      const isOpenId = this.client.place.oauth === undefined;
      const answer = await authorizationCodeGrant(this.configuration, callback, {
        pkceCodeVerifier: verifier,
        expectedState: state,
        ...(isOpenId && { expectedNonce: nonce, idTokenExpected: true }),
      });
      return { ...(await this.#personOf(answer, null)), tokens: tokensOf(answer) };
    });
  }

  renew(known: SignedIn): Promise<SignedIn> {
    return this.#exchange(async () => {
      const { access, refresh } = known.tokens;
      if (refresh === '' && access === '') return known;
      const answer: Answer =
        refresh === ''
          ? { access_token: access, token_type: 'bearer' }
          : await refreshTokenGrant(this.configuration, refresh);
      const tokens = { ...known.tokens, ...withoutEmpty(tokensOf(answer)) };
      const person = await this.#personOf(answer, known);
      if (person.subject !== known.subject) throw sessionEnded('another subject');
      return { ...person, tokens };
    }).catch((error: unknown) => {
      throw isRefusal(error) ? sessionEnded(detailOf(error.cause, this.client.place.issuer)) : error;
    });
  }

  /** @param known whom the answer is about; null when it is somebody new */
  async #personOf(answer: Answer, known: Person | null): Promise<Person> {
    const { place } = this.client;
    if (place.oauth !== undefined)
      return place.person(...(await this.#userDocuments(answer.access_token, place.oauth)));
    const claims = answer.claims?.();
    const hasUserInfo = this.configuration.serverMetadata().userinfo_endpoint !== undefined;
    const subject = claims?.sub ?? known?.subject;
    if (subject === undefined) throw new Error('the provider has sent no ID token');
    const isWhole = claims?.email !== undefined && claims.name !== undefined;
    if (!hasUserInfo || (isWhole && known === null)) return claims ? place.person(claims) : (known as Person);
    return place.person({ ...claims, ...(await fetchUserInfo(this.configuration, answer.access_token, subject)) });
  }

  async #userDocuments(token: string, { userUrls, clientHeader }: OAuthEndpoints): Promise<unknown[]> {
    const headers = {
      authorization: `Bearer ${token}`,
      'user-agent': 'device-agent',
      ...(clientHeader !== null && { [clientHeader]: this.client.clientId }),
    };
    const documents: unknown[] = [];
    for (const url of userUrls) {
      const { status, body } = await this.send(url, MAX_BYTES, { headers });
      if (status === 401 || status === 403) {
        const message = 'The identity provider does not let this endpoint read your account.';
        throw new SignInFailed(403, 'ERR_NGROK_3113', message, `${url} responded with status ${status}`);
      }
      if (status !== 200) throw new Error(`${url} responded with status ${status}`);
      documents.push(jsonOf(body));
    }
    return documents;
  }

  async #exchange<T>(work: () => Promise<T>): Promise<T> {
    const { issuer } = this.client.place;
    if (this.#exchanges >= MAX_EXCHANGES) {
      throw new SignInFailed(
        503,
        'ERR_NGROK_3165',
        'Too many people sign in at the moment. Try again later.',
        `${issuer}: too many at a time`,
      );
    }
    this.#exchanges += 1;
    try {
      return await work();
    } catch (error) {
      throw failureOf(error, issuer);
    } finally {
      this.#exchanges -= 1;
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
  const answer = cause instanceof ClientError ? cause.cause : null;
  return answer instanceof Response && (answer.status === 401 || answer.status === 403);
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
