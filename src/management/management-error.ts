/** What is known of a failed call. */
export interface ManagementFailure {
  /** HTTP status; null when there was no answer. */
  status: number | null;
  code: string | null;
  operationId?: string | null;
  details?: Record<string, string>;
  /** Milliseconds that the service asks to wait. */
  retryAfterMs?: number | null;
  cause?: unknown;
}

/** Codes of our own, for failures that are not an answer of the service. */
export const UNREACHABLE = 'ERR_MANAGEMENT_UNREACHABLE';
export const TIMEOUT = 'ERR_MANAGEMENT_TIMEOUT';
export const UNREADABLE_ANSWER = 'ERR_MANAGEMENT_ANSWER';

/** Every failure of a call to the management API, except that the caller aborted it. */
export class ManagementError extends Error {
  /** HTTP status of the answer; null when there was none. */
  readonly status: number | null;
  /**
   * `ERR_NGROK_<n>` from the service, null when it gave none; from this client `ERR_MANAGEMENT_UNREACHABLE`,
   * `ERR_MANAGEMENT_TIMEOUT`, or `ERR_MANAGEMENT_ANSWER` when the answer is not what was promised.
   */
  readonly code: string | null;
  /** Name of the call in the service's own log. */
  readonly operationId: string | null;
  readonly details: Readonly<Record<string, string>>;
  readonly retryAfterMs: number | null;

  /** @param message what went wrong, for people; never a secret */
  constructor(message: string, failure: ManagementFailure) {
    super(message, { cause: failure.cause });
    this.name = 'ManagementError';
    this.status = failure.status;
    this.code = failure.code;
    this.operationId = failure.operationId ?? null;
    this.details = failure.details ?? {};
    this.retryAfterMs = failure.retryAfterMs ?? null;
  }

  /** The resource, or the path itself, does not exist. */
  get isNotFound(): boolean {
    return this.status === 404;
  }

  /** The API key is missing, malformed, unknown or revoked, or may not do this. */
  get isUnauthorized(): boolean {
    return this.status === 401 || this.status === 403;
  }

  get isRateLimited(): boolean {
    return this.status === 429;
  }

  /** Whether the service refused with this code, given by its number: 413 is `ERR_NGROK_413`. */
  hasCode(number: number): boolean {
    return this.code === `ERR_NGROK_${number}`;
  }
}
