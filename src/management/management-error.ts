/** Details of a failed call. */
export interface ManagementFailure {
  /** HTTP status; null without a response. */
  status: number | null;
  code: string | null;
  operationId?: string | null;
  details?: Record<string, string>;
  /** Milliseconds from Retry-After. */
  retryAfterMs?: number | null;
  cause?: unknown;
}

/** Codes of the client's own errors. */
export const UNREACHABLE = 'ERR_MANAGEMENT_UNREACHABLE';
export const TIMEOUT = 'ERR_MANAGEMENT_TIMEOUT';
export const UNREADABLE_ANSWER = 'ERR_MANAGEMENT_ANSWER';

/** A failed call to the management API. Aborted calls reject with the signal's reason instead. */
export class ManagementError extends Error {
  /** HTTP status of the response; null without a response. */
  readonly status: number | null;
  /**
   * `ERR_NGROK_<n>` from the API, or null if it sent none. From this client: `ERR_MANAGEMENT_UNREACHABLE`,
   * `ERR_MANAGEMENT_TIMEOUT`, or `ERR_MANAGEMENT_ANSWER` for an invalid response.
   */
  readonly code: string | null;
  /** Id of the call in the gateway's log. */
  readonly operationId: string | null;
  readonly details: Readonly<Record<string, string>>;
  readonly retryAfterMs: number | null;

  /** @param message never contains a secret */
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

  /** The API key is missing, malformed, unknown, revoked or not permitted. */
  get isUnauthorized(): boolean {
    return this.status === 401 || this.status === 403;
  }

  get isRateLimited(): boolean {
    return this.status === 429;
  }

  /** Whether the error has this ngrok code: 413 means `ERR_NGROK_413`. */
  hasCode(number: number): boolean {
    return this.code === `ERR_NGROK_${number}`;
  }
}
