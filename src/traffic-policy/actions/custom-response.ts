import { CustomResponseConfig } from '../action-config.ts';
import type { ActionContext } from '../action-context.ts';
import { headerTemplates } from '../action-parts/header-templates.ts';
import { parseConfig } from '../action-problems.ts';
import type { PolicyRequest } from '../policy-subjects.ts';
import type { PolicyAnswer, PreparedAction } from '../steps.ts';

/** Statuses whose responses have no content (RFC 9110, sections 15.3.5, 15.3.6 and 15.4.5). */
const WITHOUT_BODY: ReadonlySet<number> = new Set([204, 205, 304]);

export function customResponse(config: unknown, context: ActionContext): PreparedAction {
  const { status_code: status = 200, body: text = '', headers: given = {} } = parseConfig(CustomResponseConfig, config);
  const body = context.template(text, 'config.body');
  const headers = headerTemplates(given, context);
  const infersType = !headers.names.has('content-type');
  const answerWith = (text: string, headers: readonly string[]): PolicyAnswer => {
    const body = WITHOUT_BODY.has(status) ? '' : text;
    const type = infersType && body !== '' ? ['content-type', mediaTypeOf(body)] : [];
    return { kind: 'answer', status, headers: [...headers, ...type], body: Buffer.from(body), refused: false };
  };
  let step: (request: PolicyRequest) => PolicyAnswer;
  if (body.constant !== null && headers.constant !== null) {
    const answer = answerWith(body.constant, headers.constant);
    step = () => answer;
  } else {
    step = (request) => {
      const scope = context.scopeOf(request);
      const answer = answerWith(body.text(scope), headers.lasting(scope));
      scope.hold(answer.body.length, 'response');
      return answer;
    };
  }
  return { ends: true, on_http_request: () => step, on_http_response: () => step };
}

function mediaTypeOf(body: string): string {
  if (/^\s*<(?:!doctype|html|head|body)\b/i.test(body)) return 'text/html; charset=utf-8';
  return /^\s*[[{]/.test(body) && isJson(body) ? 'application/json' : 'text/plain; charset=utf-8';
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}
