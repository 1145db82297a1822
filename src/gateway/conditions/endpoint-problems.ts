import type { RecentCounts } from '../../lib/time/recent-failures.ts';
import type { ConditionSubject } from '../endpoints/live-view.ts';
import type { LabeledUpstream, Labels, OnlineEndpoint } from '../endpoints/online-endpoint.ts';
import { type EndpointTraffic, latencyOf } from '../endpoints/traffic-counts.ts';
import type { EdgeCounters } from '../metrics/edge-counters.ts';
import type { Store } from '../store/store.ts';
import { type Detected, listed, siteOf } from './detected.ts';

/** What the problems of endpoints are read from. */
export interface EndpointSources {
  readonly store: Pick<Store, 'devices' | 'siteNames'>;
  /** What is online here. */
  readonly endpoints: {
    list(): readonly (Pick<OnlineEndpoint, 'url' | 'traffic'> & Partial<Pick<OnlineEndpoint, 'owner'>>)[];
    labeled(): readonly (Pick<LabeledUpstream, 'labels' | 'traffic'> & Partial<Pick<LabeledUpstream, 'owner'>>)[];
  };
  readonly counters: Pick<EdgeCounters, 'recentResponses'>;
  /** From which latency on an endpoint is slow, in milliseconds; 0: from none on. */
  readonly latencyLimitMs: number;
}

/** With fewer, a share says nothing. */
const MIN_RESPONSES = 10;
const ERROR_SHARE = 1 / 5;
/** An upstream that does not work, and one that often does not. */
const BROKEN = { minErrors: 3, share: 1 / 2 };
const UNRELIABLE = { minErrors: 5, share: 1 / 10 };

export function responseProblem({ counters: { recentResponses: recent } }: EndpointSources): Detected | null {
  if (recent.total < MIN_RESPONSES || recent.failed <= recent.total * ERROR_SHARE) return null;
  return { message: `${percent(recent)} of the last ${recent.total} responses to clients were errors (5xx)` };
}

export function upstreamProblem(sources: EndpointSources): Detected | null {
  const reaches = ({ failed, total }: RecentCounts, { minErrors, share }: typeof BROKEN) =>
    failed >= minErrors && failed >= total * share;
  const failing = subjectsOf(sources, ({ recent }) =>
    reaches(recent, BROKEN) || reaches(recent, UNRELIABLE)
      ? `${recent.failed} of the last ${recent.total} requests`
      : null,
  );
  const [first] = failing;
  if (first === undefined) return null;
  return {
    message: `upstreams refuse connections or answer 5xx: ${listed(failing.map(({ name }) => name))} (${first.message})`,
    subjects: failing.map((each) => ({ ...each, message: `refuses connections or answers 5xx (${each.message})` })),
  };
}

export function latencyProblem(sources: EndpointSources): Detected | null {
  const { latencyLimitMs: limit } = sources;
  if (limit === 0) return null;
  const slow = subjectsOf(sources, ({ recentLatency: classes }) => {
    const total = classes.reduce((sum, each) => sum + each, 0);
    const median = total < MIN_RESPONSES ? null : latencyOf(classes, 1 / 2);
    return median === null || median < limit
      ? null
      : `half of the last ${total} responses took about ${seconds(median)} or longer`;
  });
  const [first] = slow;
  if (first === undefined) return null;
  const names = listed(slow.map(({ name }) => name));
  return { message: `endpoints answer slowly: ${names}: ${first.message}`, subjects: slow };
}

/** The endpoints that something is said about. @param say null: nothing */
function subjectsOf(
  { endpoints, store, latencyLimitMs }: EndpointSources,
  say: (traffic: EndpointTraffic) => string | null,
): (ConditionSubject & { message: string })[] {
  const isTroubled = ({ traffic }: { traffic: EndpointTraffic }) => traffic.hasHadTrouble(latencyLimitMs);
  const all = [
    ...endpoints
      .list()
      .filter(isTroubled)
      .map(({ url, traffic, owner }) => ({ name: url, traffic, owner })),
    // Those behind TLS edges have no URL.
    ...endpoints
      .labeled()
      .filter(isTroubled)
      .map(({ labels, traffic, owner }) => ({ name: labelText(labels), traffic, owner })),
  ];
  const subjects = new Map<string, ConditionSubject & { message: string }>();
  for (const { name, traffic, owner } of all) {
    const message = say(traffic);
    if (message === null) continue;
    const device = owner ? store.devices.byCredential(owner.credential.id) : null;
    const host = URL.canParse(name) ? new URL(name).hostname : '';
    const site = device?.site ?? siteOf(host, store.siteNames);
    subjects.set(name, { key: name, name, site, message, ...(device && { labels: device.labels }) });
  }
  return [...subjects.values()];
}

const seconds = (ms: number): string => (ms < 1000 ? `${ms} ms` : `${(ms / 1000).toFixed(1)} s`);

function labelText(labels: Labels): string {
  return Object.entries(labels)
    .map(([name, value]) => `${name}=${value}`)
    .join(',');
}

function percent({ failed, total }: RecentCounts): string {
  return `${Math.round((100 * failed) / total)} %`;
}
