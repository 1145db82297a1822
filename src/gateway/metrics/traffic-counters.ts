import type { Socket } from 'node:net';
import { RpcError } from '../../agent-protocol/rpc-error.ts';

/** What a public connection carries. */
export const CONNECTION_KINDS = ['http', 'https', 'tls', 'tcp'] as const;
export type ConnectionKind = (typeof CONNECTION_KINDS)[number];

/** What a request fails with that was not refused on purpose. */
const INTERNAL_ERROR = 'ERR_NGROK_741';

/**
 * What a gateway has counted since it started. Most gateways are never asked, and those that are must not be slower for
 * it: each of these numbers costs an addition, and becomes a metric when somebody looks.
 */
export class TrafficCounters {
  /** Responses of the edge to requests for endpoints, by the first digit of their status. */
  readonly responses = [0, 0, 0, 0, 0, 0];
  /** Requests that a traffic policy, or an option of the endpoint, did not let through. */
  refusedByPolicy = 0;
  /** Requests that did not get a whole response of the upstream. */
  upstreamFailures = 0;
  /** Public connections that are open. */
  readonly connections: Record<ConnectionKind, number> = { http: 0, https: 0, tls: 0, tcp: 0 };
  /** By error code, which are the gateway's own and few. */
  readonly bindsRefused = new Map<string, number>();
  readonly sessionsRefused = new Map<string, number>();

  responded(status: number): void {
    const digit = Math.trunc(status / 100);
    this.responses[digit] = (this.responses[digit] ?? 0) + 1;
  }

  connected(socket: Socket, kind: ConnectionKind): void {
    this.connections[kind] += 1;
    socket.once('close', () => {
      this.connections[kind] -= 1;
    });
  }

  /** Counts what an agent's request was answered with in place of what it asked for. */
  refused(counts: Map<string, number>, error: unknown): void {
    const code = error instanceof RpcError ? error.code : INTERNAL_ERROR;
    counts.set(code, (counts.get(code) ?? 0) + 1);
  }
}
