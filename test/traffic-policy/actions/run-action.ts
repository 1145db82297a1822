import { type CompileOptions, compilePolicy, PolicyRefused } from '../../../src/traffic-policy/engine.ts';
import type { PolicyResponse } from '../../../src/traffic-policy/policy-subjects.ts';
import type { PolicyPorts } from '../../../src/traffic-policy/ports.ts';
import type { RequestOutcome } from '../../../src/traffic-policy/steps.ts';
import { type FakeRequest, requestFor } from '../fake-request.ts';

export interface Action {
  type: string;
  config?: unknown;
}

export const onRequest = (...actions: Action[]) => JSON.stringify({ on_http_request: [{ actions }] });
export const onResponse = (...actions: Action[]) => JSON.stringify({ on_http_response: [{ actions }] });
export const onMessage = (...actions: Action[]) => JSON.stringify({ on_event_stream_message: [{ actions }] });
export const onConnect = (...actions: Action[]) => JSON.stringify({ on_tcp_connect: [{ actions }] });

/** An action that responds with the value of an expression. */
export const respondWith = (expression: string): Action => ({
  type: 'custom-response',
  config: { body: `\${${expression}}` },
});

export async function runRequest(text: string, fake: FakeRequest = {}, ports: Partial<PolicyPorts> = {}) {
  const request = requestFor(fake);
  const outcome = await compilePolicy(text, 'https', { ports }).onHttpRequest?.(request);
  return { request, outcome };
}

export function bodyOf(outcome: RequestOutcome | undefined): string {
  return outcome?.kind === 'answer' ? outcome.body.toString() : `no answer but ${JSON.stringify(outcome)}`;
}

export function statusOf(outcome: RequestOutcome | undefined): number | string {
  return outcome?.kind === 'answer' || outcome?.kind === 'error' ? outcome.status : (outcome?.kind ?? 'passed on');
}

export function runResponse(text: string, response: PolicyResponse, fake: FakeRequest = {}) {
  const outcome = compilePolicy(text, 'https').onHttpResponse?.(requestFor(fake), response);
  return { response, outcome };
}

export function refusalOf(
  text: string,
  options: CompileOptions = {},
  protocol: 'https' | 'http' | 'tcp' | 'tls' = 'https',
): PolicyRefused {
  try {
    compilePolicy(text, protocol, options);
  } catch (error) {
    if (error instanceof PolicyRefused) return error;
    throw error;
  }
  throw new Error('the policy was accepted');
}

/** The value of a header in a flat list; undefined when it is missing. */
export function headerIn(headers: readonly string[], name: string): string | undefined {
  const at = headers.findIndex((each, index) => index % 2 === 0 && each.toLowerCase() === name);
  return at === -1 ? undefined : headers[at + 1];
}
