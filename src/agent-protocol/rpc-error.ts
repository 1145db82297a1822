/**
 * Answers a request with an error on purpose; any other exception is a bug.
 *
 * The wire format was observed with `@ngrok/ngrok` 1.7.0: the answer's `Error` member carries the message, and SDKs take
 * the code from a line of its own that begins with `ERR_NGROK_`.
 */
export class RpcError extends Error {
  /** @param code stable code that SDKs pass on to their callers, `ERR_NGROK_…` */
  constructor(
    readonly code: string,
    message: string,
    options: ErrorOptions = {},
  ) {
    super(message, options);
    this.name = 'RpcError';
  }
}

/** The text of the answer's `Error` member. */
export function rpcErrorText({ message, code }: RpcError): string {
  return `${message}\n\n${code}`;
}
