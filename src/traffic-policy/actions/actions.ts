import type { ActionContext, PrepareAction } from '../action-context.ts';
import { type GatewayAction, traitsOf } from '../action-types.ts';
import { refusal } from '../policy-errors.ts';
import type { RawAction } from '../policy-text.ts';
import type { PreparedAction } from '../steps.ts';
import { addHeaders } from './add-headers.ts';
import { basicAuth } from './basic-auth.ts';
import { requestBodyFindReplace, responseBodyFindReplace } from './body-find-replace.ts';
import { circuitBreaker } from './circuit-breaker.ts';
import { compressResponse } from './compress-response.ts';
import { customResponse } from './custom-response.ts';
import { closeConnection, deny } from './deny.ts';
import { forwardInternal } from './forward-internal.ts';
import { gatewayLimitBandwidth } from './gateway-limit-bandwidth.ts';
import { gatewayShareLinks } from './gateway-share-links.ts';
import { gatewaySignIn } from './gateway-sign-in.ts';
import { gatewayStatusPage } from './gateway-status-page.ts';
import { gatewayUpstream } from './gateway-upstream.ts';
import { httpRequest } from './http-request.ts';
import { jwtValidation } from './jwt-validation.ts';
import { log } from './log.ts';
import { oauth } from './oauth.ts';
import { openIdConnect } from './openid-connect.ts';
import { rateLimit } from './rate-limit.ts';
import { redirect } from './redirect.ts';
import { removeHeaders } from './remove-headers.ts';
import { restrictIps } from './restrict-ips.ts';
import { setVars } from './set-vars.ts';
import { sseFindReplace } from './sse-find-replace.ts';
import { terminateTls } from './terminate-tls.ts';
import { urlRewrite } from './url-rewrite.ts';
import { verifyWebhook } from './verify-webhook.ts';

const IMPLEMENTATIONS = {
  'add-headers': addHeaders,
  'basic-auth': basicAuth,
  'circuit-breaker': circuitBreaker,
  'close-connection': closeConnection,
  'compress-response': compressResponse,
  'custom-response': customResponse,
  deny,
  'forward-internal': forwardInternal,
  'gateway-limit-bandwidth': gatewayLimitBandwidth,
  'gateway-share-links': gatewayShareLinks,
  'gateway-sign-in': gatewaySignIn,
  'gateway-status-page': gatewayStatusPage,
  'gateway-upstream': gatewayUpstream,
  'http-request': httpRequest,
  'jwt-validation': jwtValidation,
  log,
  oauth,
  oidc: openIdConnect,
  'openid-connect': openIdConnect,
  'rate-limit': rateLimit,
  redirect,
  'remove-headers': removeHeaders,
  'request-body-find-replace': requestBodyFindReplace,
  'response-body-find-replace': responseBodyFindReplace,
  'restrict-ips': restrictIps,
  'set-vars': setVars,
  'sse-find-replace': sseFindReplace,
  'terminate-tls': terminateTls,
  'url-rewrite': urlRewrite,
  'verify-webhook': verifyWebhook,
} satisfies Readonly<Record<GatewayAction, PrepareAction>>;

const BY_TYPE: ReadonlyMap<string, PrepareAction> = new Map(Object.entries(IMPLEMENTATIONS));

/** More would take longer than 20 ms to check. restrict-ips may have 2,000 ranges. */
const MAX_VALUES = 2_500;

/** @throws {PolicyRefused} when the gateway does not have the action, or its configuration cannot run */
export function prepareAction({ type, config, prepare }: RawAction, context: ActionContext): PreparedAction {
  if (prepare) return prepare(config, context);
  if (valuesIn(config) > MAX_VALUES) throw refusal('ERR_NGROK_2218', `has more than ${MAX_VALUES} values`, 'config');
  const known = BY_TYPE.get(type);
  if (known) return known(config, context);
  if (traitsOf(type)) throw refusal('ERR_NGROK_2201', `this gateway does not support the action ${type} yet`, 'type');
  const hint = type === 'webhook-validation' ? '; use verify-webhook' : '';
  throw refusal('ERR_NGROK_2201', `unknown action ${JSON.stringify(type.slice(0, 100))}${hint}`, 'type');
}

/** The values at all depths; a policy is not nested deeply. */
function valuesIn(value: unknown): number {
  if (typeof value !== 'object' || value === null) return 1;
  return Object.values(value).reduce((sum: number, member) => sum + valuesIn(member), 1);
}
