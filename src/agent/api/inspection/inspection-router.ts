import type { Socket } from 'node:net';
import { pipeline } from 'node:stream/promises';
import { type Response, Router } from 'express';
import type { z } from 'zod';
import { EventStreams, eventText, MAX_STREAMS, SILENCE_MS } from '../../../lib/http/event-streams.ts';
import { trimSpace } from '../../../lib/http/header-fields.ts';
import { runInTurns, type Stepwise } from '../../../lib/stepwise.ts';
import type { Clock } from '../../../lib/time/clock.ts';
import { beginsWithHttp1, optionsOf } from '../../connectors/connector.ts';
import { AgentError, RETRY_AFTER_S } from '../../errors/agent-error.ts';
import { bodyContent } from '../../inspector/body-content.ts';
import type { CapturedExchange } from '../../inspector/captured-exchange.ts';
import { harText } from '../../inspector/har.ts';
import type { Inspector } from '../../inspector/inspector.ts';
import { type ReplayRequest, Replays, requestBytes } from '../../inspector/replay.ts';
import { durationOf, shownExchange } from '../../inspector/shown-exchange.ts';
import type { Tunnel } from '../../tunnels/tunnel.ts';
import type { TunnelView } from '../../tunnels/tunnel-list.ts';
import type { TunnelManager } from '../../tunnels/tunnel-manager.ts';
import { type Handlers, type RequestOfOne, serve } from '../agent-routes.ts';
import { admissionCheck } from '../bearer-auth.ts';
import { INSPECTION_OPERATIONS } from './inspection-operations.ts';
import type {
  InspectionReport,
  MessageReport,
  RequestSummary,
  RequestsChange,
  RequestsSnapshot,
} from './inspection-reports.ts';
import { presentExchange, presentInspection, presentMessage, presentSummary } from './present-exchange.ts';
import { type ExchangeFilter, matcherOf } from './shown-requests.ts';

export interface InspectionOptions {
  tunnels: TunnelManager;
  inspector: Inspector;
  /** Connects to an upstream as a tunnel would, checked as it resolves now. */
  connect: (tunnel: Tunnel) => Promise<Socket>;
  version: string;
  clock: Clock;
}

type ListQuery = z.output<typeof INSPECTION_OPERATIONS.listRequests.query>;
type HarQuery = z.output<typeof INSPECTION_OPERATIONS.exportRequests.query>;

/** Shown by browsers on their own; SVG and HTML could contain scripts. */
const IMAGES = /^image\/(?:png|jpeg|gif|webp|avif)$/;

/** The traffic inspector: `/tunnels/{url_part}/inspection` and `/tunnels/{url_part}/requests…`. */
export class InspectionApi {
  readonly router = Router();
  readonly #feed: RequestsFeed;
  readonly #replays = new Replays();

  constructor(private readonly options: InspectionOptions) {
    this.#feed = new RequestsFeed(options.inspector, options.clock);
    // Traffic of others, with secrets if they are asked for: nothing on the way may keep it.
    this.router.use(['/tunnels/:url_part/requests', '/tunnels/:url_part/requests.har'], (_req, res, next) => {
      res.set('Cache-Control', 'no-store');
      next();
    });
    this.router.use(serve(INSPECTION_OPERATIONS, this.#handlers()));
  }

  /** Ends all live feeds, which would otherwise delay the stop of the server. */
  stop(): void {
    this.#feed.stop();
  }

  #handlers(): Handlers<typeof INSPECTION_OPERATIONS> {
    const { inspector } = this.options;
    return {
      getInspection: ({ req }) => presentInspection(this.#view(req).tunnel.id, inspector),
      startInspection: ({ req, body }) => this.#inspect(this.#view(req).tunnel, body.duration_seconds),
      stopInspection: ({ req }) => inspector.switchOff(this.#view(req).tunnel.id),
      listRequests: ({ req, query }) => this.#list(this.#view(req).tunnel.id, query),
      forgetRequests: ({ req }) => inspector.store.clear(this.#view(req).tunnel.id),
      watchRequests: ({ req, res, query }) => this.#feed.open(res, this.#view(req).tunnel.id, query.reveal === 'true'),
      exportRequests: ({ req, res, query }) => this.#export(this.#view(req).tunnel, res, query),
      getRequest: ({ req, query }) => presentExchange(this.#exchange(req), query.reveal === 'true'),
      listMessages: ({ req, query }) => this.#messages(this.#exchange(req), query.after, query.reveal === 'true'),
      getRequestBody: ({ req, res, query }) => this.#sendBody(req, res, 'request', query.reveal === 'true'),
      getResponseBody: ({ req, res, query }) => this.#sendBody(req, res, 'response', query.reveal === 'true'),
      replayRequest: async ({ req, body, query }) =>
        presentExchange(await this.#replay(req, body), query.reveal === 'true'),
    };
  }

  async #inspect(tunnel: Tunnel, seconds: number): Promise<InspectionReport> {
    const { inspector } = this.options;
    const { id, url } = tunnel;
    if (!beginsWithHttp1(tunnel)) {
      const { app_protocol, proxy_proto } = optionsOf(tunnel);
      const kind = proxy_proto ? `starts connections with a PROXY header` : `is ${app_protocol ?? tunnel.protocol}`;
      throw new AgentError('ERR_AGENT_NOT_INSPECTABLE', `only tunnels of HTTP/1.1 can be inspected: ${url} ${kind}`);
    }
    await inspector.switchOn(id, seconds * 1_000);
    return presentInspection(id, inspector);
  }

  #list(
    tunnelId: string,
    { limit, before = Number.POSITIVE_INFINITY, reveal, ...filter }: ListQuery,
  ): RequestSummary[] {
    const found: RequestSummary[] = [];
    for (const exchange of matching(this.options.inspector.store.list(tunnelId), filter)) {
      if (exchange.id < before) found.push(presentSummary(exchange, reveal === 'true'));
      if (found.length === limit) break;
    }
    return found;
  }

  async #export({ id, url }: Tunnel, res: Response, { reveal, ...filter }: HarQuery) {
    const { inspector, version } = this.options;
    const exchanges = matching(inspector.store.listOldestFirst(id), filter);
    const name = `${new URL(url).hostname}.har`;
    res.set({ 'Content-Type': 'application/json', 'Content-Disposition': `attachment; filename="${name}"` });
    const text = harText(exchanges, { version, url, reveal: reveal === 'true' });
    await pipeline(text, res).catch((error: NodeJS.ErrnoException) => {
      // A client that has left needs no answer.
      if (error.code !== 'ERR_STREAM_PREMATURE_CLOSE') throw error;
    });
  }

  /** All of them may be 16 MiB, which takes a while to mask. */
  #messages({ messages }: CapturedExchange, after: number, reveal: boolean): Promise<MessageReport[]> {
    const present = function* (): Stepwise<MessageReport[]> {
      const shown: MessageReport[] = [];
      for (const message of (messages ?? []).filter(({ number }) => number > after)) {
        shown.push(presentMessage(message, reveal));
        yield;
      }
      return shown;
    };
    return runInTurns(present());
  }

  async #replay(req: RequestOfOne, change: ReplayRequest): Promise<CapturedExchange> {
    const { inspector, connect } = this.options;
    const { tunnel } = this.#view(req);
    const exchange = this.#exchange(req);
    const request = await requestBytes(exchange, change);
    const capture = inspector.capture(tunnel.id, exchange.id);
    return this.#replays.send({ request, capture, connect: () => connect(tunnel) });
  }

  /** As a download: what others sent must not run on the agent's page. */
  async #sendBody(req: RequestOfOne, res: Response, side: 'request' | 'response', reveal: boolean): Promise<void> {
    const exchange = this.#exchange(req);
    const shown = shownExchange(exchange, true);
    const message = exchange[side];
    const fields = side === 'request' ? shown.requestHeaders : shown.responseHeaders;
    const content = message && (await bodyContent(message, fields, reveal));
    if (!content) throw noSuchRequest(`request ${exchange.id} has no captured ${side} body`);
    const type = trimSpace(content.contentType?.split(';')[0] ?? '').toLowerCase();
    res.set({
      'Content-Type': IMAGES.test(type) ? type : 'application/octet-stream',
      'Content-Disposition': `attachment; filename="${side}-${exchange.id}"`,
      'Content-Security-Policy': "default-src 'none'; sandbox",
      'X-Content-Type-Options': 'nosniff',
    });
    res.end(content.bytes);
  }

  #view({ params }: RequestOfOne): TunnelView {
    return this.options.tunnels.find(params.url_part);
  }

  #exchange(req: RequestOfOne): CapturedExchange {
    const { id } = req.params;
    const exchange = this.options.inspector.store.find(this.#view(req).tunnel.id, Number(id));
    if (exchange === null) throw noSuchRequest(`no such request: ${id.slice(0, 40)}; the oldest are forgotten first`);
    return exchange;
  }
}

function* matching(exchanges: Iterable<CapturedExchange>, filter: ExchangeFilter): Generator<CapturedExchange> {
  const matches = matcherOf(filter);
  for (const exchange of exchanges) {
    const { method, target: path } = exchange.request.line;
    const { status } = exchange;
    if (matches({ method, path, status, durationMs: durationOf(exchange) })) yield exchange;
  }
}

function noSuchRequest(problem: string): AgentError {
  return new AgentError('ERR_AGENT_REQUEST_NOT_FOUND', problem);
}

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
class RequestsFeed {
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
    this.#streams.add(res, viewer, eventText('snapshot', snapshot), admissionCheck(res));
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
