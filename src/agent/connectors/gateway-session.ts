import type { Endpoint, EndpointRequest } from './connector.ts';

export interface GatewaySession {
  /** Resolves with the reason when the session ends, by close() too; never rejects. */
  readonly lost: Promise<string>;
  /** Binds an endpoint; as `Connector.open` does. */
  open(request: EndpointRequest): Promise<Endpoint>;
  /** Ends the session without asking the gateway, which cannot be reached over its connection any longer. */
  end(reason: string): void;
  /** Unbinds all endpoints, if the gateway answers in time, and ends the session. */
  close(): Promise<void>;
}

export class SessionRefused extends Error {
  /** @param code the gateway's; null when the gateway did not refuse it */
  constructor(
    readonly code: string | null,
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
    this.name = 'SessionRefused';
  }
}
