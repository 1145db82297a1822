import { headDigest, headSample, ReportLine, type RequestReport } from '../../agent-protocol/request-report.ts';
import type { CaptureStore } from './capture-store.ts';
import { type CapturedExchange, CapturedMessage } from './captured-exchange.ts';

/** Captured requests that may wait for their report. Many are not reported. */
const MAX_WAITING = 2_048;

/** Identical requests that one report is compared with. */
const MAX_TWINS = 8;

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
    if (this.#digests.size > 0) this.#digests.delete(this.#ids[at] ?? 0);
    this.#ids[at] = id;
    this.#samples[at] = headSample(head);
  }

  /**
   * Takes out the request of a report: the oldest with its head whose outcome fits, else the oldest with its head. The gateway sends
   * some requests again when the upstream has closed the connection, and reports both attempts as one.
   *
   * @param find a captured request; null when it is forgotten
   * @returns its id; null when there is none
   */
  take({ sent, by, status }: RequestReport, find: (id: number) => CapturedExchange | null): number | null {
    if (sent === null) return null;
    const { sample, head } = sent;
    let oldest: number | null = null;
    let twins = 0;
    for (let number = Math.max(0, this.#count - MAX_WAITING); number < this.#count; number++) {
      const at = number % MAX_WAITING;
      const id = this.#ids[at] ?? 0;
      if (this.#samples[at] !== sample || id === 0) continue;
      const digest = this.#digests.get(id) ?? headDigest(find(id)?.request.head ?? '');
      this.#digests.set(id, digest);
      if (digest !== head) continue;
      oldest ??= at;
      if (by !== 'upstream' || find(id)?.response?.line.status === status) return this.#takeAt(at);
      if (++twins === MAX_TWINS) break;
    }
    return oldest === null ? null : this.#takeAt(oldest);
  }

  #takeAt(at: number): number {
    const id = this.#ids[at] ?? 0;
    this.#digests.delete(id);
    this.#ids[at] = 0;
    return id;
  }
}

/** Joins what the gateway reports with what was captured. */
export class GatewayReports {
  readonly #waiting = new Map<string, WaitingRequests>();
  readonly #missed = new Map<string, number>();

  constructor(private readonly store: CaptureStore) {}

  missed(tunnelId: string): number {
    return this.#missed.get(tunnelId) ?? 0;
  }

  forget(tunnelId: string): void {
    this.#missed.delete(tunnelId);
    this.#waiting.delete(tunnelId);
  }

  /** A request was captured that the gateway may report. */
  captured({ id, tunnelId, request }: CapturedExchange): void {
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

  #idOf(tunnelId: string, report: RequestReport): number | null {
    return this.#waiting.get(tunnelId)?.take(report, (id) => this.store.find(tunnelId, id)) ?? null;
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
