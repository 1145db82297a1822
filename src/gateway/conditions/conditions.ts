import { X509Certificate } from 'node:crypto';
import { messageOf } from '../../lib/errors.ts';
import { diskSpace, FREE_SPACE } from '../../lib/files/disk-space.ts';
import { clientNetwork } from '../../lib/network/ip-address.ts';
import { caIdOf } from '../../lib/tls/pinned-chain.ts';
import { CONDITION_IDS, CONDITIONS, type ConditionId } from '../../management/condition-kinds.ts';
import type { ConditionSubject, LiveView, ReportedCondition } from '../endpoints/live-view.ts';
import type { EdgeCounters } from '../metrics/edge-counters.ts';
import { stoppedVersions } from '../store/agent-updates.ts';
import { endsSoon, LATE_MS, type TroubledName, waitingRevocation } from '../store/domains.ts';
import { lastBackup } from '../store/last-backup.ts';
import { lostCommits } from '../store/lost-commits.ts';
import { type Store, timestamp } from '../store/store.ts';
import { type Undecryptable, undecryptableCounts } from '../store/stored-secrets.ts';
import { failedUpdate, GivenUpUpdate, parseFact, UPDATE_GIVEN_UP } from '../store/update-facts.ts';
import { type Detected, listed, siteOf } from './detected.ts';
import { type EndpointSources, latencyProblem, responseProblem, upstreamProblem } from './endpoint-problems.ts';

/** Something that the gateway's operator should mend: what is wrong, and what to do. */
export interface Condition extends ReportedCondition {
  readonly id: ConditionId;
}

/** What the conditions are read from. Reading is cheap: pages and Prometheus do it every few seconds. */
export interface ConditionSources extends EndpointSources {
  readonly store: Pick<
    Store,
    | 'database'
    | 'devices'
    | 'agentUpdates'
    | 'credentials'
    | 'siteNames'
    | 'ownDomains'
    | 'reservedDomains'
    | 'certificateAuthorities'
    | 'eventDeliveries'
    | 'eventDestinations'
    | 'now'
  >;
  readonly live: Pick<LiveView, 'gateways' | 'find'>;
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
  /** What the encryption key does not decrypt; null: everything is fine. */
  readonly undecryptable: () => Undecryptable | null;
  /** The CA that comes after the present one, with times in RFC 3339; null: it is not being changed. */
  readonly nextCa: () => { readonly id: string; readonly since: string; readonly endsAt: string | null } | null;
  /** PEM of every certificate that the gateway's own CAs have had, also before they were renewed. */
  readonly ownCas: () => readonly string[];
  /** The version of this program. */
  readonly runs: string;
  /** Endpoints that this gateway has asked as clients do, and not reached; left out: it asks none. */
  readonly unreached?: () => readonly Unreached[];
}

/** An endpoint that is online, and that clients do not reach. */
export interface Unreached {
  readonly url: string;
  /** Of the agent that has bound it; null: none has. */
  readonly credentialId: string | null;
  /** What broke. */
  readonly stage: string;
  readonly message: string | null;
  /** RFC 3339. */
  readonly since: string;
}

type Found = Detected | null | Promise<Detected | null>;
type Probe = (sources: ConditionSources) => Found;

/** How long something that has happened counts. */
const RECENT_MS = 10 * 60_000;
const DAY_MS = 86_400_000;
/** A daily backup may take a while, and a day may have 25 hours. */
const BACKUP_MS = 26 * 3_600_000;
/** Clients need other certificates by then, which takes an operator weeks. */
const AUTHORITY_SOON_MS = 30 * DAY_MS;
/** The gateway renews its CA two years before its end. */
const CA_LATE_MS = 365 * DAY_MS;
/** Copies of `ca.pem` are with people whom the operator has to reach. */
const CA_COPY_SOON_MS = 60 * DAY_MS;
/** Clients that still have a copy then have told the operator. */
const CA_COPY_ENDED_MS = 30 * DAY_MS;
/** An operator has so long to have a manifest of a release renewed. */
const RELEASE_SOON_MS = 5 * DAY_MS;
/** Who has done nothing about a failed update by then does nothing. */
const FAILED_UPDATE_MS = 7 * DAY_MS;
/** A device asks once a day which CAs its gateway has, on a metered link once a week. */
const FOLLOWED_MS = 8 * DAY_MS;
/** As devices warn of it. */
const WARNED_PERCENT = 80;

const PROBES = {
  disk: diskProblem,
  shared_database: sharedDatabaseProblem,
  commits_lost: commitsProblem,
  encryption_key: keyProblem,
  no_primary: primaryProblem,
  own_certificate: ({ store }) => certificateProblem(store, store.ownDomains),
  file_descriptors: descriptorProblem,
  server_errors: responseProblem,
  device_offline: deviceProblem,
  data_budget: budgetProblem,
  shared_database_detour: detourProblem,
  upstream: upstreamProblem,
  latency: latencyProblem,
  endpoint_unreachable: unreachedProblem,
  domain_certificate: ({ store }) => certificateProblem(store, store.reservedDomains),
  client_authority: authorityProblem,
  ca_change: caProblem,
  own_ca: ownCaProblem,
  gateway_silent: silentProblem,
  update_stopped: stoppedProblem,
  update_failed: updateProblem,
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
  'latency',
  'endpoint_unreachable',
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
      const { severity, remedy } = CONDITIONS[id];
      return problem === null ? [] : [{ id, severity, remedy, ...problem }];
    }),
  );
  return all.flat();
}

/** What cannot be looked at is wrong, too, and must not hide the rest. */
async function attempt(probe: () => Found): Promise<Detected | null> {
  try {
    return await probe();
  } catch (error) {
    return { message: `cannot be checked: ${messageOf(error)}`, remedy: "see the gateway's log" };
  }
}

async function diskProblem({ store: { database }, dataDir }: ConditionSources): Promise<Detected | null> {
  const unwritable = await database.whyUnwritable();
  if (unwritable !== null) {
    const restart = database.unwritable === null ? '' : ', then restart the gateway';
    return { message: `all changes are rejected: ${unwritable.what}`, remedy: unwritable.advice + restart };
  }
  const { shortage } = await diskSpace(dataDir);
  return shortage === null ? null : { message: `the disk of DATA_DIR is nearly full: ${shortage}`, remedy: FREE_SPACE };
}

function sharedDatabaseProblem({ databaseAway }: ConditionSources): Detected | null {
  const away = databaseAway();
  if (away === null) return null;
  return {
    message: `the shared database cannot be used, so all changes are rejected: ${away}`,
  };
}

function commitsProblem({ store: { database, now } }: ConditionSources): Detected | null {
  const lost = lostCommits(database);
  if (lost === null || Date.parse(now()) - Date.parse(lost.found) >= DAY_MS) return null;
  const { commits, isLeast, since, found } = lost;
  const count = `${isLeast ? 'at least ' : ''}${commits} ${commits === 1 ? 'commit' : 'commits'}`;
  return {
    message: `the shared database was put back to an older state at ${found}: it lacks ${count}${since === null ? '' : `, the first one of ${since}`}`,
  };
}

/** Devices that are online have followed by then; what matters is when they are lost. */
function caProblem({ store, nextCa }: ConditionSources): Detected | null {
  const next = nextCa();
  if (next === null || Date.parse(store.now()) - Date.parse(next.since) < FOLLOWED_MS) return null;
  const missing = store.devices.notTrusting(next.id);
  if (missing.length === 0) return null;
  const end = next.endsAt === null ? 'ends' : `ends at ${next.endsAt}`;
  const names = missing.map(({ name, site }) => `${name}.${site}`);
  const devices = missing.length === 1 ? '1 device is' : `${missing.length} devices are`;
  return {
    message: `${devices} lost when the present CA ${end}, as they do not trust the next one yet: ${listed(names)}`,
  };
}

/** A renewed CA has the same key, but clients refuse it by the end of the certificate that they have. */
function ownCaProblem({ store: { now }, ownCas }: ConditionSources): Detected | null {
  const at = Date.parse(now());
  const known = ownCas().map((pem) => new X509Certificate(pem));
  const all = known.map((each) => ({ id: caIdOf(each), ends: Date.parse(each.validTo) }));
  const endOf = (id: string) => Math.max(...all.filter((each) => each.id === id).map(({ ends }) => ends));
  const late = all.find(({ id, ends }) => ends === endOf(id) && ends - at < CA_LATE_MS);
  if (late) {
    return {
      message: `the gateway's own CA was not renewed: devices and clients refuse the gateway after ${timestamp(late.ends)}`,
    };
  }
  const isEnding = (ends: number) => ends - at < CA_COPY_SOON_MS && at - ends < CA_COPY_ENDED_MS;
  const copy = all.find(({ id, ends }) => ends !== endOf(id) && isEnding(ends));
  if (copy === undefined) return null;
  const when = copy.ends <= at ? 'have ended' : 'end';
  return {
    message: `copies of the gateway's ca.pem from before its renewal ${when} at ${timestamp(copy.ends)}: clients with one refuse the gateway then`,
    remedy:
      "give clients with a copy, such as curl, Terraform and other SDKs, the gateway's present ca.pem; devices follow automatically",
  };
}

function keyProblem(sources: ConditionSources): Detected | null {
  const found = sources.undecryptable();
  if (found === null) return null;
  const counts = undecryptableCounts(found);
  const lost = counts === '' ? '' : `; it does not decrypt ${counts}`;
  if (found.isForeignKey) {
    return {
      message: `the encryption key is not the one that the database was used with, so nothing is encrypted with it${lost}`,
    };
  }
  const names = listed([...found.certificates, ...found.vaultValues, ...found.destinations]);
  return {
    message: `the encryption key does not decrypt ${counts}: ${names}`,
    remedy: 'upload these certificates, and set these secrets and targets, again, or delete them',
  };
}

function detourProblem({ databaseDetour }: ConditionSources): Detected | null {
  const detour = databaseDetour();
  if (detour === null) return null;
  return {
    message: `this gateway reaches the shared database only through the gateway ${detour.through}: ${detour.reason}`,
  };
}

function primaryProblem({ hasNoPrimary, databaseAway }: ConditionSources): Detected | null {
  // Without the database, none can become it.
  if (!hasNoPrimary() || databaseAway() !== null) return null;
  return {
    message: 'no gateway is the primary node: certificates are not renewed, and events wait',
  };
}

const isOnlineNow = (live: ConditionSources['live']) => (credentialId: string) =>
  live.find.sessionsOf(credentialId).length > 0;

/** Devices that have joined, were online, and are not, though they have not said that they would be away. */
function deviceProblem({ store: { devices }, live }: ConditionSources): Detected | null {
  const offline = devices.offline(isOnlineNow(live));
  if (offline.length === 0) return null;
  return {
    message: `devices are offline: ${listed(offline.map(({ name, site }) => `${name} at ${site}`))}`,
    subjects: offline.map(({ id: key, name, site, labels, since, ip }) => ({
      ...{ key, name, site, labels, message: `offline since ${since}`, since, network: clientNetwork(ip ?? '') },
    })),
  };
}

/** Devices that have used four fifths of their data budget, online or away for it. */
function budgetProblem({ store: { devices }, live }: ConditionSources): Detected | null {
  const near = [...live.find.sessionsWithBudget()].filter(({ budgetPercent = 0 }) => budgetPercent >= WARNED_PERCENT);
  const away = devices.away(isOnlineNow(live)).map(({ id: key, name, site, labels, data_budget }) => ({
    ...{ key, name, site, labels, message: `its data budget is used up: it comes back at ${data_budget?.back_at}` },
  }));
  const online = near.map(({ id, credentialId, budgetPercent = 0, ip }) => {
    const device = credentialId === null ? null : devices.byCredential(credentialId);
    const message = `${budgetPercent} % of its data budget are used`;
    const known = device && { key: device.id, name: device.name, site: device.site, labels: device.labels };
    return { ...(known ?? { key: credentialId ?? id, name: credentialId ?? ip, site: null }), message };
  });
  const subjects: ConditionSubject[] = [...online, ...away];
  if (subjects.length === 0) return null;
  return {
    message: `devices have nearly used up their data budgets: ${listed(subjects.map(({ name }) => name))}`,
    subjects,
  };
}

function certificateProblem(
  { now, siteNames }: Pick<Store, 'now' | 'siteNames'>,
  table: { troubled(before: string): TroubledName[] },
): Detected | null {
  const at = Date.parse(now());
  const troubled = table
    .troubled(timestamp(at + LATE_MS))
    .filter(({ msg, begins, ends }) => msg !== null || endsSoon(begins, ends, at));
  const [first] = troubled;
  if (first === undefined) return null;
  const names = listed(troubled.map(({ domain }) => domain));
  return {
    message: `certificates need attention: ${names}: ${reasonOf(first, at)}`,
    subjects: troubled.map((each) => ({
      ...{ key: each.domain, name: each.domain, site: siteOf(each.domain, siteNames), message: reasonOf(each, at) },
    })),
  };
}

function authorityProblem({ store: { certificateAuthorities, now } }: ConditionSources): Detected | null {
  const soon = timestamp(Date.parse(now()) + AUTHORITY_SOON_MS);
  const ending = certificateAuthorities.where("facts ->> 'not_after' < ? ORDER BY facts ->> 'not_after'", [soon]);
  const [first] = ending;
  if (first === undefined) return null;
  const nameOf = ({ id, description, facts }: typeof first) => description || facts.subject_common_name || id;
  const reason = ({ facts: { not_after } }: typeof first) =>
    not_after <= now() ? `clients are refused since ${not_after}` : `clients are refused after ${not_after}`;
  return {
    message: `CAs of client certificates end: ${listed(ending.map(nameOf))}: ${reason(first)}`,
    subjects: ending.map((row) => ({ key: row.id, name: nameOf(row), site: null, message: reason(row) })),
  };
}

function reasonOf(name: TroubledName, now: number): string {
  const { domain, msg, ends } = name;
  const validity = ends === null ? null : `${Date.parse(ends) <= now ? 'it expired' : 'it expires'} at ${ends}`;
  return [msg, validity, waitingRevocation(domain, name)].filter((part) => part !== null).join('; ');
}

function descriptorProblem({ counters }: ConditionSources): Detected | null {
  if (!isRecent(counters.descriptorsExhaustedAt)) return null;
  return {
    message: 'no file descriptor was left, so new connections were closed',
  };
}

function unreachedProblem({ unreached, store }: ConditionSources): Detected | null {
  const all = unreached?.() ?? [];
  const [first] = all;
  if (first === undefined) return null;
  const words = ({ stage, message }: Unreached) => (message === null ? stage : `${stage}: ${message}`);
  return {
    message: `clients do not reach ${listed(all.map(({ url }) => url))} (${words(first)})`,
    subjects: all.map((each) => {
      const { url, credentialId, since } = each;
      const device = credentialId === null ? null : store.devices.byCredential(credentialId);
      const site = device?.site ?? siteOf(new URL(url).hostname, store.siteNames);
      return { key: url, name: url, site, message: words(each), since, ...(device && { labels: device.labels }) };
    }),
  };
}

function silentProblem({ live }: ConditionSources): Detected | null {
  const silent = live.gateways?.().filter(({ state }) => state === 'silent') ?? [];
  if (silent.length === 0) return null;
  return {
    message: `silent gateways: ${listed(silent.map(({ address }) => address))}`,
    subjects: silent.map(({ address }) => ({ key: address, name: address, site: null })),
  };
}

function stoppedProblem({ store: { database } }: ConditionSources): Detected | null {
  const [first, ...more] = stoppedVersions(database).filter(({ isDecided }) => !isDecided);
  if (first === undefined) return null;
  const others = more.length > 0 ? `; so are ${listed(more.map(({ version }) => version))}` : '';
  return {
    message: `automatic updates of devices to version ${first.version} are stopped: ${first.reason}${others}`,
    remedy: `look at one of the devices (journalctl -u device-agent-update); then device-agent gateway releases resume ${first.version}, or stop ${first.version} for good`,
  };
}

/** Updates that went back, of devices, and of gateways. */
function updateProblem({ store, runs }: ConditionSources): Detected | null {
  const { agentUpdates, database, devices, credentials, now } = store;
  const since = Date.parse(now()) - FAILED_UPDATE_MS;
  const settled = new Set(stoppedVersions(database).flatMap(({ version, isDecided }) => (isDecided ? [version] : [])));
  const subjects = agentUpdates.returned().flatMap(({ id, created_at, version, reason }): ConditionSubject[] => {
    const device = devices.byCredential(id);
    const credential = device ? null : credentials.get(id);
    // Revoked, deleted, updated in another way, or an operator knows.
    if (!(device ?? credential) || device?.agent_version?.endsWith(`/${version}`)) return [];
    if (settled.has(version) || Date.parse(created_at) < since) return [];
    const message = `version ${version} went back${reason === null ? '' : `: ${reason}`}`;
    if (device)
      return [
        { key: device.id, name: `${device.name} at ${device.site}`, site: device.site, labels: device.labels, message },
      ];
    return [{ key: id, name: credential?.description || id, site: null, message }];
  });
  // Of several gateways: no other one installs it.
  const givenUp = parseFact(GivenUpUpdate, database.fact(UPDATE_GIVEN_UP));
  if (givenUp !== null && givenUp.version !== runs) {
    const { node: key, address, version, reason } = givenUp;
    const message = `version ${version} was given up, so no gateway installs it: ${reason}`;
    subjects.unshift({ key, name: `the gateway ${address}`, site: null, message });
  }
  const own = failedUpdate(database);
  if (
    own !== null &&
    own.to !== givenUp?.version &&
    runs === (own.result === 'kept' ? own.to : own.from) &&
    Date.parse(own.at) >= since
  ) {
    const what =
      own.result === 'kept'
        ? `version ${own.to} was given up, and stays nevertheless`
        : `version ${own.to} went back to ${own.from}`;
    subjects.unshift({
      key: '',
      name: 'the gateway',
      site: null,
      message: `${what}${own.reason === null ? '' : `: ${own.reason}`}${own.isGivenUp ? '; it is not tried again' : ''}`,
    });
  }
  const [first] = subjects;
  if (first === undefined) return null;
  return { message: `updates failed: ${listed(subjects.map(({ name }) => name))}: ${first.message}`, subjects };
}

function releaseProblem({ store, releases }: ConditionSources): Detected | null {
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

function destinationProblem({ store }: ConditionSources): Detected | null {
  const failing = store.eventDeliveries.where('failing_since IS NOT NULL ORDER BY failing_since', []);
  const [first] = failing;
  if (first === undefined) return null;
  const addresses = failing.map(({ id }) => store.eventDestinations.get(id)?.address ?? id);
  const skipped = failing.reduce((sum, row) => sum + row.skipped, 0);
  const lost = skipped === 0 ? '' : `; ${skipped} events were too old to be kept`;
  return {
    message: `events are not delivered to ${listed(addresses)} since ${first.failing_since}: ${first.error}${lost}`,
    subjects: failing.map(({ id, failing_since, error }, place) => ({
      ...{ key: id, name: addresses[place] ?? id, site: null, message: `since ${failing_since}: ${error}` },
    })),
  };
}

function lostProblem({ activity }: ConditionSources): Detected | null {
  if (!isRecent(activity.lostAt)) return null;
  return {
    message: 'events were lost: there were more than the gateway could record',
  };
}

function backupProblem({ store, hasDailyBackups }: ConditionSources): Detected | null {
  if (!hasDailyBackups) return null;
  const last = lastBackup(store.database);
  if (last !== null && Date.parse(store.now()) - Date.parse(last) < BACKUP_MS) return null;
  return {
    message: last === null ? 'no backup was made yet' : `the last backup is of ${last}`,
  };
}

function isRecent(at: number): boolean {
  return performance.now() - at < RECENT_MS;
}
