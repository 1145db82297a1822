import type { Listener } from '@ngrok/ngrok';
import type { Endpoint, EndpointEnd } from '../connector.ts';
import { parseListenerClosed } from './sdk-error.ts';

export class NgrokEndpoint implements Endpoint {
  readonly ended: Promise<EndpointEnd>;
  #settleEnded: (end: EndpointEnd) => void = () => {};
  #closed: Promise<void> | null = null;

  /** @param unbind closes the listener; never rejects */
  constructor(
    readonly url: string,
    private readonly unbind: () => Promise<void>,
  ) {
    this.ended = new Promise((resolve) => {
      this.#settleEnded = resolve;
    });
  }

  /** Starts forwarding. It ends when the gateway stops the endpoint. */
  forward(listener: Listener, to: string, secret: string): void {
    listener.forward(to).then(
      () => this.end({ code: null, message: 'the gateway ended the endpoint' }),
      (error) => this.end(parseListenerClosed(error, secret)),
    );
  }

  /** Ends an endpoint that was not closed here. Its listener is closed too, or the SDK would keep it. */
  end(reason: EndpointEnd): void {
    if (this.#closed) return;
    this.#settleEnded(reason);
    void this.close();
  }

  close(): Promise<void> {
    this.#closed ??= this.unbind();
    return this.#closed;
  }
}
