import { computed, type ReadonlySignal, type Signal, signal } from '@preact/signals';
import type {
  InspectionReport,
  RequestDetail,
  RequestSummary,
  RequestsChange,
  RequestsSnapshot,
} from '../../../agent/api/inspection/inspection-reports.ts';
import { matcherOf, STATUS_FILTER } from '../../../agent/api/inspection/shown-requests.ts';
import { call } from '../../ui/api.ts';
import { connectLive, type LiveConnection } from '../../ui/live-connection.ts';
import { queryInAddress } from '../../ui/router.ts';
import { session } from '../model.ts';

/** The captured requests of a tunnel, as the page has received them. */
export interface TrafficModel {
  /** The address of the tunnel in the API. */
  readonly path: string;
  /** File with the CA of an embedded gateway, for curl; null: the gateway is elsewhere. */
  readonly ca: string | null;
  readonly connection: LiveConnection;
  /** Null before the first event. */
  readonly inspection: ReadonlySignal<InspectionReport | null>;
  readonly filter: Signal<RequestFilter>;
  /** Those that match the filter, newest first. */
  readonly matching: ReadonlySignal<readonly RequestSummary[]>;
  /** Whether the agent may hold older ones that match. */
  readonly hasOlder: ReadonlySignal<boolean>;
  request(id: string): RequestSummary | undefined;
  /** Asks the agent for older ones. */
  loadOlder(): Promise<void>;
  /** Takes a request that the agent told of in another way, such as a replay. */
  add(request: RequestDetail): void;
}

/** The newest stay on the page; the agent has the others. */
const MAX_HELD = 2_000;
const PAGE = 200;

/**
 * Opens the live feed of a tunnel's requests.
 *
 * @param url of the tunnel
 * @param ca see {@link TrafficModel}
 */
export function openTraffic(url: string, ca: string | null): TrafficModel {
  const path = `/tunnels/${encodeURIComponent(url)}`;
  const inspection = signal<InspectionReport | null>(null);
  const byId = signal<ReadonlyMap<string, RequestSummary>>(new Map());
  const filter = signal(filterOf(queryInAddress()));
  /** How far back the page has all requests, whatever the filter. */
  let complete: string | undefined;
  /** How far back the page has all those that match a filter; an undefined id: the agent has no older ones. */
  const reached = signal<{ filter: RequestFilter; id: string | undefined } | null>(null);
  /** How often what the page holds was replaced or cut. */
  let starts = 0;
  const newestFirst = computed(() => [...byId.value.values()].sort((a, b) => Number(b.id) - Number(a.id)));
  const merge = (requests: readonly RequestSummary[], removed: readonly string[] = []) => {
    const next = new Map(byId.value);
    for (const id of removed) next.delete(id);
    for (const request of requests) next.set(request.id, request);
    byId.value = next;
  };
  const startWith = (requests: readonly RequestSummary[]) => {
    byId.value = new Map(requests.map((request) => [request.id, request]));
    complete = requests.at(-1)?.id;
    reached.value = null;
    starts++;
  };
  const connection = connectLive({
    path: `${path}/requests/events`,
    on: {
      snapshot: (data) => {
        const snapshot = data as RequestsSnapshot;
        inspection.value = snapshot.inspection;
        startWith(snapshot.requests);
      },
      change: (data) => {
        const change = data as RequestsChange;
        if (change.inspection) inspection.value = change.inspection;
        if (!change.requests && !change.removed) return;
        merge(change.requests ?? [], change.removed);
        if (byId.value.size > MAX_HELD) startWith(newestFirst.value.slice(0, MAX_HELD));
      },
    },
    shouldRetry: () => session.mayCall(),
  });
  return {
    path,
    ca,
    connection,
    inspection,
    filter,
    matching: computed(() => newestFirst.value.filter(matches(filter.value))),
    hasOlder: computed(() => {
      const isExhausted = reached.value?.filter === filter.value && reached.value.id === undefined;
      return (inspection.value?.requests ?? 0) > byId.value.size && !isExhausted;
    }),
    request: (id) => byId.value.get(id),
    loadOlder: async () => {
      const asked = filter.value;
      const query = trafficQuery(asked);
      query.set('limit', String(PAGE));
      const before = reached.value?.filter === asked ? reached.value.id : complete;
      if (before !== undefined) query.set('before', before);
      const asOf = starts;
      const older = await call<RequestSummary[]>('GET', `${path}/requests?${query}`);
      // They follow requests that the page no longer has.
      if (starts !== asOf) return;
      const id = older.length < PAGE ? undefined : older.at(-1)?.id;
      reached.value = { filter: asked, id };
      if (trafficQuery(asked).size === 0) complete = older.at(-1)?.id ?? complete;
      merge(older);
    },
    add: (request) => merge([request]),
  };
}

export interface RequestFilter {
  /** Empty: any. */
  readonly method: string;
  /** Contained in path and query, in any case. */
  readonly path: string;
  /** `404`, `5xx`, `none` without a response, or `any`. */
  readonly status: string;
  readonly minDurationMs: number;
}

/** Whether the filter shows a request, by the rules of the agent's API. */
export function matches({ method, path, status, minDurationMs }: RequestFilter): (request: RequestSummary) => boolean {
  const match = matcherOf({
    method: method || undefined,
    path,
    status: status === 'any' ? undefined : status,
    min_duration_ms: minDurationMs,
  });
  return (request) => match({ ...request, durationMs: request.duration_ms });
}

/** The filter as the API's query, which is the one in the page's address, too. */
export function trafficQuery({ method, path, status, minDurationMs }: RequestFilter): URLSearchParams {
  return new URLSearchParams({
    ...(method !== '' && { method }),
    ...(path !== '' && { path }),
    ...(status !== 'any' && { status }),
    ...(minDurationMs > 0 && { min_duration_ms: String(minDurationMs) }),
  });
}

/** The filter of a query; what is not valid is left out. */
export function filterOf(query: URLSearchParams): RequestFilter {
  const status = query.get('status') ?? '';
  const duration = Number(query.get('min_duration_ms'));
  return {
    method: query.get('method') ?? '',
    path: query.get('path') ?? '',
    status: STATUS_FILTER.test(status) ? status : 'any',
    minDurationMs: duration > 0 ? duration : 0,
  };
}
