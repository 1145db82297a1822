import { readFileSync } from 'node:fs';
import { parse } from 'yaml';
import { compilePolicy } from '../../../src/traffic-policy/engine.ts';
import type { PublicRequest, PublicResponse } from '../../../src/traffic-policy/fetch-document.ts';
import type { PolicyPorts } from '../../../src/traffic-policy/ports.ts';
import { connectionFrom, requestFor, TLS_WITHOUT_CERTIFICATES } from '../fake-request.ts';

/**
 * Sends a request to an endpoint whose policy answers it.
 *
 * @returns the answer, and the headers that an upstream would have got
 */
export async function askPolicy(
  text: string,
  ports: Partial<PolicyPorts>,
  url: string,
  { method = 'GET', headers: sent = {} }: PublicRequest = {},
  clientIp = '203.0.113.7',
): Promise<PublicResponse & { forwarded: readonly string[] }> {
  const { host, pathname, search } = new URL(url);
  const subject = requestFor({
    method,
    target: pathname + search,
    host,
    headers: Object.entries(sent).flat(),
    connection: connectionFrom(clientIp, { tls: TLS_WITHOUT_CERTIFICATES }),
  });
  const outcome = await compilePolicy(text, 'https', { ports }).onHttpRequest?.(subject);
  if (outcome?.kind !== 'answer' && outcome?.kind !== 'error') throw new Error(`unexpected ${outcome?.kind}`);
  const flat = [...outcome.headers, ...(subject.responseCookies ?? [])];
  const headers: Record<string, string | string[]> = {
    'set-cookie': flat.filter((_, at) => at % 2 === 1 && flat[at - 1] === 'set-cookie'),
  };
  const location = flat.indexOf('location');
  if (location !== -1) headers.location = flat[location + 1] ?? '';
  if (outcome.kind === 'error') headers['ngrok-error-code'] = outcome.code;
  if (outcome.kind === 'error' && outcome.link) headers.link = outcome.link.href;
  const body = outcome.kind === 'answer' ? outcome.body : Buffer.from(outcome.message);
  return { status: outcome.status, headers, body, forwarded: subject.headers };
}

/** The configuration of the only action in the policy that a chapter of docs/sign-in.md shows. */
export function documentedConfig(chapter: string, type: string): Record<string, unknown> {
  const [, indent = '', text = ''] =
    new RegExp(`^## ${chapter}\\n(?:(?!^## )[\\s\\S])*?^( *)\`\`\`yaml\\n([\\s\\S]*?)^ *\`\`\`$`, 'm').exec(
      readFileSync('docs/sign-in.md', 'utf8'),
    ) ?? [];
  const { on_http_request: rules } = parse(text.replaceAll(new RegExp(`^${indent}`, 'gm'), ''));
  const [action] = rules[0].actions;
  if (rules.length !== 1 || action.type !== type) throw new Error(`${chapter} shows another policy`);
  return action.config;
}
