import { IssueError } from '../issuing/certificate-issuer.ts';

const PREFIX = 'urn:ietf:params:acme:error:';
/** Characters. */
const MAX_DETAIL = 500;

/** A certificate authority's problem document (RFC 7807, RFC 8555, section 6.7). */
export interface ProblemDocument {
  type?: string;
  detail?: string;
}

export class AcmeProblem extends Error {
  /** Without the common prefix, for example `rateLimited`; empty without a problem document. */
  readonly type: string;

  /** @param retryAfter seconds; null without `Retry-After` */
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

export class CaUnreachable extends Error {
  override name = 'CaUnreachable';
}

/** A problem's description on one line: it may quote the response of any server. */
export function detailOf({ detail = '' }: ProblemDocument): string {
  return detail
    .replace(/[\s\p{Cc}]+/gu, ' ')
    .trim()
    .slice(0, MAX_DETAIL);
}

export function problemType({ type = '' }: ProblemDocument): string {
  return type.startsWith(PREFIX) ? type.slice(PREFIX.length) : '';
}

/** Parses a problem document; empty for any other text. */
export function parseProblem(text: string): ProblemDocument {
  try {
    const parsed: unknown = JSON.parse(text);
    return isProblem(parsed) ? parsed : {};
  } catch {
    // A proxy's page instead of JSON: the error shows only the status.
    return {};
  }
}

export function isProblem(value: unknown): value is ProblemDocument {
  if (typeof value !== 'object' || value === null) return false;
  const { type, detail } = value as { type?: unknown; detail?: unknown };
  return ['undefined', 'string'].includes(typeof type) && ['undefined', 'string'].includes(typeof detail);
}

/** An order that failed while this machine's clock was wrong, which is probably why. */
export class FailedByClock extends Error {
  constructor(
    readonly clock: string,
    override readonly cause: unknown,
  ) {
    super(clock, { cause });
    this.name = new.target.name;
  }
}

/** Turns the error of an order into the one that the provisioning job shows. */
export function toIssueError(cause: unknown): IssueError {
  if (cause instanceof FailedByClock) {
    const { code, message, retryAfter } = toIssueError(cause.cause);
    return new IssueError(code, `${message.replace(/\.$/, '')}. ${cause.clock}`, { retryAfter, cause: cause.cause });
  }
  if (cause instanceof IssueError) return cause;
  if (cause instanceof CaUnreachable) {
    const message = `The certificate authority is unreachable: ${cause.message}.`;
    return new IssueError('INTERNAL_ERROR', message, { cause });
  }
  if (cause instanceof AcmeProblem) return refused(cause);
  return new IssueError('INTERNAL_ERROR', 'The certificate could not be issued because of an internal error.', {
    cause,
  });
}

function refused(cause: AcmeProblem): IssueError {
  const { type, message, retryAfter } = cause;
  // The CA checks CAA records again, from other networks.
  if (type === 'caa') return new IssueError('DNS_ERROR', `A CAA record forbids the certificate: ${message}`, { cause });
  const reason = type === 'rateLimited' ? 'limits the rate of requests' : 'refused the request';
  const text = `The certificate authority ${reason}: ${message}`;
  return new IssueError('INTERNAL_ERROR', text, { retryAfter, cause });
}
