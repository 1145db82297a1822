import type { Clock } from '../../lib/time/clock.ts';
import type { ConnectedEndpoint, RequestWatcher } from '../connectors/connector.ts';

/** How the gateway in this process is asked; null: there is none, or it has no such URL. */
export type WatchAtUrl = (url: string, watcher: RequestWatcher) => (() => void) | null;

export interface RunningWatch {
  readonly isActive: boolean;
  stop(): void;
}

/** Milliseconds after which a gateway is asked again that ended its reports of an endpoint which is online. */
const RETRY_MS = 10_000;

/** Keeps those who watch the requests of a tunnel connected to what the gateway reports, across its endpoints. */
export class RequestWatches {
  readonly #watches = new Map<string, OneWatch>();

  constructor(
    /** The tunnel's endpoint; null while it has none. */
    private readonly endpointOf: (tunnelId: string) => ConnectedEndpoint | null,
    private readonly atUrl: WatchAtUrl,
    private readonly clock: Clock,
  ) {}

  /** @param onLine called with each line of JSON; one watcher for a tunnel, the last */
  watch(tunnelId: string, onLine: (line: string) => void): RunningWatch {
    this.#watches.get(tunnelId)?.stop();
    const endpoint = () => this.endpointOf(tunnelId);
    const watch = new OneWatch({ onLine, endpoint, atUrl: this.atUrl, clock: this.clock }, () => {
      if (this.#watches.get(tunnelId) === watch) this.#watches.delete(tunnelId);
    });
    this.#watches.set(tunnelId, watch);
    watch.begin(endpoint());
    return watch;
  }

  /** Call this when the tunnel has a new endpoint. */
  opened(tunnelId: string, endpoint: ConnectedEndpoint): void {
    this.#watches.get(tunnelId)?.begin(endpoint);
  }
}

interface WatchOptions {
  onLine: (line: string) => void;
  /** The tunnel's endpoint; null while it has none. */
  endpoint: () => ConnectedEndpoint | null;
  atUrl: WatchAtUrl;
  clock: Clock;
}

class OneWatch implements RunningWatch {
  #end: (() => void) | null = null;
  /** Stands for the current subscription: an earlier one may report its end later. */
  #token: object | null = null;
  #cancelRetry = () => {};
  #isStopped = false;

  constructor(
    private readonly options: WatchOptions,
    private readonly onStopped: () => void,
  ) {}

  get isActive(): boolean {
    return this.#end !== null;
  }

  begin(endpoint: ConnectedEndpoint | null): void {
    if (this.#isStopped) return;
    this.#cancel();
    if (endpoint === null) return;
    const token = {};
    const watcher: RequestWatcher = {
      onLine: (line) => {
        if (this.#token === token) this.options.onLine(line);
      },
      onEnd: () => {
        if (this.#token === token) this.#retry();
      },
    };
    this.#token = token;
    const end = endpoint.watchRequests?.(watcher) ?? this.options.atUrl(endpoint.url, watcher);
    // It may have ended already.
    if (this.#token === token) this.#end = end;
  }

  stop(): void {
    this.#isStopped = true;
    this.#cancel();
    this.onStopped();
  }

  #retry(): void {
    this.#token = null;
    this.#end = null;
    const { clock, endpoint } = this.options;
    this.#cancelRetry = clock.after(RETRY_MS, () => this.begin(endpoint()));
  }

  #cancel(): void {
    this.#cancelRetry();
    this.#token = null;
    this.#end?.();
    this.#end = null;
  }
}
