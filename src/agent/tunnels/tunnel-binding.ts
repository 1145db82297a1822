import type { Log } from '../../lib/log/log.ts';
import type { OpenTunnel } from './tunnel-opener.ts';

/** A tunnel's endpoint while it has one, and the attempt to bind it while one is under way. */
export class TunnelBinding {
  #open: OpenTunnel | null = null;
  /** Settles when no attempt is under way; never rejects. */
  #attempt: Promise<void> = Promise.resolve();

  constructor(private readonly log: Log) {}

  get open(): OpenTunnel | null {
    return this.#open;
  }

  set open(open: OpenTunnel | null) {
    this.#open = open;
  }

  /** Runs an attempt to bind; close() waits for its end. */
  attempt<T>(bind: () => Promise<T>): Promise<T> {
    const attempt = bind();
    this.#attempt = attempt.then(
      () => {},
      () => {},
    );
    return attempt;
  }

  /** Closes the endpoint and binds it again, after the attempt that is under way. */
  rebind<T>(bind: () => Promise<T>): Promise<T> {
    return this.attempt(async () => {
      await this.close();
      return bind();
    });
  }

  /**
   * Waits for the attempt that is under way, or its endpoint would stay open unnoticed; then closes the endpoint.
   *
   * @throws when the endpoint could not be closed
   */
  async close(): Promise<void> {
    await this.#attempt;
    const open = this.#open;
    this.#open = null;
    await open?.close();
  }

  /** Forgets an endpoint that no longer exists. */
  drop(): void {
    const open = this.#open;
    this.#open = null;
    open?.release().catch((err: unknown) => {
      this.log.warn({ err, url: open.endpoint.url }, 'upstream relay could not be closed');
    });
  }

  /** Forgets the endpoint once no attempt is under way. */
  abandon(): void {
    void this.#attempt.then(() => this.drop());
  }
}
