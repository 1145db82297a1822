import { once } from 'node:events';
import type { Socket } from 'node:net';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { type Request, type Response, Router } from 'express';
import { z } from 'zod';
import { trimSpace } from '../../../lib/http/trim-space.ts';
import type { Clock } from '../../../lib/time/clock.ts';
import { AgentError } from '../../errors/agent-error.ts';
import { bodyContent } from '../../inspector/body-content.ts';
import type { Exchange } from '../../inspector/exchange.ts';
import { harText } from '../../inspector/har.ts';
import type { Inspector } from '../../inspector/inspector.ts';
import { Replays } from '../../inspector/replay.ts';
import { ReplayRequest, requestBytes } from '../../inspector/replay-request.ts';
import { durationOf, shownExchange } from '../../inspector/shown-exchange.ts';
import type { TunnelView } from '../../tunnels/tunnel-list.ts';
import type { TunnelManager } from '../../tunnels/tunnel-manager.ts';
import { methodNotAllowed } from '../error-handler.ts';
import { jsonBody } from '../json-body.ts';
import { noQuery, parseInput, querySchema } from '../parse-input.ts';
import { type ExchangeFilter, matcherOf, STATUS_FILTER } from './exchange-filter.ts';
import type { MessageReport, RequestSummary } from './inspection-reports.ts';
import { presentExchange, presentInspection, presentMessage, presentSummary } from './present-exchange.ts';
import { RequestsFeed } from './requests-feed.ts';

export interface InspectionOptions {
  tunnels: TunnelManager;
  inspector: Inspector;
  /** Connects to an upstream as a tunnel would, checked as it resolves now. */
  connect: (forwardsTo: string) => Promise<Socket>;
  version: string;
  clock: Clock;
}

const MAX_DURATION_S = 86_400;
const MESSAGES_AT_ONCE = 16;
const DEFAULT_DURATION_S = 900;

/** Body of `PUT /tunnels/{url_part}/inspection`. */
export const InspectionRequest = z.strictObject({
  duration_seconds: z.int().min(1).max(MAX_DURATION_S).default(DEFAULT_DURATION_S),
});

const Reveal = z.enum(['true', 'false']).optional().meta({ description: 'Shows secrets, which are masked otherwise.' });
const Id = z.coerce.number().int().positive();

const FILTERS = {
  method: z.string().max(64).optional(),
  path: z.string().max(1_024).optional().meta({ description: 'Contained in path and query, as sent or decoded.' }),
  status: z
    .string()
    .regex(STATUS_FILTER, 'must be a status such as 404, a class such as 5xx, or none')
    .optional()
    .meta({ description: '404, 5xx, or none without a response.' }),
  min_duration_ms: z.coerce.number().min(0).optional().meta({ type: 'number' }),
  reveal: Reveal,
};

export const RequestsQuery = querySchema({
  ...FILTERS,
  limit: z.coerce.number().int().min(1).max(1_000).default(100).meta({ type: 'integer' }),
  before: Id.optional().meta({ type: 'integer', description: 'Only requests older than the one with this id.' }),
});
export const HarQuery = querySchema(FILTERS);
export const RevealQuery = querySchema({ reveal: Reveal });
export const MessagesQuery = querySchema({
  after: z.coerce.number().int().min(0).default(0).meta({ type: 'integer' }),
  reveal: Reveal,
});

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
    this.#switch();
    this.#lists();
    this.#details();
  }

  /** Ends all live feeds, which would otherwise delay the stop of the server. */
  stop(): void {
    this.#feed.stop();
  }

  #switch(): void {
    const { inspector } = this.options;
    this.router
      .route('/tunnels/:url_part/inspection')
      .get(noQuery, (req, res) => void res.json(presentInspection(this.#tunnelId(req), inspector)))
      .put(noQuery, ...jsonBody, async (req, res) => {
        const { duration_seconds } = parseInput(InspectionRequest, req.body);
        const { tunnel } = this.#view(req);
        if (tunnel.protocol !== 'http') {
          const problem = `only http tunnels can be inspected: ${tunnel.url} is ${tunnel.protocol}`;
          throw new AgentError('ERR_AGENT_NOT_INSPECTABLE', problem);
        }
        await inspector.switchOn(tunnel.id, duration_seconds * 1_000);
        res.json(presentInspection(tunnel.id, inspector));
      })
      .delete(noQuery, (req, res) => {
        inspector.switchOff(this.#tunnelId(req));
        res.status(204).end();
      })
      .all(methodNotAllowed('GET, HEAD, PUT, DELETE'));
  }

  #lists(): void {
    const { inspector, version } = this.options;
    const { store } = inspector;
    this.router
      .route('/tunnels/:url_part/requests')
      .get((req, res) => {
        const { limit, before = Number.POSITIVE_INFINITY, reveal, ...filter } = parseInput(RequestsQuery, req.query);
        const found: RequestSummary[] = [];
        for (const exchange of matching(store.list(this.#tunnelId(req)), filter)) {
          if (exchange.id < before) found.push(presentSummary(exchange, reveal === 'true'));
          if (found.length === limit) break;
        }
        res.json(found);
      })
      .delete(noQuery, (req, res) => {
        store.clear(this.#tunnelId(req));
        res.status(204).end();
      })
      .all(methodNotAllowed('GET, HEAD, DELETE'));
    this.router
      .route('/tunnels/:url_part/requests/events')
      .get((req, res) => {
        const { reveal } = parseInput(RevealQuery, req.query);
        this.#feed.open(res, this.#tunnelId(req), reveal === 'true');
      })
      .all(methodNotAllowed('GET, HEAD'));
    this.router
      .route('/tunnels/:url_part/requests.har')
      .get(async (req, res) => {
        const { reveal, ...filter } = parseInput(HarQuery, req.query);
        const { tunnel } = this.#view(req);
        const exchanges = matching(store.listOldestFirst(tunnel.id), filter);
        const name = `${new URL(tunnel.url).hostname}.har`;
        res.set({ 'Content-Type': 'application/json', 'Content-Disposition': `attachment; filename="${name}"` });
        for await (const text of harText(exchanges, { version, url: tunnel.url, reveal: reveal === 'true' })) {
          if (!res.write(text)) await Promise.race([once(res, 'drain'), once(res, 'close')]);
          if (res.destroyed) return;
        }
        res.end();
      })
      .all(methodNotAllowed('GET, HEAD'));
  }

  #details(): void {
    const one = '/tunnels/:url_part/requests/:id';
    this.router
      .route(one)
      .get(async (req, res) => {
        const { reveal } = parseInput(RevealQuery, req.query);
        res.json(await presentExchange(this.#exchange(req), reveal === 'true'));
      })
      .all(methodNotAllowed('GET, HEAD'));
    this.router
      .route(`${one}/messages`)
      .get(async (req, res) => {
        const { after, reveal } = parseInput(MessagesQuery, req.query);
        const messages = this.#exchange(req).messages ?? [];
        const shown: MessageReport[] = [];
        for (const message of messages.filter(({ number }) => number > after)) {
          // All of them may be 16 MiB, which takes a while to mask.
          if (shown.push(presentMessage(message, reveal === 'true')) % MESSAGES_AT_ONCE === 0) await nextTurn();
        }
        res.json(shown);
      })
      .all(methodNotAllowed('GET, HEAD'));
    for (const side of ['request', 'response'] as const) {
      this.router
        .route(`${one}/${side}/body`)
        .get((req, res) => this.#sendBody(req, res, side))
        .all(methodNotAllowed('GET, HEAD'));
    }
    this.router
      .route(`${one}/replay`)
      .post(...jsonBody, async (req, res) => {
        const { reveal } = parseInput(RevealQuery, req.query);
        const change = parseInput(ReplayRequest, req.body);
        res.json(await presentExchange(await this.#replay(req, change), reveal === 'true'));
      })
      .all(methodNotAllowed('POST'));
  }

  async #replay(req: Request, change: ReplayRequest): Promise<Exchange> {
    const { inspector, connect } = this.options;
    const { tunnel } = this.#view(req);
    const exchange = this.#exchange(req);
    const request = await requestBytes(exchange, change);
    const capture = inspector.capture(tunnel.id, exchange.id);
    return this.#replays.send({ request, capture, connect: () => connect(tunnel.forwards_to) });
  }

  /** As a download: what others sent must not run on the agent's page. */
  async #sendBody(req: Request, res: Response, side: 'request' | 'response'): Promise<void> {
    const reveal = parseInput(RevealQuery, req.query).reveal === 'true';
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

  #view(req: Request): TunnelView {
    return this.options.tunnels.find(String(req.params.url_part));
  }

  #tunnelId(req: Request): string {
    return this.#view(req).tunnel.id;
  }

  #exchange(req: Request): Exchange {
    const id = String(req.params.id);
    const exchange = this.options.inspector.store.find(this.#tunnelId(req), Number(id));
    if (exchange === null) throw noSuchRequest(`no such request: ${id.slice(0, 40)}; the oldest are forgotten first`);
    return exchange;
  }
}

function* matching(exchanges: Iterable<Exchange>, filter: ExchangeFilter): Generator<Exchange> {
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
