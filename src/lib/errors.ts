/** Optional members of an {@link ApiError}. */
export interface ApiErrorOptions {
  /** Machine-readable details; never a secret. */
  details?: Record<string, string>;
  /** Seconds after which a retry may succeed; omitted when a retry cannot help. */
  retryAfter?: number;
  cause?: unknown;
}

/** An error that an API reports to its caller. Any other exception is a bug and becomes a 500 without details. */
export class ApiError extends Error {
  readonly details: Record<string, string>;
  readonly retryAfter: number | null;

  /**
   * @param status HTTP status of the response
   * @param code stable code for programs: `ERR_AGENT_…` from the agent, `ERR_NGROK_…` and `ERR_GATEWAY_…` from the gateway
   * @param message what went wrong and what to do, for people
   */
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    options: ApiErrorOptions = {},
  ) {
    // A stack trace costs more than the rest of an error response, and its place says nothing here.
    const { stackTraceLimit } = Error;
    Error.stackTraceLimit = 0;
    super(message, { cause: options.cause });
    Error.stackTraceLimit = stackTraceLimit;
    this.name = new.target.name;
    this.details = options.details ?? {};
    this.retryAfter = options.retryAfter ?? null;
  }
}

/** The JSON body of every error response. */
export interface ApiErrorBody {
  error_code: string;
  status_code: number;
  msg: string;
  details: Record<string, string>;
}

/** Converts an {@link ApiError} to its JSON body. */
export function errorBody(error: ApiError): ApiErrorBody {
  return { error_code: error.code, status_code: error.status, msg: error.message, details: error.details };
}

/** Exit code: the agent or the API is unreachable. */
export const EXIT_UNREACHABLE = 3;

/**
 * A problem for the operator to fix: an invalid setting, a damaged file, a port in use. The command line prints its
 * message without a stack trace.
 */
export class OperatorError extends Error {
  /** @param exitCode what the process exits with: 2 for invalid usage or settings, 3 and above as the command defines, else 1 */
  constructor(
    message: string,
    readonly exitCode = 1,
    options: ErrorOptions = {},
  ) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** The message of an exception. A failed connection to several addresses has one message for each. */
export function messageOf(error: unknown): string {
  if (error instanceof AggregateError && error.message === '') return error.errors.map(messageOf).join('; ');
  return error instanceof Error ? error.message : String(error);
}

/** Whether the error is a system error with this code, for example `ENOENT`. */
export function hasErrno(error: unknown, code: string): boolean {
  return error instanceof Error && (error as NodeJS.ErrnoException).code === code;
}

/** Quotes and truncates untrusted text for a message. */
export function quote(text: string): string {
  return JSON.stringify(text.length > 80 ? `${text.slice(0, 80)}…` : text);
}
