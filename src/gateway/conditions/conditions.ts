import { messageOf } from '../../lib/errors.ts';
import { diskSpace, FREE_SPACE } from '../../lib/files/disk-space.ts';
import { clientNetwork } from '../../lib/network/ip-address.ts';
import type { RecentCounts } from '../../lib/time/recent-failures.ts';
import { CONDITION_IDS, CONDITIONS, type ConditionId } from '../../management/condition-kinds.ts';
import type { ConditionSubject, LiveView, ReportedCondition } from '../endpoints/live-view.ts';
import type { LabeledUpstream, Labels, OnlineEndpoint } from '../endpoints/online-endpoint.ts';
import type { EdgeCounters } from '../metrics/edge-counters.ts';
import { stoppedVersions } from '../store/agent-updates.ts';
import type { TroubledName } from '../store/domains.ts';
import { lastBackup } from '../store/last-backup.ts';
import { lostCommits } from '../store/lost-commits.ts';
import { type Store, timestamp } from '../store/store.ts';

/** Something that the gateway's operator should mend: what is wrong, and what to do. */
export interface Condition extends ReportedCondition {
  readonly id: ConditionId;
}

/** What the conditions are read from. Reading is cheap: pages and Prometheus do it every few seconds. */
export interface ConditionSources {
  readonly store: Pick<
    Store,
    | 'database'
    | 'devices'
    | 'siteNames'
    | 'ownDomains'
    | 'reservedDomains'
    | 'eventDeliveries'
    | 'eventDestinations'
    | 'now'
  >;
  readonly live: Pick<LiveView, 'gateways' | 'sessions'>;
  /** What is online here. */
  readonly endpoints: {
    list(): readonly (Pick<OnlineEndpoint, 'url' | 'traffic'> & Partial<Pick<OnlineEndpoint, 'owner'>>)[];
    labeled(): readonly (Pick<LabeledUpstream, 'labels' | 'traffic'> & Partial<Pick<LabeledUpstream, 'owner'>>)[];
  };
  readonly counters: Pick<EdgeCounters, 'recentResponses' | 'descriptorsExhaustedAt'>;
  /** Of events that are no changes; times here are in milliseconds of `performance.now()`. */
  readonly activity: { readonly lostAt: number };
  readonly dataDir: string;
  /** What devices can install from here, the newest first; `missing`: a file that is not there, or not whole. */
  readonly releases: () => readonly {
    readonly version: string;
    readonly expires: string;
    readonly missing: string | null;
  }[];
  /** Why the shared database cannot be used; null: it can, or there is none. */
  readonly databaseAway: () => string | null;
  /** The gateway through which the shared database is reached, and why not directly; null: it is, or not at all. */
  readonly databaseDetour: () => { readonly through: string; readonly reason: string } | null;
  /** Whether no gateway has done for a while what only one of several does. */
  readonly hasNoPrimary: () => boolean;
  readonly hasDailyBackups: boolean;
}

type Problem = Pick<Condition, 'message' | 'remedy' | 'subjects'>;
type Probe = (sources: ConditionSources) => Problem | null | Promise<Problem | null>;

/** How long something that has happened counts. */
const RECENT_MS = 10 * 60_000;
const DAY_MS = 86_400_000;
/** A daily backup may take a while, and a day may have 25 hours. */
const BACKUP_MS = 26 * 3_600_000;
/** A certificate that is still in use so long before its end was not renewed: they are after two thirds of their lifetime. */
const SOON_MS = 14 * DAY_MS;
const SOON_SHARE = 1 / 6;
/** An operator has so long to have a manifest of a release renewed. */
const RELEASE_SOON_MS = 5 * DAY_MS;
/** With fewer, a share says nothing. */
const MIN_RESPONSES = 10;
const MIN_ERRORS = 3;
const ERROR_SHARE = 1 / 5;
const FAILING_SHARE = 1 / 2;
/** As devices warn of it. */
const WARNED_PERCENT = 80;
/** Names in a message; it counts the others. */
const MAX_NAMES = 3;

const PROBES = {
  disk: diskProblem,
  shared_database: sharedDatabaseProblem,
  commits_lost: commitsProblem,
  no_primary: primaryProblem,
  own_certificate: ({ store }) => certificateProblem(store, store.ownDomains),
  file_descriptors: descriptorProblem,
  server_errors: responseProblem,
  device_offline: deviceProblem,
  data_budget: budgetProblem,
  shared_database_detour: detourProblem,
  upstream: upstreamProblem,
  domain_certificate: ({ store }) => certificateProblem(store, store.reservedDomains),
  gateway_silent: silentProblem,
  update_stopped: stoppedProblem,
  release: releaseProblem,
  event_destination: destinationProblem,
  events_lost: lostProblem,
  backup: backupProblem,
} satisfies Record<ConditionId, Probe>;

/** What each gateway sees of itself alone. All others are seen by any gateway. */
const OF_ONE_GATEWAY: readonly string[] = [
  'disk',
  'shared_database',
  'file_descriptors',
  'server_errors',
  'data_budget',
  'shared_database_detour',
  'upstream',
  'events_lost',
  'release',
  'backup',
] satisfies ConditionId[];

/** Whether a condition of another gateway says what this one cannot see itself. */
export function isOfOneGateway(id: string): boolean {
  return OF_ONE_GATEWAY.includes(id);
}

/** Subjects that another gateway receives. */
const MAX_REPORTED = 100;

/** What another gateway receives: no more than it needs. */
export function reportedConditions(present: readonly Condition[]): ReportedCondition[] {
  return present.map(({ subjects, ...condition }) => ({
    ...condition,
    ...(subjects && isOfOneGateway(condition.id) && { subjects: subjects.slice(0, MAX_REPORTED) }),
  }));
}

/** Without what it concerns: a message names the first of that. */
export function shownCondition<C extends ReportedCondition>({ subjects: _, ...condition }: C): Omit<C, 'subjects'> {
  return condition;
}

/** What is wrong now, the worst first. */
export async function presentConditions(sources: ConditionSources): Promise<readonly Condition[]> {
  const all = await Promise.all(
    CONDITION_IDS.map(async (id): Promise<Condition[]> => {
      const problem = await attempt(() => PROBES[id](sources));
      return problem === null ? [] : [{ id, severity: CONDITIONS[id].severity, ...problem }];
    }),
  );
  return all.flat();
}

/** What cannot be looked at is wrong, too, and must not hide the rest. */
async function attempt(probe: () => Problem | null | Promise<Problem | null>): Promise<Problem | null> {
  try {
    return await probe();
  } catch (error) {
    return { message: `cannot be checked: ${messageOf(error)}`, remedy: "see the gateway's log" };
  }
}

async function diskProblem({ store: { database }, dataDir }: ConditionSources): Promise<Problem | null> {
  const unwritable = await database.whyUnwritable();
  if (unwritable !== null) {
    const restart = database.unwritable === null ? '' : ', then restart the gateway';
    return { message: `all changes are rejected: ${unwritable.what}`, remedy: unwritable.advice + restart };
  }
  const { shortage } = await diskSpace(dataDir);
  return shortage === null ? null : { message: `the disk of DATA_DIR is nearly full: ${shortage}`, remedy: FREE_SPACE };
}

function sharedDatabaseProblem({ databaseAway }: ConditionSources): Problem | null {
  const away = databaseAway();
  if (away === null) return null;
  return {
    message: `the shared database cannot be used, so all changes are rejected: ${away}`,
    remedy: 'check PostgreSQL and the network; device-agent gateway doctor says more',
  };
}

function commitsProblem({ store: { database, now } }: ConditionSources): Problem | null {
  const lost = lostCommits(database);
  if (lost === null || Date.parse(now()) - Date.parse(lost.found) >= DAY_MS) return null;
  const { commits, isLeast, since, found } = lost;
  const count = `${isLeast ? 'at least ' : ''}${commits} ${commits === 1 ? 'commit' : 'commits'}`;
  return {
    message: `the shared database was put back to an older state at ${found}: it lacks ${count}${since === null ? '' : `, the first one of ${since}`}`,
    remedy: 'make these changes again; synchronous replication prevents that a standby lacks some',
  };
}

function detourProblem({ databaseDetour }: ConditionSources): Problem | null {
  const detour = databaseDetour();
  if (detour === null) return null;
  return {
    message: `this gateway reaches the shared database only through the gateway ${detour.through}: ${detour.reason}`,
    remedy: 'check the network between this gateway and PostgreSQL, and GATEWAY_DATABASE_URL',
  };
}

function primaryProblem({ hasNoPrimary, databaseAway }: ConditionSources): Problem | null {
  // Without the database, none can become it.
  if (!hasNoPrimary() || databaseAway() !== null) return null;
  return {
    message: 'no gateway is the primary node: certificates are not renewed, and events wait',
    remedy: 'start a gateway that is not draining; the log says "primary node not chosen" where one cannot become it',
  };
}

/** Devices that have joined, were online, and are not. */
function deviceProblem({ store: { devices }, live }: ConditionSources): Problem | null {
  const online = live.sessions().flatMap(({ credentialId }) => credentialId ?? []);
  const offline = devices.offline(online);
  if (offline.length === 0) return null;
  return {
    message: `devices are offline: ${listed(offline.map(({ name, site }) => `${name} at ${site}`))}`,
    remedy: CONDITIONS.device_offline.remedy,
    subjects: offline.map(({ id: key, name, site, labels, since, ip }) => ({
      ...{ key, name, site, labels, message: `offline since ${since}`, since, network: clientNetwork(ip ?? '') },
    })),
  };
}

/** Devices that are online and have used four fifths of their data budget. */
function budgetProblem({ store: { devices }, live }: ConditionSources): Problem | null {
  const near = live.sessions().filter(({ budgetPercent = 0 }) => budgetPercent >= WARNED_PERCENT);
  if (near.length === 0) return null;
  const subjects = near.map(({ id, credentialId, budgetPercent = 0, ip }) => {
    const device = credentialId === null ? null : devices.byCredential(credentialId);
    const message = `${budgetPercent} % of its data budget are used`;
    const known = device && { key: device.id, name: device.name, site: device.site, labels: device.labels };
    return { ...(known ?? { key: credentialId ?? id, name: credentialId ?? ip, site: null }), message };
  });
  return {
    message: `devices have nearly used up their data budgets: ${listed(subjects.map(({ name }) => name))}`,
    remedy: CONDITIONS.data_budget.remedy,
    subjects,
  };
}

function certificateProblem(
  { now, siteNames }: Pick<Store, 'now' | 'siteNames'>,
  table: { troubled(before: string): TroubledName[] },
): Problem | null {
  const at = Date.parse(now());
  const troubled = table
    .troubled(timestamp(at + SOON_MS))
    .filter(({ msg, begins, ends }) => msg !== null || endsSoon(begins, ends, at));
  const [first] = troubled;
  if (first === undefined) return null;
  const names = listed(troubled.map(({ domain }) => domain));
  return {
    message: `certificates need attention: ${names}: ${reasonOf(first, at)}`,
    remedy: 'device-agent gateway doctor says why each one is not renewed; replace an uploaded one with a new upload',
    subjects: troubled.map((each) => ({
      ...{ key: each.domain, name: each.domain, site: siteOf(each.domain, siteNames), message: reasonOf(each, at) },
    })),
  };
}

function endsSoon(begins: string | null, ends: string | null, now: number): boolean {
  if (ends === null) return false;
  const end = Date.parse(ends);
  const lifetime = begins === null ? Number.POSITIVE_INFINITY : end - Date.parse(begins);
  return end - now < Math.min(SOON_MS, lifetime * SOON_SHARE);
}

function reasonOf({ msg, ends }: TroubledName, now: number): string {
  const validity = ends === null ? null : `${Date.parse(ends) <= now ? 'it expired' : 'it expires'} at ${ends}`;
  return [msg, validity].filter((part) => part !== null).join('; ');
}

function descriptorProblem({ counters }: ConditionSources): Problem | null {
  if (!isRecent(counters.descriptorsExhaustedAt)) return null;
  return {
    message: 'no file descriptor was left, so new connections were closed',
    remedy: 'raise the limit of open files of the service (LimitNOFILE=), or of this machine',
  };
}

function responseProblem({ counters: { recentResponses: recent } }: ConditionSources): Problem | null {
  if (recent.total < MIN_RESPONSES || recent.failed <= recent.total * ERROR_SHARE) return null;
  return {
    message: `${percent(recent)} of the last ${recent.total} responses to clients were errors (5xx)`,
    remedy: 'the endpoints with errors are in the list of endpoints; start their upstreams',
  };
}

function upstreamProblem({ endpoints, store }: ConditionSources): Problem | null {
  const all = [
    ...endpoints.list().map(({ url, traffic, owner }) => ({ name: url, recent: traffic.recent, owner })),
    // Those behind TLS edges have no URL.
    ...endpoints
      .labeled()
      .map(({ labels, traffic, owner }) => ({ name: labelText(labels), recent: traffic.recent, owner })),
  ];
  const isFailing = ({ total, failed }: RecentCounts) => failed >= MIN_ERRORS && failed >= total * FAILING_SHARE;
  const failing = all.filter(({ recent }) => isFailing(recent));
  const [first] = failing;
  if (first === undefined) return null;
  const words = ({ failed, total }: RecentCounts) => `${failed} of the last ${total} requests`;
  const subjects = new Map(
    failing.map(({ name, recent, owner }): [string, ConditionSubject] => {
      const device = owner ? store.devices.byCredential(owner.credential.id) : null;
      const host = URL.canParse(name) ? new URL(name).hostname : '';
      const site = device?.site ?? siteOf(host, store.siteNames);
      const message = `refuses connections or answers 5xx (${words(recent)})`;
      return [name, { key: name, name, site, message, ...(device && { labels: device.labels }) }];
    }),
  );
  return {
    message: `upstreams refuse connections or answer 5xx: ${listed([...subjects.keys()])} (${words(first.recent)})`,
    remedy: 'start the upstream, or change what the tunnel forwards to; device-agent doctor on the device says more',
    subjects: [...subjects.values()],
  };
}

/** The site that a name belongs to; null: none. */
function siteOf(name: string, siteNames: Store['siteNames']): string | null {
  for (let at = name.indexOf('.'); at >= 0; at = name.indexOf('.', at + 1)) {
    const domain = name.slice(at + 1);
    if (siteNames.isSite(domain)) return domain;
  }
  return null;
}

function silentProblem({ live }: ConditionSources): Problem | null {
  const silent = live.gateways?.().filter(({ state }) => state === 'silent') ?? [];
  if (silent.length === 0) return null;
  return {
    message: `silent gateways: ${listed(silent.map(({ address }) => address))}`,
    remedy: 'check that they run and reach the shared database; device-agent gateway nodes remove forgets a lost one',
    subjects: silent.map(({ address }) => ({ key: address, name: address, site: null })),
  };
}

function stoppedProblem({ store: { database } }: ConditionSources): Problem | null {
  const [first, ...more] = stoppedVersions(database).filter(({ isDecided }) => !isDecided);
  if (first === undefined) return null;
  const others = more.length > 0 ? `; so are ${listed(more.map(({ version }) => version))}` : '';
  return {
    message: `automatic updates of devices to version ${first.version} are stopped: ${first.reason}${others}`,
    remedy: `look at one of the devices (journalctl -u device-agent-update); then device-agent gateway releases resume ${first.version}, or stop ${first.version} for good`,
  };
}

function releaseProblem({ store, releases }: ConditionSources): Problem | null {
  const offered = releases();
  const incomplete = offered.find(({ missing }) => missing !== null);
  if (incomplete !== undefined) {
    const { version, missing } = incomplete;
    return {
      message: `devices cannot update to version ${version}: ${missing} is missing here`,
      remedy: addAgain(version),
    };
  }
  const until = Date.parse(store.now()) + RELEASE_SOON_MS;
  const [newest] = offered;
  if (newest === undefined || Date.parse(newest.expires) > until) return null;
  return {
    message: `devices do not take version ${newest.version} as the newest one after ${newest.expires}`,
    remedy: addAgain(newest.version),
  };
}

const addAgain = (version: string): string =>
  `run device-agent gateway releases add --to ${version}, or add a newer one; or device-agent gateway releases remove ${version}`;

function destinationProblem({ store }: ConditionSources): Problem | null {
  const failing = store.eventDeliveries.where('failing_since IS NOT NULL ORDER BY failing_since', []);
  const [first] = failing;
  if (first === undefined) return null;
  const addresses = failing.map(({ id }) => store.eventDestinations.get(id)?.address ?? id);
  const skipped = failing.reduce((sum, row) => sum + row.skipped, 0);
  const lost = skipped === 0 ? '' : `; ${skipped} events were too old to be kept`;
  return {
    message: `events are not delivered to ${listed(addresses)} since ${first.failing_since}: ${first.error}${lost}`,
    remedy: 'fix the receiver, or change the target; events wait until then',
    subjects: failing.map(({ id, failing_since, error }, place) => ({
      ...{ key: id, name: addresses[place] ?? id, site: null, message: `since ${failing_since}: ${error}` },
    })),
  };
}

function lostProblem({ activity }: ConditionSources): Problem | null {
  if (!isRecent(activity.lostAt)) return null;
  return {
    message: 'events were lost: there were more than the gateway could record',
    remedy: "see the gateway's log; leave out types of events in the subscriptions that you do not need",
  };
}

function backupProblem({ store, hasDailyBackups }: ConditionSources): Problem | null {
  if (!hasDailyBackups) return null;
  const last = lastBackup(store.database);
  if (last !== null && Date.parse(store.now()) - Date.parse(last) < BACKUP_MS) return null;
  return {
    message: last === null ? 'no backup was made yet' : `the last backup is of ${last}`,
    remedy: 'see "backup failed" in the log of the gateway, and the folder in GATEWAY_BACKUPS',
  };
}

function isRecent(at: number): boolean {
  return performance.now() - at < RECENT_MS;
}

function labelText(labels: Labels): string {
  return Object.entries(labels)
    .map(([name, value]) => `${name}=${value}`)
    .join(',');
}

function percent({ failed, total }: RecentCounts): string {
  return `${Math.round((100 * failed) / total)} %`;
}

function listed(names: readonly string[]): string {
  const more = names.length - MAX_NAMES;
  const shown = names.slice(0, MAX_NAMES).join(', ');
  return more > 0 ? `${shown} and ${more} more` : shown;
}
