import { headDigest, headSample, ReportLine, type RequestReport } from '../../agent-protocol/request-report.ts';
import type { CaptureStore } from './capture-store.ts';
import { CapturedMessage, type Exchange } from './exchange.ts';

/** Captured requests that wait for their report, at least and at most. Many are not reported. */
const [FEWEST_WAITING, MOST_WAITING] = [1_000, 2_000];

/** Not the request itself, which the store may forget. */
interface Waiting {
  id: number;
  tunnelId: string;
  sample: number;
  /** Taken once, when the sample is that of a report: clients could send many with one sample. */
  digest: string | null;
}

/** Joins what the gateway reports with what was captured. */
export class GatewayReports {
  /** Oldest first. */
  readonly #waiting: Waiting[] = [];
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
    if (this.#waiting.push({ id, tunnelId, sample: headSample(request.head), digest: null }) < MOST_WAITING) return;
    this.#waiting.splice(0, MOST_WAITING - FEWEST_WAITING);
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
    const { sample, head } = sent;
    const at = this.#waiting.findIndex((each) => {
      if (each.sample !== sample || each.tunnelId !== tunnelId) return false;
      each.digest ??= headDigest(this.store.find(tunnelId, each.id)?.request.head ?? '');
      return each.digest === head;
    });
    return at === -1 ? undefined : this.#waiting.splice(at, 1)[0]?.id;
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
