import { ApiError } from '../../../lib/errors.ts';
import { devices } from '../../../management/resources/device.ts';
import { endpoints } from '../../../management/resources/endpoint.ts';
import type {
  GatewayHistoryQuery,
  HistoryAnswer,
  HistoryPoint,
  HistoryQuery,
  TopRequests,
} from '../../../management/resources/history.ts';
import { WRONG_VALUE } from '../../../management/resources/refusal.ts';
import { type HistorySubject, MINUTES } from '../../history/history-file.ts';
import { endingsOf, type HistoryStep as Point } from '../../history/history-points.ts';
import type { Frequent } from '../../history/top-lists.ts';
import { timestamp } from '../../store/store.ts';
import type { ApiContext } from '../api-context.ts';
import { found } from '../operation-router.ts';
import { badRequest } from '../request.ts';

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const STEPS = { minute: MINUTES.minutes, hour: MINUTES.hours, day: MINUTES.days } as const;
/** For how long each step is kept, in minutes. */
const KEPT = { minute: 180, hour: 30 * MINUTES.days, day: Number.POSITIVE_INFINITY } as const;
const DEFAULT_POINTS = 200;
const MAX_POINTS = 2_000;

/** What has happened at endpoints, devices and this gateway. */
export function historyActions(context: ApiContext) {
  const { store, live } = context;
  return {
    history: {
      get: ({ url, ...query }: GatewayHistoryQuery) =>
        read(
          context,
          url === undefined ? { kind: 'gateway', key: '' } : { kind: 'endpoint', key: url },
          query,
          '/history',
        ),
    },
    ofEndpoint: (id: string, query: HistoryQuery) => {
      const { url } = found(live.find.endpoint(id), endpoints);
      return read(context, { kind: 'endpoint', key: url }, query, `${endpoints.path}/${id}/history`);
    },
    topOfEndpoint: async (id: string): Promise<TopRequests> => {
      const { url } = found(live.find.endpoint(id), endpoints);
      if (!context.history) throw noHistory();
      const { since, requests, missed, paths, networks, statuses } = await context.history.top(url);
      const shown = (list: readonly Frequent[]) =>
        list.map(({ key, requests: most, excess }) => ({ value: key, requests: most, at_least: most - excess }));
      return {
        uri: context.links.to(`${endpoints.path}/${id}/top_requests`),
        ...{ since: timestamp(Math.max(since, Date.now() - HOUR_MS)), requests, not_looked_at: missed },
        ...{ paths: shown(paths), client_networks: shown(networks), statuses: shown(statuses) },
      };
    },
    ofDevice: (id: string, query: HistoryQuery) => {
      const device = found(store.devices.get(id), devices);
      return read(context, { kind: 'device', key: device.id }, query, `${devices.path}/${id}/history`);
    },
  };
}

async function read(
  { history, links, store }: ApiContext,
  of: Pick<HistorySubject, 'kind' | 'key'>,
  query: HistoryQuery,
  path: string,
): Promise<HistoryAnswer> {
  if (!history) throw noHistory();
  // Until the end of the minute that runs.
  const now = Math.floor(Date.parse(store.now()) / MINUTE_MS) + 1;
  const to = query.to === undefined ? now : Math.ceil(Date.parse(query.to) / MINUTE_MS);
  const from = query.from === undefined ? to - STEPS.day : Math.floor(Date.parse(query.from) / MINUTE_MS);
  if (from >= to) throw badRequest({ code: WRONG_VALUE, text: 'from: must be earlier than `to`' });
  const step = query.step ?? defaultStep(from, to, now);
  const minutes = STEPS[step];
  const first = from - (from % minutes);
  if ((to - first) / minutes > MAX_POINTS)
    throw badRequest({
      code: WRONG_VALUE,
      text: `step: more than ${MAX_POINTS} points; choose a longer step or less time`,
    });
  const { steps, longestOutage: outage } = await history.read(of, { from: first, to, step: minutes });
  const timeOf = (at: number) => timestamp(at * MINUTE_MS);
  return {
    uri: links.to(path),
    from: timeOf(first),
    to: timeOf(to),
    step,
    longest_outage: outage && {
      from: timestamp(outage.from * 1000),
      to: timestamp(outage.to * 1000),
      seconds: outage.seconds,
    },
    points: steps.map((point) => shown(point, timeOf(point.at))),
  };
}

function noHistory(): ApiError {
  return new ApiError(404, 'ERR_GATEWAY_NO_HISTORY', 'this gateway keeps no history: GATEWAY_HISTORY is 0');
}

function defaultStep(from: number, to: number, now: number): keyof typeof STEPS {
  const isFine = (step: 'minute' | 'hour') => (to - from) / STEPS[step] <= DEFAULT_POINTS && from >= now - KEPT[step];
  return isFine('minute') ? 'minute' : isFine('hour') ? 'hour' : 'day';
}

function shown({ known, online, away, machine, values }: Point, at: string): HistoryPoint {
  const { s1xx, s2xx, s3xx, s4xx, s5xx, refused, failed } = endingsOf(values);
  const [p50, p95, p99] = [0.5, 0.95, 0.99].map((share) => values.latency(share));
  return {
    ...{ at, known_seconds: known, online_seconds: online, requests: values.requests },
    ...{ informational: s1xx, successful: s2xx, redirections: s3xx, client_errors: s4xx, server_errors: s5xx },
    ...{ refused, refused_by: values.refusals, failed },
    ...{ received_bytes: values.received, sent_bytes: values.sent, reconnects: values.reconnects },
    ...{ sessions_ended: values.sessionsEnded, away_seconds: away },
    away_machine: machine && {
      ...{ temperature_celsius: machine[0], available_memory_bytes: machine[1] },
      ...{ available_disk_bytes: machine[2], wireless_signal_dbm: machine[3] },
    },
    latency_ms: p50 == null || p95 == null || p99 == null ? null : { p50, p95, p99 },
  };
}
