import { z } from 'zod';
import { isHeaderText } from './header-text.ts';

/** Actions whose configuration is for the gateway to check; here it only has to be an object. */
export const OPAQUE_ACTIONS = [
  'ai-gateway',
  'basic-auth',
  'circuit-breaker',
  'close-connection',
  'compress-response',
  'forward-internal',
  'http-request',
  'jwt-validation',
  'log',
  'oauth',
  'oidc',
  'openid-connect',
  'owasp-crs-request',
  'owasp-crs-response',
  'rate-limit',
  'redirect',
  'request-body-find-replace',
  'response-body-find-replace',
  'restrict-ips',
  'saml',
  'set-vars',
  'sse-find-replace',
  'terminate-tls',
  'url-rewrite',
  'verify-webhook',
] as const;

/** Everything that ngrok's documentation lists as an action. */
export const ACTION_TYPES = ['add-headers', 'custom-response', 'deny', 'remove-headers', ...OPAQUE_ACTIONS] as const;
export type ActionType = (typeof ACTION_TYPES)[number];

const MAX_HEADERS = 10;

/** A name as RFC 9110 allows it: a token. */
const HeaderName = z.string().refine((name) => /^[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,256}$/.test(name), {
  error: 'is not a valid header name',
  params: { ngrok: 'ERR_NGROK_2210' },
});

/** The documentation's examples also give numbers and booleans; what `${…}` stands for is checked when it is known. */
const HeaderValue = z
  .union([z.string(), z.number(), z.boolean()], { error: 'must be a text, a number or true/false' })
  .refine((value) => typeof value !== 'string' || value.includes('${') || isHeaderText(value), {
    error: 'holds a character that a header cannot carry',
    params: { ngrok: 'ERR_NGROK_2211' },
  });

export const Headers = z
  .record(HeaderName, HeaderValue)
  .refine((headers) => Object.keys(headers).length <= MAX_HEADERS, {
    error: `must have at most ${MAX_HEADERS} headers`,
    params: { ngrok: 'ERR_NGROK_2212' },
  });

/** Headers that ngrok lets no policy touch. */
function isConfigurable(name: string): boolean {
  const lower = name.toLowerCase();
  return lower !== 'user-agent' && lower !== 'ngrok-skip-browser-warning';
}

function refuseFixedHeaders(names: readonly string[], context: z.RefinementCtx): void {
  for (const name of names) {
    if (isConfigurable(name)) continue;
    context.addIssue({ code: 'custom', message: `${name} cannot be changed`, params: { ngrok: 'ERR_NGROK_2219' } });
  }
}

export const AddHeadersConfig = z.strictObject({
  headers: Headers.refine((headers) => Object.keys(headers).length > 0, {
    error: 'must have at least one header',
    params: { ngrok: 'ERR_NGROK_2223' },
  }).superRefine((headers, context) => refuseFixedHeaders(Object.keys(headers), context)),
});
export type AddHeadersConfig = z.infer<typeof AddHeadersConfig>;

export const RemoveHeadersConfig = z.strictObject({
  headers: z.array(HeaderName).min(1).max(MAX_HEADERS).superRefine(refuseFixedHeaders),
});
export type RemoveHeadersConfig = z.infer<typeof RemoveHeadersConfig>;

/** A final status: interim ones would leave the client waiting for another answer. */
const StatusCode = z.int().min(200).max(599);

export const DenyConfig = z.strictObject({ status_code: StatusCode.optional() });
export type DenyConfig = z.infer<typeof DenyConfig>;

export const CustomResponseConfig = z.strictObject({
  status_code: StatusCode.optional(),
  body: z.string().optional(),
  headers: Headers.optional(),
});
export type CustomResponseConfig = z.infer<typeof CustomResponseConfig>;

/** The same with the names that body and content-type had in the legacy shape. */
export const CustomResponseInput = CustomResponseConfig.extend({
  content: z.string().optional(),
  content_type: HeaderValue.optional(),
});
