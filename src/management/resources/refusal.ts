import type { z } from 'zod';

/**
 * A rejected request: an error code of ngrok's catalogue and a text.
 *
 * A schema sets the code with {@link refused} wherever zod takes an error message. Messages without a code are unknown
 * members (214) or wrong types and values (215). {@link refusalOf} picks one refusal from what zod reports.
 */
export interface Refusal {
  /** The number of the error code: 420 for `ERR_NGROK_420`. */
  code: number;
  /** Names the member, but quotes no value that could be a secret. */
  text: string;
}

const UNKNOWN_MEMBER = 214;
export const WRONG_VALUE = 215;

/** @returns a message for a zod schema, with the error code */
export function refused(code: number, text: string): string {
  return `${errorCode(code)}: ${text}`;
}

/** @returns the code in the API's spelling, `ERR_NGROK_<n>` */
export function errorCode(code: number): string {
  return `ERR_NGROK_${code}`;
}

/** Picks the refusal for the response: unknown members come before invalid ones, and of several the first. */
export function refusalOf(error: z.ZodError): Refusal {
  const issue = error.issues.find((candidate) => candidate.code === 'unrecognized_keys') ?? error.issues[0];
  if (!issue) return { code: WRONG_VALUE, text: 'the request is not valid' };
  const coded = /^ERR_NGROK_(\d+): (.*)$/s.exec(issue.message);
  const general = issue.code === 'unrecognized_keys' ? UNKNOWN_MEMBER : WRONG_VALUE;
  const where = issue.path.length > 0 ? `${issue.path.map((part) => String(part).slice(0, 40)).join('.')}: ` : '';
  return { code: coded ? Number(coded[1]) : general, text: where + (coded?.[2] ?? issue.message) };
}
