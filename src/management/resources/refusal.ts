import type { z } from 'zod';

/**
 * How a schema says which of the service's error codes a violation has.
 *
 * A message that starts with `ERR_NGROK_<n>: ` carries a code of its own; {@link refused} makes one, and it
 * fits everywhere zod takes an error: in a type, an enum, a check, a refinement. Messages without a code are
 * the two general cases: an unknown member (214) or a wrong type or value (215). {@link refusalOf} turns
 * what zod reports into the one refusal to answer with.
 */
export interface Refusal {
  /** Number of the error code: 420 stands for `ERR_NGROK_420`. */
  code: number;
  /** For people; names the member. Quotes nothing that was sent and could be a secret. */
  text: string;
}

const UNKNOWN_MEMBER = 214;
export const WRONG_VALUE = 215;

/** @returns a message for a zod schema that carries the given error code */
export function refused(code: number, text: string): string {
  return `${errorCode(code)}: ${text}`;
}

/** @returns the code as the API spells it, `ERR_NGROK_<n>` */
export function errorCode(code: number): string {
  return `ERR_NGROK_${code}`;
}

/**
 * Picks the refusal to answer with: unknown members come before wrong ones, and of several the first.
 *
 * @param error what `safeParse` reported
 */
export function refusalOf(error: z.ZodError): Refusal {
  const issue = error.issues.find((candidate) => candidate.code === 'unrecognized_keys') ?? error.issues[0];
  if (!issue) return { code: WRONG_VALUE, text: 'the request is not valid' };
  const coded = /^ERR_NGROK_(\d+): (.*)$/s.exec(issue.message);
  const general = issue.code === 'unrecognized_keys' ? UNKNOWN_MEMBER : WRONG_VALUE;
  const where = issue.path.length > 0 ? `${issue.path.map((part) => String(part).slice(0, 40)).join('.')}: ` : '';
  return { code: coded ? Number(coded[1]) : general, text: where + (coded?.[2] ?? issue.message) };
}
