/** Raised while a policy runs: the client gets 500 with the code, a connection is closed. */
export class PolicyFailure extends Error {
  /**
   * @param code `ERR_NGROK_…` of the documentation's catalogue
   * @param message for the gateway's log only: it may quote the policy
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
