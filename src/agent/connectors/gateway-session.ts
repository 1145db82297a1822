import type { Endpoint, EndpointRequest } from './connector.ts';

/** One authenticated connection to a gateway, as its supervisor sees it. */
export interface GatewaySession {
  /** Settles with the reason when the session is over, close() included; never rejects. */
  readonly lost: Promise<string>;
  /** Binds an endpoint; as `Connector.open` does. */
  open(request: EndpointRequest): Promise<Endpoint>;
  /** Unbinds what is bound, as far as the gateway answers in time, and ends the session. */
  close(): Promise<void>;
}

/** Raised when a session could not be started. */
export class SessionRefused extends Error {
  /** @param code the gateway's, null when it was not the gateway that refused */
  constructor(
    readonly code: string | null,
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
    this.name = 'SessionRefused';
  }
}
