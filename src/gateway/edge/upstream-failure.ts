/** The connection to the upstream ended before the response did. */
export class ConnectionLost extends Error {
  constructor(cause?: Error) {
    super('the connection to the upstream broke off', { cause });
    this.name = 'ConnectionLost';
  }
}

/** The upstream took too long to begin its response. */
export class HeadersTimeout extends Error {
  constructor() {
    super('the upstream did not answer in time');
    this.name = 'HeadersTimeout';
  }
}

/** With this the SDK begins the body of the 502 that it answers itself when it cannot reach the upstream. */
export const DIAL_FAILURE_TEXT = 'failed to dial backend';
