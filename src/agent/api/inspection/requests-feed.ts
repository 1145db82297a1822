import type { Response } from 'express';
import { EventStreams, eventText, MAX_STREAMS, SILENCE_MS } from '../../../lib/http/event-streams.ts';
import type { Clock } from '../../../lib/time/clock.ts';
import { AgentError, RETRY_AFTER_S } from '../../errors/agent-error.ts';
import type { Inspector } from '../../inspector/inspector.ts';
import { isAdmitted } from '../bearer-auth.ts';
import type { RequestSummary, RequestsChange, RequestsSnapshot } from './inspection-reports.ts';
import { presentInspection, presentSummary } from './present-exchange.ts';

interface Viewer {
  tunnelId: string;
  reveal: boolean;
  /** Ids of exchanges. */
  changed: Set<number>;
  /** The end of the inspection that it knows. */
  until: string | null;
  lastEvent: number;
}

const INTERVAL_MS = 250;
const MAX_IN_SNAPSHOT = 100;
const MAX_IN_CHANGE = 200;

/** Sends those who watch the requests of a tunnel what changes, as server-sent events. Without one, nothing runs. */
export class RequestsFeed {
  readonly #streams: EventStreams<Viewer>;
  #unwatch: (() => void) | null = null;

  constructor(
    private readonly inspector: Inspector,
    private readonly clock: Clock,
  ) {
    this.#streams = new EventStreams(clock, INTERVAL_MS, () => this.#update(), false);
  }

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
    const requests: RequestSummary[] = [];
    for (const exchange of store.list(tunnelId)) {
      if (requests.push(presentSummary(exchange, reveal)) === MAX_IN_SNAPSHOT) break;
    }
    const snapshot: RequestsSnapshot = { inspection, requests };
    this.#unwatch ??= store.watch((tunnelId, id) => this.#note(tunnelId, id));
    this.#streams.add(res, viewer, eventText('snapshot', snapshot), isAdmitted(res));
    res.once('close', () => this.#unwatchIfAlone());
  }

  /** Ends all streams, which would otherwise delay the stop of the server. */
  stop(): void {
    this.#streams.stop();
    this.#unwatchIfAlone();
  }

  #note(tunnelId: string, id: number): void {
    for (const [, viewer] of this.#streams) if (viewer.tunnelId === tunnelId) viewer.changed.add(id);
  }

  #unwatchIfAlone(): void {
    for (const _ of this.#streams) return;
    this.#unwatch?.();
    this.#unwatch = null;
  }

  #update(): void {
    const now = this.clock.now();
    for (const [stream, viewer] of this.#streams) {
      const change = this.#changeFor(viewer);
      const hasNews = Object.keys(change).length > 0;
      if (!hasNews && now - viewer.lastEvent < SILENCE_MS) continue;
      viewer.lastEvent = now;
      stream.send(hasNews ? eventText('change', change) : eventText('alive', {}));
    }
  }

  #changeFor(viewer: Viewer): RequestsChange {
    const { tunnelId, reveal } = viewer;
    const until = this.inspector.until(tunnelId)?.toISOString() ?? null;
    if (viewer.changed.size === 0 && until === viewer.until) return {};
    viewer.until = until;
    const inspection = presentInspection(tunnelId, this.inspector);
    const { store } = this.inspector;
    const requests: RequestSummary[] = [];
    const removed: string[] = [];
    let skipped = 0;
    for (const id of [...viewer.changed].sort((a, b) => b - a)) {
      if (requests.length === MAX_IN_CHANGE && store.holds(id)) {
        skipped++;
        continue;
      }
      const exchange = store.find(tunnelId, id);
      if (exchange === null) removed.push(String(id));
      else requests.push(presentSummary(exchange, reveal));
    }
    viewer.changed.clear();
    return {
      inspection,
      ...(requests.length > 0 && { requests }),
      ...(removed.length > 0 && { removed }),
      ...(skipped > 0 && { skipped }),
    };
  }
}
