/** Raised while a policy runs: the request is answered with 500 and the code, a connection is closed. */
export class PolicyFailure extends Error {
  /**
   * @param code `ERR_NGROK_…` of the documentation's catalogue
   * @param message for the gateway's log: it may quote the policy, so the public never sees it
   */
  constructor(
    readonly code: string,
    message: string,
    options: ErrorOptions = {},
  ) {
    super(message, options);
    this.name = 'PolicyFailure';
  }
}
