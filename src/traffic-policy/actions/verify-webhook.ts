import { z } from 'zod';
import type { ActionContext } from '../action-context.ts';
import { parseConfig } from '../action-problems.ts';
import { refusal } from '../policy-errors.ts';
import type { PolicyRequest } from '../policy-subjects.ts';
import { firstValue, parseMediaType } from '../scope/header-map.ts';
import { requestUrl } from '../scope/http-variables.ts';
import { SigningKeys } from '../state/signing-keys.ts';
import { type PolicyAnswer, type PolicyError, type PreparedAction, policyError } from '../steps.ts';
import type { Template } from '../templates.ts';
import { verifierOf, whyUnsupported } from '../webhooks/providers.ts';
import type { ChallengeAnswer, Verify, Webhook, WebhookVerdict } from '../webhooks/webhook.ts';
import { NO_ERROR } from './restrict-ips.ts';

const MAX_BODY = 1024 * 1024;

const VerifyWebhookConfig = z.strictObject({
  provider: z.string(),
  secret: z.string().min(1).optional(),
  enforce: z.boolean().optional(),
});

const CODE = 'ERR_NGROK_3204';

export function verifyWebhook(config: unknown, context: ActionContext): PreparedAction {
  const { provider, secret: text, enforce = true } = parseConfig(VerifyWebhookConfig, config);
  const verify = verifierOf(provider);
  if (!verify) throw refusal('ERR_NGROK_2222', whyUnsupported(provider), 'config.provider');
  if (text === undefined && provider !== 'sns') throw refusal('ERR_NGROK_2234', 'is missing', 'config.secret');
  const secret = context.template(text ?? '', 'config.secret');
  const signingKeys = context.ports.state.keep(SigningKeys, [], () => new SigningKeys());
  return {
    ends: false,
    on_http_request: () => async (request) => {
      const verdict = await verdictOn(request, verify, { secret, signingKeys }, context);
      const problem = typeof verdict === 'string' ? verdict : null;
      const error = problem === null ? NO_ERROR : { code: CODE, message: problem };
      context.record(request, 'verify_webhook', { verified: problem === null, error });
      if (problem !== null) return enforce ? refused(problem, provider) : undefined;
      return typeof verdict === 'object' && verdict !== null ? answered(verdict) : undefined;
    },
  };
}

function answered({ contentType, body }: ChallengeAnswer): PolicyAnswer {
  const headers = ['content-type', contentType];
  return { kind: 'answer', status: 200, headers, body: Buffer.from(body), refused: false };
}

function refused(problem: string, provider: string): PolicyError | PolicyAnswer {
  // Xero checks that a wrong signature gets this status without a body, before it sends webhooks.
  if (provider === 'xero') {
    const headers = ['ngrok-error-code', CODE];
    return { kind: 'answer', status: 401, headers, body: Buffer.alloc(0), refused: true };
  }
  return policyError(403, CODE, `The webhook was rejected: ${problem}.`);
}

async function verdictOn(
  request: PolicyRequest,
  verify: Verify,
  { secret, signingKeys }: { secret: Template; signingKeys: SigningKeys },
  context: ActionContext,
): Promise<WebhookVerdict> {
  const scope = context.scopeOf(request);
  const body = await request.readBody(MAX_BODY);
  if (body === null) return 'the body is too long';
  const { ports } = context;
  const time = context.timeFor(request);
  const webhook = (): Webhook => ({
    method: request.method,
    url: requestUrl(scope),
    body,
    contentType: parseMediaType(firstValue(request.headers, 'content-type') ?? '').type,
    secret: secret.text(scope),
    nowMs: scope.now(),
    header: (name) => firstValue(request.headers, name) ?? '',
    signingKey: (url) => {
      const { clientIp } = request.connection;
      return signingKeys.get(url, { source: { fetch: ports.fetch, time }, clientIp, nowMs: ports.clock.now() });
    },
    note: (problem) => context.trouble(CODE, problem),
    measured: (work) => time.run(work),
  });
  return time.run(() => verify(webhook()));
}
