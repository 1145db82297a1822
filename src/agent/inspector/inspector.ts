import type { Clock } from '../../lib/time/clock.ts';
import { CaptureStore } from './capture-store.ts';
import { CaptureTime } from './capture-time.ts';
import type { CapturedExchange } from './captured-exchange.ts';
import { ConnectionCapture } from './connection-capture.ts';
import { GatewayReports } from './gateway-reports.ts';

export interface GatewayWatch {
  readonly isActive: boolean;
  stop(): void;
}

export interface InspectorOptions {
  /**
   * Makes the connections of a tunnel be captured from now on, or no longer (null). Resolves when all new ones are.
   *
   * @throws {ApiError} when that does not work now
   */
  observe: (tunnelId: string, capture: (() => ConnectionCapture) | null) => Promise<void>;
  /** Gets what the gateway reports of the requests of a tunnel, as lines; omitted: nothing. */
  watchRequests?: (tunnelId: string, onLine: (line: string) => void) => GatewayWatch;
  clock: Clock;
  store?: CaptureStore;
}

interface Inspection {
  until: Date;
  cancel: () => void;
  captures: Set<ConnectionCapture>;
  /** Null until connections are captured. */
  watch: GatewayWatch | null;
}

/** How long captured exchanges stay after the end of the inspection. */
const KEPT_MS = 3_600_000;

/** Captures what passes between the agent and upstreams, for tunnels and times that somebody chose. */
export class Inspector {
  readonly store: CaptureStore;
  readonly reports: GatewayReports;
  readonly #time = new CaptureTime();
  readonly #inspections = new Map<string, Inspection>();
  /** Forget the exchanges of tunnels that are no longer inspected. */
  readonly #kept = new Map<string, () => void>();

  constructor(private readonly options: InspectorOptions) {
    this.store = options.store ?? new CaptureStore();
    this.reports = new GatewayReports(this.store);
  }

  until(tunnelId: string): Date | null {
    return this.#inspections.get(tunnelId)?.until ?? null;
  }

  isReported(tunnelId: string): boolean {
    return this.#inspections.get(tunnelId)?.watch?.isActive === true;
  }

  /**
   * Inspects a tunnel from now on; again, it only moves the end.
   *
   * @throws {ApiError} as `observe` does; then the tunnel is not inspected
   */
  async switchOn(tunnelId: string, durationMs: number): Promise<void> {
    const before = this.#inspections.get(tunnelId);
    before?.cancel();
    const captures = before?.captures ?? new Set();
    const cancel = this.options.clock.after(durationMs, () => this.switchOff(tunnelId));
    const watch = before?.watch ?? null;
    this.#inspections.set(tunnelId, { until: new Date(Date.now() + durationMs), cancel, captures, watch });
    this.#keep(tunnelId);
    if (before) return;
    try {
      await this.options.observe(tunnelId, () => this.capture(tunnelId));
    } catch (error) {
      this.switchOff(tunnelId);
      throw error;
    }
    const inspection = this.#inspections.get(tunnelId);
    // Another call may have switched it off, and on again.
    if (!inspection || inspection.watch) return;
    inspection.watch = this.options.watchRequests?.(tunnelId, (line) => this.reports.take(tunnelId, line)) ?? null;
  }

  /** Ends the inspection of a tunnel. What was captured stays for an hour. */
  switchOff(tunnelId: string): void {
    const inspection = this.#inspections.get(tunnelId);
    if (!inspection) return;
    inspection.cancel();
    this.#inspections.delete(tunnelId);
    inspection.watch?.stop();
    // Never waits: it takes effect at once.
    void this.options.observe(tunnelId, null).catch(() => {});
    for (const capture of inspection.captures) capture.detach();
    this.#keep(tunnelId);
    const cancel = this.options.clock.after(KEPT_MS, () => this.forget(tunnelId));
    this.#kept.set(tunnelId, cancel);
  }

  /** Ends the inspection of a deleted tunnel, and forgets what was captured. */
  forget(tunnelId: string): void {
    this.switchOff(tunnelId);
    this.#keep(tunnelId);
    this.store.clear(tunnelId);
    this.reports.forget(tunnelId);
  }

  stop(): void {
    for (const tunnelId of [...this.#inspections.keys(), ...this.#kept.keys()]) this.forget(tunnelId);
  }

  /** @param replayOf the exchange that the connection repeats; it is captured whether the tunnel is inspected or not */
  capture(tunnelId: string, replayOf: number | null = null): ConnectionCapture {
    const captures = this.#inspections.get(tunnelId)?.captures;
    const onOver = (capture: ConnectionCapture) => captures?.delete(capture);
    const onRequest = (exchange: CapturedExchange) => {
      // Replays bypass the gateway.
      if (replayOf === null && this.isReported(tunnelId)) this.reports.captured(exchange);
    };
    const capture = new ConnectionCapture({
      tunnelId,
      store: this.store,
      time: this.#time,
      replayOf,
      onRequest,
      onOver,
    });
    captures?.add(capture);
    return capture;
  }

  #keep(tunnelId: string): void {
    this.#kept.get(tunnelId)?.();
    this.#kept.delete(tunnelId);
  }
}
