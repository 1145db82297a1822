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

export const ReportedRule = z.object({
  phase: z.enum(['on_tcp_connect', 'on_http_request', 'on_http_response', 'on_event_stream_message']),
  place: name,
  name: name.nullable(),
  actions: z.array(name).max(100),
  outcome: z.discriminatedUnion('kind', [
    z.object({ kind: z.literal('continue') }),
    z.object({ kind: z.literal('answer'), status }),
    z.object({ kind: z.literal('error'), status, code: name }),
    z.object({ kind: z.literal('close') }),
    z.object({ kind: z.literal('forward'), url: target }),
  ]),
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
