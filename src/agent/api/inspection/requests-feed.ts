import type { Response } from 'express';
import { EventStreams, eventText, MAX_STREAMS, SILENCE_MS } from '../../../lib/http/event-streams.ts';
import type { Clock } from '../../../lib/time/clock.ts';
import { AgentError, RETRY_AFTER_S } from '../../errors/agent-error.ts';
import type { Exchange } from '../../inspector/exchange.ts';
import type { Inspector } from '../../inspector/inspector.ts';
import type { RequestsChange, RequestsSnapshot } from './inspection-reports.ts';
import { presentInspection, presentSummary } from './present-exchange.ts';

interface Viewer {
  tunnelId: string;
  reveal: boolean;
  changed: Set<Exchange>;
  /** The end of the inspection that it knows. */
  until: string | null;
  lastEvent: number;
}

const INTERVAL_MS = 250;
const MAX_IN_SNAPSHOT = 100;
const MAX_IN_CHANGE = 200;
/** A viewer that reads nothing is cut off; it reconnects automatically. */
const MAX_UNREAD = 4 * 1024 * 1024;

/** Sends those who watch the requests of a tunnel what changes, as server-sent events. Without one, nothing runs. */
export class RequestsFeed {
  readonly #streams: EventStreams<Viewer>;
  #unwatch: (() => void) | null = null;

  constructor(
    private readonly inspector: Inspector,
    private readonly clock: Clock,
  ) {
    this.#streams = new EventStreams(clock, INTERVAL_MS, () => this.#update());
  }

  /** @throws {AgentError} 503 when too many watch already */
  open(res: Response, tunnelId: string, reveal: boolean): void {
    if (this.#streams.isFull) {
      const problem = `too many open streams of requests: at most ${MAX_STREAMS}; close one`;
      throw new AgentError('ERR_AGENT_BUSY', problem, { retryAfter: RETRY_AFTER_S });
    }
    const { store } = this.inspector;
    const inspection = presentInspection(tunnelId, this.inspector);
    const viewer: Viewer = {
      tunnelId,
      reveal,
      changed: new Set(),
      until: inspection.until,
      lastEvent: this.clock.now(),
    };
    const requests = store.list(tunnelId).slice(0, MAX_IN_SNAPSHOT);
    const snapshot: RequestsSnapshot = {
      inspection,
      requests: requests.map((exchange) => presentSummary(exchange, reveal)),
    };
    this.#unwatch ??= store.watch((exchange) => this.#note(exchange));
    this.#streams.add(res, viewer, eventText('snapshot', snapshot));
    res.once('close', () => this.#unwatchIfAlone());
  }

  /** Ends all streams, which would otherwise delay the stop of the server. */
  stop(): void {
    this.#streams.stop();
    this.#unwatchIfAlone();
  }

  #note(exchange: Exchange): void {
    for (const [, viewer] of this.#streams) {
      if (viewer.tunnelId === exchange.tunnelId) viewer.changed.add(exchange);
    }
  }

  #unwatchIfAlone(): void {
    for (const _ of this.#streams) return;
    this.#unwatch?.();
    this.#unwatch = null;
  }

  #update(): void {
    const now = this.clock.now();
    for (const [res, viewer] of this.#streams) {
      const change = this.#changeFor(viewer);
      const hasNews = Object.keys(change).length > 0;
      if (!hasNews && now - viewer.lastEvent < SILENCE_MS) continue;
      viewer.lastEvent = now;
      if (res.writableLength > MAX_UNREAD) res.destroy();
      else res.write(hasNews ? eventText('change', change) : eventText('alive', {}));
    }
  }

  #changeFor(viewer: Viewer): RequestsChange {
    const { tunnelId, reveal } = viewer;
    const until = this.inspector.until(tunnelId)?.toISOString() ?? null;
    if (viewer.changed.size === 0 && until === viewer.until) return {};
    viewer.until = until;
    const inspection = presentInspection(tunnelId, this.inspector);
    const changed = [...viewer.changed].sort((a, b) => b.id - a.id);
    viewer.changed.clear();
    const held = changed.filter(({ isHeld }) => isHeld);
    const removed = changed.filter(({ isHeld }) => !isHeld).map(({ id }) => String(id));
    const skipped = Math.max(0, held.length - MAX_IN_CHANGE);
    return {
      inspection,
      ...(held.length > 0 && {
        requests: held.slice(0, MAX_IN_CHANGE).map((exchange) => presentSummary(exchange, reveal)),
      }),
      ...(removed.length > 0 && { removed }),
      ...(skipped > 0 && { skipped }),
    };
  }
}
