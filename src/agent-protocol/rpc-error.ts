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

/** Reads an `Error` member, as SDKs do: lines that begin with `ERR_NGROK_` are codes, of which the last one counts. */
export function parseRpcError(text: string): { code: string | null; message: string } {
  const lines = text.split(/\r?\n/).filter((line) => line !== '');
  const isCode = (line: string) => line.startsWith('ERR_NGROK_');
  return {
    code: lines.findLast(isCode) ?? null,
    message: lines.filter((line) => !isCode(line)).join('\n'),
  };
}
