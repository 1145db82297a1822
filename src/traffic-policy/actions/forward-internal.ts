import { z } from 'zod';
import type { ActionContext } from '../action-context.ts';
import { parseConfig } from '../action-problems.ts';
import { PolicyFailure, refusal } from '../policy-errors.ts';
import type { Subject } from '../policy-subjects.ts';
import type { PolicyForward, PreparedAction } from '../steps.ts';

const ForwardInternalConfig = z.strictObject({
  url: z.string().min(1),
  on_error: z.enum(['halt', 'continue']).optional(),
  // Some pages of ngrok's documentation have it, without a meaning.
  binding: z.unknown().optional(),
});

export function forwardInternal(config: unknown, context: ActionContext): PreparedAction {
  const { url: text, on_error: onError = 'halt' } = parseConfig(ForwardInternalConfig, config);
  const template = context.template(text, 'config.url');
  const { protocol } = context.policy;
  const wanted = protocol === 'http' || protocol === 'https' ? ['http', 'https'] : [protocol];
  if (template.constant !== null) {
    const problem = urlProblem(template.constant, wanted);
    if (problem) throw refusal('ERR_NGROK_2226', problem, 'config.url');
  }
  const step = (subject: Subject): PolicyForward<undefined> => {
    const url = template.constant ?? template.text(context.scopeOf(subject));
    const problem = template.constant === null ? urlProblem(url, wanted) : null;
    if (problem) throw new PolicyFailure('ERR_NGROK_2226', `config.url ${problem}`);
    if (onError === 'halt') return { kind: 'forward', url, resume: null };
    const resume = ({ code, message }: { code: string; message: string }) => {
      context.record(subject, 'forward_internal', { url, error: { code, message } });
      return undefined;
    };
    return { kind: 'forward', url, resume };
  };
  return { ends: onError === 'halt', on_tcp_connect: () => step, on_http_request: () => step };
}

function urlProblem(url: string, protocols: readonly string[]): string | null {
  const match = /^([a-z]+):\/\/([a-z0-9_](?:[a-z0-9_.-]*[a-z0-9])?)\.internal(?::(\d{1,5}))?\/?$/i.exec(url);
  if (!match) return 'must be scheme://name.internal[:port]';
  if (protocols.includes(match[1]?.toLowerCase() ?? '')) return null;
  return `must have the protocol of the endpoint: ${protocols.join(' or ')}`;
}
