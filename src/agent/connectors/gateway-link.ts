import { randomUUID } from 'node:crypto';
import type { TimesAway } from '../../agent-protocol/messages.ts';
import type { Log } from '../../lib/log/log.ts';
import type { ProxyRules } from '../../lib/network/proxy-rules.ts';
import type { Clock } from '../../lib/time/clock.ts';
import type { TrustedCas } from '../../lib/tls/tls-options.ts';
import type { TrustedTime } from '../../lib/tls/trusted-time.ts';
import type { ConnectedEndpoint, EndpointEnd, EndpointRequest, RequestWatcher } from './connector.ts';
import type { DataBudget } from './data-budget.ts';
import type { GatewayRoute } from './gateway-route.ts';
import type { LinkPace } from './link-pace.ts';
import type { ProgressMonitor } from './progress-monitor.ts';

export interface GatewayLinkOptions {
  /** Called before every session, so that a changed authtoken is used from the next one on. */
  authtoken: () => string;
  /** `host[:port]` of a gateway; null: ngrok's cloud. */
  serverAddr: string | null;
  /** Null: the CA that signs the certificates of ngrok's cloud. */
  authorities: TrustedCas | null;
  proxies: ProxyRules;
  /** Proves the time when this machine's clock is wrong; null or omitted: not supported. */
  time?: TrustedTime | null;
  /** Called when the SDK could not connect to some upstream for a client; omitted: nobody looks. */
  onDialFailed?: () => void;
  /** Called when the operator of the gateway wants the agent to restart or stop; omitted: it says that it cannot. */
  onCommand?: ((command: AgentCommand) => void) | undefined;
  /** Omitted: that of a link whose data costs nothing, and what it learns is not kept. */
  pace?: LinkPace;
  /** Segments that TCP has sent again; omitted: as the kernel counts them. */
  sentAgain?: () => Promise<number | null>;
  /** Omitted: the device may send and receive as much as it likes. */
  budget?: DataBudget | null;
  version: string;
  log: Log;
  clock: Clock;
}

export type AgentCommand = 'restart' | 'stop';

/** Connects to one gateway, for any number of sessions. */
export interface GatewayLink extends GatewayRoute {
  /** Starts one session; rejects with {@link SessionRefused}. */
  connect(): Promise<GatewaySession>;
  /**
   * Starts a session beside the first one, at another gateway of the same cluster; omitted when that is not supported.
   * Rejects with {@link SessionRefused}.
   */
  connectTo?(node: GatewayNode, signal: AbortSignal): Promise<GatewaySession>;
  readonly progress: ProgressMonitor;
  /** Data is expensive: a second session is only started when the first is lost. */
  readonly isMetered?: () => boolean;
  /** Calls the listener when that changes; omitted: it does not. */
  onLinkChanged?(listener: () => void): void;
  /** Call this when no session is left. */
  close(): void;
}

export const CLIENT_TYPE = 'device-agent';

/** Our gateway at once hands over the endpoints of an earlier session of the same process. */
export function sessionMetadata(): string {
  return JSON.stringify({ instance: randomUUID() });
}

/** Another gateway of a cluster. */
export interface GatewayNode {
  /** `host:port` */
  address: string;
  /** For TLS. */
  serverName: string;
}

export interface GatewaySession {
  /** The gateway's place in a cluster; omitted: it is the only one, or does not say. */
  readonly node?: { readonly id: string; others(): Promise<GatewayNode[]> };
  /** Tells the gateway what was counted while there was no session; omitted: it takes no such reports. */
  readonly reportAway?: (times: TimesAway) => Promise<void>;
  /** Resolves with the reason when the session ends, by close() too; never rejects. */
  readonly lost: Promise<string>;
  /** Binds an endpoint; as `Connector.open` does. */
  open(request: EndpointRequest): Promise<ConnectedEndpoint>;
  /** Ends the session without asking the gateway, which cannot be reached over its connection any longer. */
  end(reason: string): void;
  /**
   * Unbinds all endpoints, if the gateway answers in time, and ends the session.
   *
   * @param patienceMs for what clients have under way
   */
  close(patienceMs?: number): Promise<void>;
}

export class SessionRefused extends Error {
  /** When the gateway wants the agent back, in seconds; null: it did not say. */
  readonly retryAfterS: number | null;

  /** @param code the gateway's; null when the gateway did not refuse it */
  constructor(
    readonly code: string | null,
    message: string,
    { retryAfterS = null, ...options }: ErrorOptions & { retryAfterS?: number | null } = {},
  ) {
    super(message, options);
    this.name = 'SessionRefused';
    this.retryAfterS = retryAfterS;
  }
}

export class SessionEndpoint implements ConnectedEndpoint {
  readonly ended: Promise<EndpointEnd>;
  readonly watchRequests?: (watcher: RequestWatcher) => () => void;
  readonly policyWarnings?: readonly string[];
  readonly domainUrl?: string;
  #settleEnded: (end: EndpointEnd) => void = () => {};
  #closed: Promise<void> | null = null;

  /** @param unbind unbinds it at the gateway, and frees what belongs to it; never rejects */
  constructor(
    readonly url: string,
    private readonly unbind: () => Promise<void>,
    {
      watchRequests,
      policyWarnings,
      domainUrl,
    }: Pick<ConnectedEndpoint, 'watchRequests' | 'policyWarnings' | 'domainUrl'> = {},
  ) {
    if (watchRequests) this.watchRequests = watchRequests;
    if (policyWarnings) this.policyWarnings = policyWarnings;
    if (domainUrl) this.domainUrl = domainUrl;
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
