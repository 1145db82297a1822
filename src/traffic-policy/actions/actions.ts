import type { ActionContext, PrepareAction } from '../action-context.ts';
import { refusal } from '../policy-refused.ts';
import type { RawAction } from '../policy-text.ts';
import type { PreparedAction } from '../steps.ts';
import { addHeaders } from './add-headers.ts';
import { basicAuth } from './basic-auth.ts';
import { circuitBreaker } from './circuit-breaker.ts';
import { closeConnection } from './close-connection.ts';
import { compressResponse } from './compress-response.ts';
import { customResponse } from './custom-response.ts';
import { deny } from './deny.ts';
import { forwardInternal } from './forward-internal.ts';
import { jwtValidation } from './jwt-validation.ts';
import { log } from './log.ts';
import { rateLimit } from './rate-limit.ts';
import { redirect } from './redirect.ts';
import { removeHeaders } from './remove-headers.ts';
import { restrictIps } from './restrict-ips.ts';
import { setVars } from './set-vars.ts';
import { terminateTls } from './terminate-tls.ts';
import { urlRewrite } from './url-rewrite.ts';
import { verifyWebhook } from './verify-webhook.ts';

const ACTIONS: ReadonlyMap<string, PrepareAction> = new Map([
  ['add-headers', addHeaders],
  ['basic-auth', basicAuth],
  ['circuit-breaker', circuitBreaker],
  ['close-connection', closeConnection],
  ['compress-response', compressResponse],
  ['custom-response', customResponse],
  ['deny', deny],
  ['forward-internal', forwardInternal],
  ['jwt-validation', jwtValidation],
  ['log', log],
  ['rate-limit', rateLimit],
  ['redirect', redirect],
  ['remove-headers', removeHeaders],
  ['restrict-ips', restrictIps],
  ['set-vars', setVars],
  ['terminate-tls', terminateTls],
  ['url-rewrite', urlRewrite],
  ['verify-webhook', verifyWebhook],
]);

/** Actions of the documentation that this gateway does not have. */
const NOT_YET: ReadonlySet<string> = new Set([
  'ai-gateway',
  'http-request',
  'oauth',
  'oidc',
  'openid-connect',
  'owasp-crs-request',
  'owasp-crs-response',
  'request-body-find-replace',
  'response-body-find-replace',
  'saml',
  'sse-find-replace',
]);

/**
 * Makes an action ready to run.
 *
 * @throws {PolicyRefused} when there is no such action, or its configuration cannot be run
 */
export function prepareAction({ type, config, prepare }: RawAction, context: ActionContext): PreparedAction {
  const known = prepare ?? ACTIONS.get(type);
  if (known) return known(config, context);
  if (NOT_YET.has(type))
    throw refusal('ERR_NGROK_2201', `this gateway does not support the action ${type} yet`, 'type');
  const meant = type === 'webhook-validation' ? '; verify-webhook is meant, perhaps' : '';
  throw refusal('ERR_NGROK_2201', `there is no action ${JSON.stringify(type.slice(0, 100))}${meant}`, 'type');
}
