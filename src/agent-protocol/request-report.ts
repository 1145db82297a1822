import { hash } from 'node:crypto';
import { z } from 'zod';

/** Longer parts of a report are cut. */
export const MAX_TARGET = 4_096;
export const MAX_NAME = 256;
/** The last ones are kept: they decided. */
export const MAX_RULES = 100;
export const MAX_LINE = 131_072;

const name = z.string().max(MAX_NAME);
const target = z.string().max(MAX_TARGET);
const status = z.int().min(100).max(999);

const STATUS = 'The status that the client got.';
/** How a rule ended. */
function kind<Kind extends string>(value: Kind) {
  return z
    .literal(value)
    .describe(
      '`continue`: the next rule ran; `answer`: the policy responded; `error`: with an error page; `close`: it closed the connection; `forward`: an internal endpoint got the request.',
    );
}

export const ReportedRule = z.object({
  phase: z
    .enum(['on_tcp_connect', 'on_http_request', 'on_http_response', 'on_event_stream_message'])
    .describe('The phase in which the rule ran.'),
  place: name.describe('The place of the rule in the policy, such as `on_http_request[0]`.'),
  name: name.nullable().describe('The name of the rule; null without one.'),
  actions: z.array(name).max(100).describe('The types of its actions that ran.'),
  outcome: z
    .discriminatedUnion('kind', [
      z.object({ kind: kind('continue') }),
      z.object({ kind: kind('answer'), status: status.describe(STATUS) }),
      z.object({
        kind: kind('error'),
        status: status.describe(STATUS),
        code: name.describe('The error code of the page.'),
      }),
      z.object({ kind: kind('close') }),
      z.object({ kind: kind('forward'), url: target.describe('The URL of the internal endpoint.') }),
    ])
    .describe('What became of the request after it.'),
});
export type ReportedRule = z.infer<typeof ReportedRule>;

/** What a gateway of this project tells an agent of a request to one of its endpoints. */
export const RequestReport = z.object({
  /** Milliseconds since 1970. */
  at: z.number().min(0).max(8.64e15),
  /** Until the head of the response. */
  ms: z.number().min(0),
  method: name,
  host: name,
  /** Path and query as the client sent it. */
  target,
  client: name,
  status: status.nullable(),
  /** `ERR_NGROK_…` of an error page of the gateway. */
  code: name.nullable(),
  /** The request as it left for the upstream; null when it did not. See {@link headDigest} and {@link headSample}. */
  sent: z.object({ target, head: name, sample: z.int() }).nullable(),
  /** Who has responded: nobody when the client was quicker to leave. */
  by: z.enum(['upstream', 'gateway', 'endpoint', 'nobody']),
  /** What was wrong with the upstream's response, instead of which the client got an error page; left out: nothing. */
  problem: name.optional(),
  rules: z.array(ReportedRule).max(MAX_RULES),
});
export type RequestReport = z.infer<typeof RequestReport>;

export const ReportLine = z.union([
  RequestReport,
  /** How many reports are missing here, because they did not fit. */
  z.object({ dropped: z.int().min(1) }),
]);
export type ReportLine = z.infer<typeof ReportLine>;

/** Names the head of a request, without the empty line after it, one byte a character. */
export function headDigest(head: string): string {
  return hash('sha256', head, 'base64url');
}

const SAMPLES = 64;

/** A number that rules most other heads out; a twentieth of the time of {@link headDigest}. */
export function headSample(head: string): number {
  const step = Math.max(1, Math.floor(head.length / SAMPLES));
  let sample = head.length;
  for (let at = 0; at < head.length; at += step) sample = (Math.imul(sample, 31) + head.charCodeAt(at)) | 0;
  return sample;
}
