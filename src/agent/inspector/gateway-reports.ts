import { hash } from 'node:crypto';
import { ReportLine, type RequestReport } from '../../agent-protocol/request-report.ts';
import type { CaptureStore } from './capture-store.ts';
import { CapturedMessage, type Exchange } from './exchange.ts';

/** Captured requests that wait for their report. Those of requests that are not reported are dropped at this limit. */
const MAX_WAITING = 2_000;

/** Joins what the gateway reports with what was captured. */
export class GatewayReports {
  /** Ids of exchanges by tunnel and the digest of their request's head, oldest first. */
  readonly #waiting = new Map<string, number[]>();
  readonly #missed = new Map<string, number>();

  constructor(private readonly store: CaptureStore) {}

  /** How many requests of a tunnel the gateway has not reported. */
  missed(tunnelId: string): number {
    return this.#missed.get(tunnelId) ?? 0;
  }

  forget(tunnelId: string): void {
    this.#missed.delete(tunnelId);
  }

  /** A request was captured that the gateway may report. */
  captured({ id, tunnelId, request }: Exchange): void {
    const key = keyOf(tunnelId, hash('sha256', request.head, 'base64url'));
    const same = this.#waiting.get(key);
    if (same === undefined) this.#waiting.set(key, [id]);
    else if (same.push(id) > MAX_WAITING) same.shift();
    if (this.#waiting.size <= MAX_WAITING) return;
    for (const oldest of this.#waiting.keys()) {
      this.#waiting.delete(oldest);
      break;
    }
  }

  /**
   * Takes a line from the gateway. A request that was not captured is added if the upstream did not answer it.
   *
   * @param line what is malformed is ignored
   */
  take(tunnelId: string, line: string): void {
    const report = parsed(line);
    if (report === null) return;
    if ('dropped' in report) {
      this.#missed.set(tunnelId, this.missed(tunnelId) + report.dropped);
      return;
    }
    const id = this.#idOf(tunnelId, report);
    if (id !== undefined) this.store.attach(id, report);
    else if (report.by === 'gateway' || report.by === 'endpoint') this.#add(tunnelId, report);
  }

  #idOf(tunnelId: string, { sent }: RequestReport): number | undefined {
    if (sent === null) return undefined;
    const key = keyOf(tunnelId, sent.head);
    const same = this.#waiting.get(key);
    const id = same?.shift();
    if (same?.length === 0) this.#waiting.delete(key);
    return id;
  }

  #add(tunnelId: string, report: RequestReport): void {
    const { method, target, ms, status } = report;
    const now = performance.now();
    const request = new CapturedMessage({ method, target, httpVersion: '' }, '', now - ms);
    const exchange = this.store.add(tunnelId, request, null);
    this.store.attach(exchange.id, report);
    if (status === null) exchange.end('aborted', 'the gateway closed the connection', now);
    else exchange.end('complete', null, now);
    this.store.changed(exchange);
  }
}

const keyOf = (tunnelId: string, digest: string): string => `${tunnelId} ${digest}`;

function parsed(line: string): ReportLine | null {
  try {
    return ReportLine.parse(JSON.parse(line));
  } catch {
    // Gateways are not under the agent's control.
    return null;
  }
}
