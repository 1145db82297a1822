import { headDigest, headSample, ReportLine, type RequestReport } from '../../agent-protocol/request-report.ts';
import type { CaptureStore } from './capture-store.ts';
import { CapturedMessage, type Exchange } from './exchange.ts';

/** Captured requests that may wait for their report. Many are not reported. */
const MAX_WAITING = 2_048;

/**
 * Captured requests that wait for their report, as numbers in a ring: the garbage collector would take longer for objects
 * than their capture takes.
 */
class WaitingRequests {
  readonly #ids = new Float64Array(MAX_WAITING);
  readonly #samples = new Int32Array(MAX_WAITING);
  /** By id, of those that a sample did not rule out: clients could send many with one sample. */
  readonly #digests = new Map<number, string>();
  #count = 0;

  add(id: number, head: string): void {
    const at = this.#count++ % MAX_WAITING;
    if (this.#digests.size > 0) this.#digests.delete(this.#ids[at] as number);
    this.#ids[at] = id;
    this.#samples[at] = headSample(head);
  }

  /**
   * Takes out the oldest request with that head.
   *
   * @param headOf the head of a request; null when it is forgotten
   * @returns its id; null when there is none
   */
  take({ sample, head }: NonNullable<RequestReport['sent']>, headOf: (id: number) => string | null): number | null {
    for (let number = Math.max(0, this.#count - MAX_WAITING); number < this.#count; number++) {
      const at = number % MAX_WAITING;
      const id = this.#ids[at] as number;
      if (this.#samples[at] !== sample || id === 0) continue;
      const digest = this.#digests.get(id) ?? headDigest(headOf(id) ?? '');
      this.#digests.set(id, digest);
      if (digest !== head) continue;
      this.#digests.delete(id);
      this.#ids[at] = 0;
      return id;
    }
    return null;
  }
}

/** Joins what the gateway reports with what was captured. */
export class GatewayReports {
  /** By tunnel. */
  readonly #waiting = new Map<string, WaitingRequests>();
  readonly #missed = new Map<string, number>();

  constructor(private readonly store: CaptureStore) {}

  /** How many requests of a tunnel the gateway has not reported. */
  missed(tunnelId: string): number {
    return this.#missed.get(tunnelId) ?? 0;
  }

  forget(tunnelId: string): void {
    this.#missed.delete(tunnelId);
    this.#waiting.delete(tunnelId);
  }

  /** A request was captured that the gateway may report. */
  captured({ id, tunnelId, request }: Exchange): void {
    let waiting = this.#waiting.get(tunnelId);
    if (waiting === undefined) {
      waiting = new WaitingRequests();
      this.#waiting.set(tunnelId, waiting);
    }
    waiting.add(id, request.head);
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
    if (id !== null) this.store.attach(id, report);
    else if (report.by === 'gateway' || report.by === 'endpoint') this.#add(tunnelId, report);
  }

  #idOf(tunnelId: string, { sent }: RequestReport): number | null {
    const waiting = this.#waiting.get(tunnelId);
    if (sent === null || waiting === undefined) return null;
    return waiting.take(sent, (id) => this.store.find(tunnelId, id)?.request.head ?? null);
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

function parsed(line: string): ReportLine | null {
  try {
    return ReportLine.parse(JSON.parse(line));
  } catch {
    // Gateways are not under the agent's control.
    return null;
  }
}
