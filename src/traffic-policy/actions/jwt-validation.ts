import { decodeProtectedHeader, errors, type JWTPayload, type JWTVerifyOptions } from 'jose';
import { z } from 'zod';
import { messageOf } from '../../lib/errors.ts';
import type { ActionContext } from '../action-context.ts';
import { findToken, type TokenPlace, TokenRefused } from '../action-parts/token-finder.ts';
import { verifyToken } from '../action-parts/token-signature.ts';
import { parseConfig } from '../action-problems.ts';
import type { PolicyRequest, PolicyScope } from '../policy-subjects.ts';
import { type KeySet, KeySets } from '../state/key-sets.ts';
import type { ProcessorTime } from '../state/processor-time.ts';
import { type PolicyError, type PreparedAction, policyError } from '../steps.ts';
import type { Template } from '../templates.ts';
import { NO_ERROR } from './restrict-ips.ts';

const oneOrMany = <T extends z.ZodType>(schema: T) =>
  z.union([schema.transform((only) => [only]), z.array(schema).min(1).max(10)]);

const AllowList = z.strictObject({
  allow_list: z
    .array(z.strictObject({ value: z.string().min(1) }))
    .min(1)
    .max(10),
});

/** Only algorithms with public keys: `none` proves nothing, and HS… needs a shared secret. */
const ALGORITHMS = [
  ...['RS256', 'RS384', 'RS512', 'PS256', 'PS384', 'PS512'],
  ...['ES256', 'ES384', 'ES512', 'EdDSA', 'Ed25519'],
] as const;

const JwtValidationConfig = z.strictObject({
  issuer: AllowList,
  audience: AllowList.optional(),
  http: z.strictObject({
    tokens: z
      .array(
        z.strictObject({
          type: z.enum(['id_token', 'access_token', 'at+jwt', 'it+jwt', 'plain', 'jwt']),
          method: z.enum(['header', 'body']),
          name: z.string().min(1).max(256),
          prefix: z.string().max(256).optional(),
        }),
      )
      .min(1)
      .max(5),
  }),
  jws: z.strictObject({
    allowed_algorithms: z.array(z.enum(ALGORITHMS, { error: `must be one of ${ALGORITHMS.join(', ')}` })).min(1),
    keys: oneOrMany(
      z.strictObject({
        sources: oneOrMany(z.strictObject({ additional_jkus: z.array(z.string().min(1)).min(1).max(10) })),
        identification: z.strictObject({ token_claims: z.array(z.enum(['kid'])).optional() }).optional(),
      }),
    ),
  }),
});

interface TokenRules {
  readonly places: readonly TokenPlace[];
  readonly issuers: readonly Template[];
  readonly audiences: readonly Template[];
  readonly algorithms: readonly string[];
  readonly keySetUrls: readonly Template[];
}

export function jwtValidation(config: unknown, context: ActionContext): PreparedAction {
  const { issuer, audience, http, jws } = parseConfig(JwtValidationConfig, config);
  const template = (text: string, field: string) => context.template(text, `config.${field}`);
  const urls = jws.keys.flatMap(({ sources }) => sources.flatMap(({ additional_jkus: jkus }) => jkus));
  const rules: TokenRules = {
    places: http.tokens.map((token, at) => ({
      ...token,
      name: template(token.name, `http.tokens[${at}].name`),
      prefix: template(token.prefix ?? '', `http.tokens[${at}].prefix`),
    })),
    issuers: issuer.allow_list.map(({ value }, at) => template(value, `issuer.allow_list[${at}].value`)),
    audiences: (audience?.allow_list ?? []).map(({ value }, at) => template(value, `audience.allow_list[${at}].value`)),
    algorithms: jws.allowed_algorithms,
    keySetUrls: urls.map((url) => template(url, 'jws.keys.sources.additional_jkus')),
  };
  const keySets = context.ports.state.keep(KeySets, [], () => new KeySets());
  const verifier = new TokenVerifier(rules, keySets, context);
  return {
    ends: false,
    on_http_request: () => async (request) => {
      const verified: object[] = [];
      try {
        for (const place of rules.places) verified.push(await verifier.verify(request, place));
        context.record(request, 'jwt_validation', { tokens: verified, error: NO_ERROR });
        return undefined;
      } catch (error) {
        if (!(error instanceof TokenRefused)) throw error;
        const { code, message } = error;
        context.record(request, 'jwt_validation', { tokens: verified, error: { code, message } });
        return unauthorized(error);
      }
    },
  };
}

function unauthorized({ code, message }: TokenRefused): PolicyError {
  return policyError(401, code, message, ['www-authenticate', 'Bearer']);
}

class TokenVerifier {
  constructor(
    private readonly rules: TokenRules,
    private readonly keySets: KeySets,
    private readonly context: ActionContext,
  ) {}

  async verify(request: PolicyRequest, place: TokenPlace): Promise<object> {
    const scope = this.context.scopeOf(request);
    const time = this.context.timeFor(request);
    const { token, property } = await findToken(request, place, scope, time);
    const payload = await this.#payloadOf(token, place, scope, time);
    return {
      header: decodeProtectedHeader(token),
      payload,
      signature: token.slice(token.lastIndexOf('.') + 1),
      location: place.method,
      location_property: property,
      verified: true,
    };
  }

  async #payloadOf(token: string, place: TokenPlace, scope: PolicyScope, time: ProcessorTime): Promise<JWTPayload> {
    const { issuers, audiences, algorithms } = this.rules;
    const options: JWTVerifyOptions = {
      issuer: issuers.map((template) => template.text(scope)),
      algorithms: [...algorithms],
      requiredClaims: ['exp'],
      currentDate: new Date(scope.now()),
    };
    if (audiences.length > 0) options.audience = audiences.map((template) => template.text(scope));
    // An access token declares its type (RFC 9068, section 4).
    if (place.type === 'at+jwt' || place.type === 'it+jwt') options.typ = place.type;
    const urls = this.rules.keySetUrls.map((template) => template.text(scope));
    const tried = new Set<KeySet>();
    // What was parsed of the request must not wait with it.
    scope.changed();
    for (const stale of [false, true]) {
      for (const url of urls) {
        const payload = await this.#tryKeySet(token, url, stale, options, { tried, time });
        if (payload !== null) return payload;
      }
    }
    throw new TokenRefused('ERR_NGROK_3403', 'The token is signed with an unknown key.');
  }

  /** @returns null when the set has no key for the token, or was tried before */
  async #tryKeySet(
    token: string,
    url: string,
    stale: boolean,
    options: JWTVerifyOptions,
    { tried, time }: { tried: Set<KeySet>; time: ProcessorTime },
  ): Promise<JWTPayload | null> {
    const { ports } = this.context;
    const unusable = (problem: string): null => {
      this.context.trouble('ERR_NGROK_3403', problem);
      return null;
    };
    let keys: KeySet;
    try {
      keys = await this.keySets.get(url, { fetch: ports.fetch, time }, ports.clock.now(), stale);
    } catch (error) {
      return unusable(`cannot fetch ${url}: ${messageOf(error)}`);
    }
    if (tried.has(keys)) return null;
    tried.add(keys);
    try {
      return await verifyToken(token, keys.keyFor, options, time);
    } catch (error) {
      if (error instanceof errors.JWKSNoMatchingKey) {
        return keys.unusual === null ? null : unusable(`keys of ${url} are ignored: ${keys.unusual}`);
      }
      if (error instanceof errors.JOSEError) throw refusedFor(error);
      return unusable(`cannot use a key of ${url}: ${messageOf(error)}`);
    }
  }
}

function refusedFor(error: InstanceType<typeof errors.JOSEError>): TokenRefused {
  if (error instanceof errors.JWTExpired) return new TokenRefused('ERR_NGROK_3403', 'The token has expired.');
  if (error instanceof errors.JWTClaimValidationFailed) {
    return new TokenRefused('ERR_NGROK_3403', `The token's ${error.claim} is not accepted.`);
  }
  if (error instanceof errors.JWSInvalid || error instanceof errors.JWTInvalid) {
    return new TokenRefused('ERR_NGROK_3416', 'The token is malformed.');
  }
  return new TokenRefused('ERR_NGROK_3401', 'The token cannot be verified.');
}
