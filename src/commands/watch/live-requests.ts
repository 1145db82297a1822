import { setTimeout as delay } from 'node:timers/promises';
import { matcherOf } from '../../agent/api/inspection/shown-requests.ts';
import {
  agentEvents,
  callAgent,
  type MessageReport,
  type RequestDetail,
  type RequestSummary,
  type RequestsChange,
  type RequestsSnapshot,
} from '../../agent/api-client.ts';
import { EXIT_UNREACHABLE, messageOf, OperatorError } from '../../lib/errors.ts';
import { printable, wantsColor } from '../../lib/terminal-text.ts';
import type { Settings } from '../../settings/agent-settings.ts';
import { jsonText, note, print, widthOf } from '../output.ts';
import { columnTitles, requestLine, requestText } from './request-detail.ts';

/** The inspection is renewed in time, and ends soon after this command is killed. */
const DURATION_S = 300;
const RENEW_MS = 120_000;
const RETRY_MS = 2_000;
/** How long a completed request waits for what the gateway reports of it. */
const REPORT_MS = 1_000;
/** How long the end of the command waits for the agent. */
const END_MS = 3_000;

export class LiveRequests {
  readonly #ended = new AbortController();
  readonly #stopped: AbortSignal;
  readonly #matches: (request: RequestSummary) => boolean;
  /** Ids of requests that are printed, or were there before. */
  readonly #done = new Set<string>();
  /** Those of upgraded connections and event streams whose start is printed. */
  readonly #begun = new Set<string>();
  /** Completed ones that wait for the gateway's report. */
  readonly #unreported = new Set<string>();
  #isReported = false;
  /** Whether the inspection is this command's, which ends with it. */
  #isOwn = false;

  /**
   * @param stopped ends it
   * @param onWatching called once, when further requests are shown
   */
  constructor(
    private readonly tunnel: WatchedTunnel,
    private readonly options: WatchOptions,
    stopped: AbortSignal,
    private readonly onWatching: () => void,
  ) {
    this.#stopped = AbortSignal.any([stopped, this.#ended.signal]);
    const { minDuration, ...filter } = options;
    const matches = matcherOf({ ...filter, min_duration_ms: Number(minDuration ?? 0) });
    this.#matches = ({ duration_ms, ...request }) => matches({ ...request, durationMs: duration_ms });
  }

  async run(): Promise<void> {
    try {
      for (let isFirst = true; !this.#stopped.aborted; isFirst = false) await this.#follow(isFirst);
    } finally {
      await this.#switchOff();
    }
  }

  async #follow(isFirst: boolean): Promise<void> {
    const { settings, url, query } = this.tunnel;
    const signal = this.#stopped;
    const events = agentEvents(settings, 'GET /tunnels/{url_part}/requests/events', { url_part: url, query }, signal);
    try {
      for await (const { name, data } of events) {
        if (name === 'snapshot') await this.#begin(data as RequestsSnapshot, isFirst);
        if (name === 'change') await this.#show(data as RequestsChange);
      }
    } catch (error) {
      if (isFirst || !(error instanceof OperatorError) || error.exitCode !== EXIT_UNREACHABLE) throw error;
    }
    if (signal.aborted) return;
    note('connection to the agent lost; trying again');
    await delay(RETRY_MS, undefined, { signal }).catch(() => {}); // stopped
  }

  async #begin({ inspection, requests }: RequestsSnapshot, isFirst: boolean): Promise<void> {
    // A restarted agent counts requests from 1 again.
    this.#done.clear();
    this.#isReported = inspection.gateway_reports === 'on';
    for (const { id, state } of requests) if (state !== 'open') this.#done.add(id);
    if (inspection.state === 'off') await this.#switchOn();
    if (!isFirst) return;
    this.onWatching();
    if (!this.options.json && !this.options.body) print(columnTitles(widthOf(process.stdout)));
  }

  async #show({ inspection, requests = [], removed = [], skipped }: RequestsChange): Promise<void> {
    for (const id of removed) this.#done.delete(id);
    if (inspection) this.#isReported = inspection.gateway_reports === 'on';
    if (inspection?.state === 'off') await this.#switchOn();
    // Oldest first.
    for (const request of [...requests].reverse()) await this.#showOne(request);
    if (skipped) note(`${skipped} more requests are not shown`);
  }

  async #showOne(request: RequestSummary): Promise<void> {
    const { id, state, kind } = request;
    if (this.#done.has(id) || !this.#matches(request)) return;
    if (state !== 'open') {
      if (this.#awaitsReport(request)) return;
      this.#done.add(id);
      this.#begun.delete(id);
      await this.#print(request);
    } else if (kind !== 'http' && !this.#begun.has(id) && !this.options.json && !this.options.body) {
      this.#begun.add(id);
      this.#printLine(request);
    }
  }

  /** Whether to print a completed request later: with the rules that acted. */
  #awaitsReport(request: RequestSummary): boolean {
    const { id, answered_by, replay_of } = request;
    if (!this.options.body || !this.#isReported || answered_by !== null || replay_of !== null) {
      this.#unreported.delete(id);
      return false;
    }
    if (this.#unreported.has(id)) return true;
    this.#unreported.add(id);
    setTimeout(() => {
      if (!this.#unreported.delete(id)) return;
      this.#done.add(id);
      void this.#print(request);
    }, REPORT_MS).unref();
    return true;
  }

  async #print(request: RequestSummary): Promise<void> {
    const { json, body } = this.options;
    if (!body) return json ? print(jsonText(request, 0)) : this.#printLine(request);
    try {
      const { detail, messages } = await readDetail(this.tunnel, request.id);
      print(json ? jsonText({ ...detail, received: messages }, 0) : requestText(detail, messages));
    } catch (error) {
      // Forgotten meanwhile.
      note(printable(`request ${request.id}: ${messageOf(error)}`));
    }
  }

  #printLine(request: RequestSummary): void {
    const color = wantsColor(process.stdout, process.env);
    print(requestLine(request, { width: widthOf(process.stdout), color }));
  }

  async #switchOn(): Promise<void> {
    const { settings, url } = this.tunnel;
    const body = { duration_seconds: DURATION_S };
    await callAgent(settings, 'PUT /tunnels/{url_part}/inspection', { url_part: url, body });
    if (!this.#isOwn) void this.#renew();
    this.#isOwn = true;
  }

  async #renew(): Promise<void> {
    const signal = this.#stopped;
    for (;;) {
      await delay(RENEW_MS, undefined, { signal }).catch(() => {}); // stopped
      if (signal.aborted) return;
      // If this fails, the feed reports why.
      await this.#switchOn().catch(() => {});
    }
  }

  async #switchOff(): Promise<void> {
    this.#ended.abort();
    if (!this.#isOwn) return;
    const { settings, url } = this.tunnel;
    const ending = callAgent(settings, 'DELETE /tunnels/{url_part}/inspection', { url_part: url, deadlineMs: END_MS });
    await ending.catch((error: unknown) => {
      note(printable(`inspection ends within ${DURATION_S / 60} min: ${messageOf(error)}`));
    });
  }
}

export interface WatchOptions {
  method?: string;
  path?: string;
  status?: string;
  minDuration?: string;
  reveal?: boolean;
  json?: boolean;
  body?: boolean;
  show?: string;
  curl?: string;
  replay?: string;
  har?: string;
}

export interface WatchedTunnel {
  settings: Settings;
  url: string;
  /** Shows secrets, if they are asked for. */
  query: { reveal?: 'true' };
}

/** A captured request with its messages, if it has some. */
export async function readDetail(
  { settings, url, query }: WatchedTunnel,
  id: string,
  known?: RequestDetail,
): Promise<{ detail: RequestDetail; messages: MessageReport[] }> {
  const one = { url_part: url, id, query };
  const detail = known ?? (await callAgent(settings, 'GET /tunnels/{url_part}/requests/{id}', one));
  const messages =
    detail.messages > 0 ? await callAgent(settings, 'GET /tunnels/{url_part}/requests/{id}/messages', one) : [];
  return { detail, messages };
}
