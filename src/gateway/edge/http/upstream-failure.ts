/** The connection to the upstream ended before the response did. */
export class ConnectionLost extends Error {
  /** @param resetCode with which an HTTP/2 upstream reset this request */
  constructor(
    cause?: Error,
    readonly resetCode?: number,
  ) {
    super('connection to the upstream lost', { cause });
    this.name = 'ConnectionLost';
  }
}

/** The upstream took too long to begin its response. */
export class ResponseTimeout extends Error {
  constructor() {
    super('upstream did not answer in time');
    this.name = 'ResponseTimeout';
  }
}

/** Start of the body with which the SDK itself answers 502 when it cannot reach the upstream. */
export const DIAL_FAILURE_TEXT = 'failed to dial backend';

export function asError(thrown: unknown): Error {
  return thrown instanceof Error ? thrown : new Error(String(thrown));
}
