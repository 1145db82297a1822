import type { Socket } from 'node:net';
import { RpcError } from '../../agent-protocol/rpc.ts';
import { type RecentCounts, RecentFailures } from '../../lib/time/recent-failures.ts';

export const CONNECTION_KINDS = ['http', 'https', 'tls', 'tcp'] as const;
type ConnectionKind = (typeof CONNECTION_KINDS)[number];

/** How a client's wait for an agent has ended: the agent is back; it is not, or there was no place; the client has left. */
export const WAIT_OUTCOMES = ['served', 'unavailable', 'left'] as const;
export type WaitOutcome = (typeof WAIT_OUTCOMES)[number];

/** How long responses count as recent. */
const RECENT_MS = 5 * 60_000;

/** Error code of a request that failed because of a bug. */
const INTERNAL_ERROR = 'ERR_NGROK_741';

const SERVER_ERROR = 5;

/** Counts a gateway's traffic since it started, at one addition each: a number becomes a metric only when it is read. */
export class EdgeCounters {
  /** Responses of the edge to requests for endpoints, by the first digit of their status. */
  readonly responses = [0, 0, 0, 0, 0, 0];
  /** Requests rejected by a traffic policy or an option of the endpoint. */
  refusedByPolicy = 0;
  /** Requests without a complete response of the upstream. */
  upstreamFailures = 0;
  /** Requests and connections that wait for an agent that is expected back. */
  waiting = 0;
  /** Those that have waited, or would have. */
  readonly waits: Record<WaitOutcome, number> = { served: 0, unavailable: 0, left: 0 };
  readonly connections: Record<ConnectionKind, number> = { http: 0, https: 0, tls: 0, tcp: 0 };
  /** By error code; codes are the gateway's own and few. */
  readonly bindsRefused = new Map<string, number>();
  readonly sessionsRefused = new Map<string, number>();
  /** Sessions that were ended because upstreams kept their connections open after clients had left. */
  sessionsExhausted = 0;

  /** Milliseconds for which the event loop stood still, in stalls of a second and more. */
  stalledMs = 0;
  /** When no file descriptor was left for the last time, in milliseconds of `performance.now()`. */
  descriptorsExhaustedAt = Number.NEGATIVE_INFINITY;
  readonly #recentErrors = new RecentFailures(RECENT_MS);

  /** @param isLink whether a connection has what another gateway's client has sent: that gateway counts it */
  constructor(readonly isLink: (connection: Socket) => boolean = () => false) {}

  get totals() {
    const { responses, upstreamFailures, refusedByPolicy } = this;
    const sum = (numbers: readonly number[]) => numbers.reduce((total, each) => total + each, 0);
    return {
      connections: sum(Object.values(this.connections)),
      responses: sum(responses),
      errors: responses[SERVER_ERROR] ?? 0,
      upstreamFailures,
      refusedByPolicy,
    };
  }

  /** @param socket of the client; left out: it is no link */
  responded(status: number, socket?: Socket): void {
    const digit = Math.trunc(status / 100);
    if (socket && this.isLink(socket)) return;
    this.responses[digit] = (this.responses[digit] ?? 0) + 1;
    if (digit !== SERVER_ERROR) return;
    const { responses, errors } = this.totals;
    this.#recentErrors.add(responses, errors, performance.now());
  }

  /** Responses of the last minutes, and those with status 5xx among them. */
  get recentResponses(): RecentCounts {
    const { responses, errors } = this.totals;
    return this.#recentErrors.counts(responses, errors, performance.now());
  }

  connected(socket: Socket, kind: ConnectionKind): void {
    if (this.isLink(socket)) return;
    this.connections[kind] += 1;
    socket.once('close', () => {
      this.connections[kind] -= 1;
    });
  }

  refused(counts: Map<string, number>, error: unknown): void {
    const code = error instanceof RpcError ? error.code : INTERNAL_ERROR;
    counts.set(code, (counts.get(code) ?? 0) + 1);
  }
}
