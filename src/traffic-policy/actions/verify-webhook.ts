import { z } from 'zod';
import type { ActionContext } from '../action-context.ts';
import { parseConfig } from '../action-problems.ts';
import { refusal } from '../policy-refused.ts';
import type { PolicyRequest } from '../policy-subjects.ts';
import { firstValue } from '../scope/header-map.ts';
import { requestUrl } from '../scope/http-variables.ts';
import { parseMediaType } from '../scope/media-type.ts';
import type { PolicyError, PreparedAction } from '../steps.ts';
import type { Template } from '../templates.ts';
import { isKnownProvider, SUPPORTED_PROVIDERS, verifierOf } from '../webhooks/providers.ts';
import type { Verify, Webhook } from '../webhooks/webhook.ts';
import { NO_ERROR } from './restrict-ips.ts';

const MAX_BODY = 1024 * 1024;

const VerifyWebhookConfig = z.strictObject({
  provider: z
    .string()
    .refine(isKnownProvider, { error: 'is not a known provider of webhooks', params: { ngrok: 'ERR_NGROK_2222' } }),
  secret: z.string().min(1).optional(),
  enforce: z.boolean().optional(),
});

const CODE = 'ERR_NGROK_3204';

/** Admits only webhooks with a valid signature of their provider. */
export function verifyWebhook(config: unknown, context: ActionContext): PreparedAction {
  const { provider, secret: text, enforce = true } = parseConfig(VerifyWebhookConfig, config);
  const verify = verifierOf(provider);
  if (!verify) {
    const message = `this gateway cannot verify webhooks of ${provider}; it supports ${SUPPORTED_PROVIDERS.join(', ')}`;
    throw refusal('ERR_NGROK_2222', message, 'config.provider');
  }
  if (text === undefined && provider !== 'sns') throw refusal('ERR_NGROK_2234', 'is missing', 'config.secret');
  const secret = context.template(text ?? '', 'config.secret');
  return {
    ends: false,
    on_http_request: () => async (request) => {
      const problem = await problemOf(request, verify, secret, context);
      const error = problem === null ? NO_ERROR : { code: CODE, message: problem };
      context.record(request, 'verify_webhook', { verified: problem === null, error });
      return problem === null || !enforce ? undefined : refused(problem);
    },
  };
}

function refused(problem: string): PolicyError {
  return { kind: 'error', status: 403, code: CODE, message: `The webhook was rejected: ${problem}.`, headers: [] };
}

/** @returns why the request is not trusted; null when it is */
async function problemOf(
  request: PolicyRequest,
  verify: Verify,
  secret: Template,
  context: ActionContext,
): Promise<string | null> {
  const scope = context.scopeOf(request);
  const body = await request.readBody(MAX_BODY);
  if (body === null) return 'the body is too long';
  const { processorTime } = context.ports;
  const webhook = (): Webhook => ({
    method: request.method,
    url: requestUrl(scope),
    body,
    contentType: parseMediaType(firstValue(request.headers, 'content-type') ?? '').type,
    secret: secret.text(scope),
    nowMs: scope.now(),
    header: (name) => firstValue(request.headers, name) ?? '',
    fetch: context.ports.fetch,
    note: (problem) => context.trouble(CODE, problem),
    measured: (work) => processorTime.run(work),
  });
  return processorTime.run(() => verify(webhook()));
}
