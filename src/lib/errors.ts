/** What an {@link ApiError} may carry besides status, code and message. */
export interface ApiErrorOptions {
  /** Machine-readable particulars, one string each; never a secret. */
  details?: Record<string, string>;
  /** Seconds after which a retry may work; left out when retrying is pointless. */
  retryAfter?: number;
  cause?: unknown;
}

/**
 * Every failure that an API answers with on purpose. Anything else that is thrown is a bug
 * and becomes a 500 that reveals nothing.
 */
export class ApiError extends Error {
  readonly details: Record<string, string>;
  readonly retryAfter: number | null;

  /**
   * @param status HTTP status of the answer
   * @param code stable code that programs match on: `ERR_AGENT_…` is ours, `ERR_NGROK_…` the gateway's
   * @param message what went wrong and what to do, for people
   */
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    options: ApiErrorOptions = {},
  ) {
    super(message, { cause: options.cause });
    this.name = new.target.name;
    this.details = options.details ?? {};
    this.retryAfter = options.retryAfter ?? null;
  }
}

/** The JSON body that every API of this project answers a failure with. */
export interface ApiErrorBody {
  error_code: string;
  status_code: number;
  msg: string;
  details: Record<string, string>;
}

/** Puts an {@link ApiError} into the form in which it leaves an API. */
export function errorBody(error: ApiError): ApiErrorBody {
  return { error_code: error.code, status_code: error.status, msg: error.message, details: error.details };
}

/** Exit code: the other side cannot be reached. */
export const EXIT_UNREACHABLE = 3;

/**
 * A problem that the operator has to mend: a wrong setting, a damaged file, a port in use.
 * The command line shows its message alone, without a stack trace.
 */
export class OperatorError extends Error {
  /** @param exitCode what the process exits with: 2 for wrong usage or settings, from 3 on what a command says, else 1 */
  constructor(
    message: string,
    readonly exitCode = 1,
    options: ErrorOptions = {},
  ) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** The message of whatever was thrown; a connection to a name with several addresses fails with one of each instead. */
export function messageOf(error: unknown): string {
  if (error instanceof AggregateError && error.message === '') return error.errors.map(messageOf).join('; ');
  return error instanceof Error ? error.message : String(error);
}

/** Whether the error is a system error of the given code, such as `ENOENT`. */
export function hasErrno(error: unknown, code: string): boolean {
  return error instanceof Error && (error as NodeJS.ErrnoException).code === code;
}
