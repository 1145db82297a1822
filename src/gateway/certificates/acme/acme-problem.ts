import { IssueError } from '../issuing/certificate-issuer.ts';

const PREFIX = 'urn:ietf:params:acme:error:';
/** Characters. */
const MAX_DETAIL = 500;

/** What a certificate authority writes about a failure (RFC 7807, as RFC 8555, section 6.7, uses it). */
export interface ProblemDocument {
  type?: string;
  detail?: string;
}

/** A request that the certificate authority refused. */
export class AcmeProblem extends Error {
  /** Without the common prefix, such as `rateLimited`; empty when the answer was no problem document. */
  readonly type: string;

  /**
   * @param document what the authority answered
   * @param status HTTP status
   * @param retryAfter seconds; null when the authority said nothing
   */
  constructor(
    document: ProblemDocument,
    readonly status: number,
    readonly retryAfter: number | null,
  ) {
    super(detailOf(document) || `HTTP status ${status}`);
    this.name = new.target.name;
    this.type = problemType(document);
  }
}

/** A request to the certificate authority that got no answer. */
export class AuthorityUnreachable extends Error {
  override name = 'AuthorityUnreachable';
}

/** A problem's description, fit for one line: it may quote what a stranger's server answered. */
export function detailOf({ detail = '' }: ProblemDocument): string {
  return detail
    .replace(/[\s\p{Cc}]+/gu, ' ')
    .trim()
    .slice(0, MAX_DETAIL);
}

/** A problem's type without the prefix that all have in common. */
export function problemType({ type = '' }: ProblemDocument): string {
  return type.startsWith(PREFIX) ? type.slice(PREFIX.length) : '';
}

/** Whether text is a problem document, and which. */
export function parseProblem(text: string): ProblemDocument {
  try {
    const parsed: unknown = JSON.parse(text);
    return isProblem(parsed) ? parsed : {};
  } catch {
    // A proxy's page instead of JSON: the status alone is told.
    return {};
  }
}

/** Whether something that a certificate authority sent is a problem document. */
export function isProblem(value: unknown): value is ProblemDocument {
  if (typeof value !== 'object' || value === null) return false;
  const { type, detail } = value as { type?: unknown; detail?: unknown };
  return ['undefined', 'string'].includes(typeof type) && ['undefined', 'string'].includes(typeof detail);
}

/** Turns whatever ended an order into what the domain's owner is told. */
export function toIssueError(cause: unknown): IssueError {
  if (cause instanceof IssueError) return cause;
  if (cause instanceof AuthorityUnreachable) {
    const message = `The certificate authority cannot be reached: ${cause.message}.`;
    return new IssueError('INTERNAL_ERROR', message, { cause });
  }
  if (cause instanceof AcmeProblem) return refused(cause);
  return new IssueError('INTERNAL_ERROR', 'The certificate could not be obtained for an internal reason.', {
    cause,
  });
}

function refused(cause: AcmeProblem): IssueError {
  const { type, message, retryAfter } = cause;
  // The authority looks at CAA records once more, after ours and from elsewhere.
  if (type === 'caa') return new IssueError('DNS_ERROR', `A CAA record forbids the certificate: ${message}`, { cause });
  const reason = type === 'rateLimited' ? 'limits how often it is asked' : 'refused the request';
  const text = `The certificate authority ${reason}: ${message}`;
  return new IssueError('INTERNAL_ERROR', text, { retryAfter, cause });
}
