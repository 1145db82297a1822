/** The connection to the upstream ended before the response did. */
export class ConnectionLost extends Error {
  /** @param resetCode what the upstream said in HTTP/2 when it gave this one request up */
  constructor(
    cause?: Error,
    readonly resetCode?: number,
  ) {
    super('the connection to the upstream broke off', { cause });
    this.name = 'ConnectionLost';
  }
}

/** The upstream took too long to begin its response. */
export class ResponseTimeout extends Error {
  constructor() {
    super('the upstream did not answer in time');
    this.name = 'ResponseTimeout';
  }
}

/** With this the SDK begins the body of the 502 that it answers itself when it cannot reach the upstream. */
export const DIAL_FAILURE_TEXT = 'failed to dial backend';

/** Whatever an upstream's connection threw, as an error. */
export function asError(thrown: unknown): Error {
  return thrown instanceof Error ? thrown : new Error(String(thrown));
}
