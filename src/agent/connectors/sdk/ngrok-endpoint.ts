import type { Listener } from '@ngrok/ngrok';
import type { Endpoint, EndpointEnd } from '../connector.ts';
import { parseListenerClosed } from './sdk-error.ts';

/** An endpoint that a listener of the SDK carries. */
export class NgrokEndpoint implements Endpoint {
  readonly ended: Promise<EndpointEnd>;
  #settleEnded: (end: EndpointEnd) => void = () => {};
  #closed: Promise<void> | null = null;

  /** @param unbind takes the listener down, one way or another; never rejects */
  constructor(
    readonly url: string,
    private readonly unbind: () => Promise<void>,
  ) {
    this.ended = new Promise((resolve) => {
      this.#settleEnded = resolve;
    });
  }

  /** Lets the listener forward, and watches for the forwarding's end: the gateway stopped the endpoint. */
  forward(listener: Listener, to: string, secret: string): void {
    listener.forward(to).then(
      () => this.end({ code: null, message: 'the gateway ended the endpoint' }),
      (error) => this.end(parseListenerClosed(error, secret)),
    );
  }

  /** The endpoint is gone without our doing. Its listener is taken down all the same: the SDK forgets it only then. */
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
