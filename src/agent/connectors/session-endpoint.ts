import type { Endpoint, EndpointEnd, RequestWatcher } from './connector.ts';

/** An endpoint of one session. */
export class SessionEndpoint implements Endpoint {
  readonly ended: Promise<EndpointEnd>;
  watchRequests?: (watcher: RequestWatcher) => () => void;
  #settleEnded: (end: EndpointEnd) => void = () => {};
  #closed: Promise<void> | null = null;

  /** @param unbind unbinds it at the gateway, and frees what belongs to it; never rejects */
  constructor(
    readonly url: string,
    private readonly unbind: () => Promise<void>,
  ) {
    this.ended = new Promise((resolve) => {
      this.#settleEnded = resolve;
    });
  }

  /** Ends an endpoint that was not closed here. It is unbound too, so that nothing of it is left. */
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
