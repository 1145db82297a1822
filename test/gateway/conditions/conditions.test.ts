import { generateKeyPairSync, X509Certificate } from 'node:crypto';
import { mkdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { signedManifest } from '../../../scripts/packages/release-manifest.js';
import type { DashboardOverview } from '../../../src/gateway/api/dashboard/overview.ts';
import { claimGatewayNames } from '../../../src/gateway/certificates/gateway-names.ts';
import { noteCertificates } from '../../../src/gateway/certificates/local-ca/ca-rotation.ts';
import { certifyCa } from '../../../src/gateway/certificates/local-ca/x509.ts';
import type { Condition, ConditionSources, Unreached } from '../../../src/gateway/conditions/conditions.ts';
import {
  type CountedElsewhere,
  countedBy,
  type LiveGateway,
  type LiveSession,
  NOBODY_ELSE,
  type ReportedCondition,
} from '../../../src/gateway/endpoints/live-view.ts';
import { EndpointTraffic } from '../../../src/gateway/endpoints/traffic-counts.ts';
import { ActivityLog } from '../../../src/gateway/events/activity-log.ts';
import { MessageEngine } from '../../../src/gateway/messages/message-engine.ts';
import { LOOK_MS } from '../../../src/gateway/messages/start-messages.ts';
import { EdgeCounters } from '../../../src/gateway/metrics/edge-counters.ts';
import { watchProcess } from '../../../src/gateway/metrics/process-watch.ts';
import { stopVersion } from '../../../src/gateway/store/agent-updates.ts';
import { issueDashboardCode } from '../../../src/gateway/store/command-access.ts';
import { noteBackup } from '../../../src/gateway/store/last-backup.ts';
import { timestamp } from '../../../src/gateway/store/store.ts';
import type { Undecryptable } from '../../../src/gateway/store/stored-secrets.ts';
import { noteFailedUpdate, UPDATE_GIVEN_UP } from '../../../src/gateway/store/update-facts.ts';
import { CONDITION_IDS, type ConditionId } from '../../../src/management/condition-kinds.ts';
import { issueCertificate } from '../../support/certificates.ts';
import { fillStore } from '../../support/dashboard.ts';
import { domainRow } from '../../support/domain-row.ts';
import { ask } from '../../support/http-request.ts';
import { joinedDevice } from '../../support/joined-devices.ts';
import { type ManagementServer, startManagementServer } from '../../support/management-server.ts';
import { silentLog } from '../../support/silent-log.ts';
import { SteeredClock } from '../../support/steered-clock.ts';
import { until } from '../../support/until.ts';

const HOST = 'api.gateway.test';
const OWN = { host: HOST, origin: `https://${HOST}`, 'sec-fetch-site': 'same-origin' };
const JSON_BODY = { 'content-type': 'application/json' };
const HOUR_MS = 3_600_000;
const DNS_ERROR = { error_code: 'DNS_ERROR', msg: 'The DNS record is missing.' } as const;

let server: ManagementServer;
let counters: EdgeCounters;
let endpoints: ConditionSources['endpoints'];
let gateways: LiveGateway[];
let elsewhere: CountedElsewhere;
let away: string | null;
let detour: { through: string; reason: string } | null;
let isVacant: boolean;
let unreadable: Undecryptable | null;
let nextCa: ReturnType<ConditionSources['nextCa']>;
let unreached: Unreached[];
let activity: { lostAt: number };
let sessions: LiveSession[];
/** Of the gateway's clock. */
let aheadMs: number;

const SESSION: LiveSession = {
  ...{ id: 'ts_1', agentVersion: '1', credentialId: null, ip: '203.0.113.7', os: '', startedAt: '', transport: '' },
  metadata: '',
};

beforeEach(async () => {
  counters = new EdgeCounters();
  endpoints = { list: () => [], labeled: () => [] };
  gateways = [];
  elsewhere = NOBODY_ELSE;
  away = null;
  detour = null;
  isVacant = false;
  unreadable = null;
  nextCa = null;
  unreached = [];
  sessions = [];
  aheadMs = 0;
  activity = { lostAt: Number.NEGATIVE_INFINITY };
  server = await startManagementServer({
    wallClock: () => Date.now() + aheadMs,
    live: { gateways: () => gateways, sessions: () => sessions, askElsewhere: async () => elsewhere },
    conditions: {
      counters,
      endpoints: { list: () => endpoints.list(), labeled: () => endpoints.labeled() },
      activity: {
        get lostAt() {
          return activity.lostAt;
        },
      },
      databaseAway: () => away,
      databaseDetour: () => detour,
      hasNoPrimary: () => isVacant,
      undecryptable: () => unreadable,
      nextCa: () => nextCa,
      hasDailyBackups: true,
      unreached: () => unreached,
    },
  });
  await noteBackup(server.store.database);
});
afterEach(() => server.close());

function send(path: string, headers: Record<string, string>, body?: object) {
  const port = Number(new URL(server.url).port);
  const more = body === undefined ? {} : { method: 'POST', body: JSON.stringify(body) };
  return ask(port, HOST, { path, headers: { ...headers, ...(body && JSON_BODY) }, ...more });
}

async function overview(): Promise<DashboardOverview> {
  const { headers } = await send('/dashboard/session', OWN, { api_key: server.apiKey });
  const cookie = String(headers['set-cookie']).split(';')[0] ?? '';
  return JSON.parse((await send('/dashboard/overview', { ...OWN, cookie })).body);
}

/** As `gateway doctor` asks. */
function askByCode(code = issueDashboardCode(server.store.box, Date.now())) {
  return send('/dashboard/conditions', { host: HOST }, { code });
}

async function reported(): Promise<readonly Condition[]> {
  return JSON.parse((await askByCode()).body).conditions;
}

/** Conditions that are 1. */
async function measured(): Promise<string[]> {
  const { body } = await send('/metrics', { host: HOST, authorization: `Bearer ${server.apiKey}` });
  const samples = [...body.matchAll(/^device_agent_gateway_condition\{condition="(\w+)"\} ([01])$/gm)];
  expect(samples.map(([, id]) => id)).toEqual(CONDITION_IDS);
  return samples.flatMap(([, id = '', value]) => (value === '1' ? [id] : []));
}

const gatewayAt = (address: string, state: LiveGateway['state'] = 'serving'): LiveGateway => ({
  ...{ id: address, address, isThis: address === '192.0.2.1:443', state, version: '1' },
  ...{ silentSeconds: state === 'silent' ? 60 : 1, behind: 0, sessions: 0, endpoints: 0 },
});

interface Row {
  /** What is said of it. */
  words: RegExp;
  /** @returns what mends it */
  make: () => (() => unknown) | Promise<() => unknown>;
  /** Where the overview shows it, if not in its list of conditions. */
  shownApart?: (overview: DashboardOverview) => number;
}

const failEach = async (id: string) => {
  const { store } = server;
  const target = { kind: 'file', name: 'siem' } as const;
  const row = { id, created_at: store.now(), description: null, metadata: null };
  await store.database.write(() => {
    const destination = { ...row, ...store.eventDestinations.sealed(target, id) };
    store.eventDestinations.insert(destination);
    store.eventDeliveries.begin(destination);
    store.eventDeliveries.failed(id, '2026-11-26T20:00:00Z', 'connection refused');
  });
};

const TABLE: Record<ConditionId, Row> = {
  disk: {
    words: /^all changes are rejected: database was deleted or replaced while in use$/,
    make: async () => {
      const file = join(server.folder, 'gateway.db');
      renameSync(file, `${file}.away`);
      await expect(server.store.database.write(() => {})).rejects.toThrow(/deleted or replaced/);
      return () => renameSync(`${file}.away`, file);
    },
  },
  shared_database: {
    words: /^the shared database cannot be used, .*: ECONNREFUSED$/,
    make: () => {
      away = 'ECONNREFUSED';
      return () => {
        away = null;
      };
    },
  },
  shared_database_detour: {
    words: /only through the gateway 10\.0\.0\.12:443: ECONNREFUSED$/,
    make: () => {
      detour = { through: '10.0.0.12:443', reason: 'ECONNREFUSED' };
      return () => {
        detour = null;
      };
    },
  },
  own_certificate: {
    words: /^certificates need attention: api\.gateway\.test: The DNS record is missing\.$/,
    make: async () => {
      const { ownDomains, database } = server.store;
      await claimGatewayNames(server.store, [HOST], { authority: 'https://ca.test/', private_key_type: 'ecdsa' });
      const row = ownDomains.byName(HOST);
      if (!row?.job) throw new Error('the name was not claimed');
      const job = { ...row.job, ...DNS_ERROR };
      await database.write(() => ownDomains.update({ ...row, job }));
      return () => database.write(() => ownDomains.update(row));
    },
  },
  endpoint_unreachable: {
    words: /^clients do not reach https:\/\/cam\.site\.example\.com \(policy: the action deny answers 403\)$/,
    make: () => {
      const url = 'https://cam.site.example.com';
      const message = 'the action deny answers 403';
      unreached = [{ url, credentialId: null, stage: 'policy', message, since: '2026-01-01T00:00:00Z' }];
      return () => {
        unreached = [];
      };
    },
  },
  domain_certificate: {
    words: /^certificates need attention: \*\.site\.example\.com: The DNS record is missing\.$/,
    make: async () => {
      const { reservedDomains, database, now } = server.store;
      const policy = { authority: 'letsencrypt', private_key_type: 'ecdsa' } as const;
      const job = { ...DNS_ERROR, started_at: now(), retries_at: null, attempts: 3 };
      const row = { ...domainRow(server.store, '*.site.example.com', ''), policy, job };
      await database.write(() => reservedDomains.insert(row));
      return () => database.write(() => reservedDomains.delete(row.id));
    },
    shownApart: ({ attention }) => attention.failedDomains.total,
  },
  client_authority: {
    words: /^CAs of client certificates end: cameras: clients are refused after 20/,
    make: async () => {
      const { certificateAuthorities, database, ids, now } = server.store;
      const not_after = new Date(Date.parse(now()) + 20 * 86_400_000).toISOString().replace(/\.\d+/, '');
      const facts = {
        subject_common_name: 'cameras',
        not_before: now(),
        not_after,
        key_usages: [],
        extended_key_usages: [],
      };
      const common = { id: ids.next('ca'), created_at: now(), description: null, metadata: null };
      await database.write(() => certificateAuthorities.insert({ ...common, ca_pem: '', facts }));
      return () => database.write(() => certificateAuthorities.delete(common.id));
    },
  },
  commits_lost: {
    words:
      /^the shared database was put back to an older state at 2\S+: it lacks 3 commits, the first one of 2026-01-01T00:00:00\.000Z$/,
    make: async () => {
      const { database, now } = server.store;
      const lost = {
        after: 7,
        commits: 3,
        isLeast: false,
        since: '2026-01-01T00:00:00.000Z',
        reported: 8,
        recorded: 3,
      };
      const note = (found: string) =>
        database.write(() => database.setFact('lost_commits', JSON.stringify({ ...lost, found })));
      await note(now());
      return () => note(timestamp(Date.parse(now()) - 24 * HOUR_MS));
    },
  },
  encryption_key: {
    words: /^the encryption key does not decrypt 1 secret of vaults: mqtt password$/,
    make: () => {
      unreadable = { isForeignKey: false, certificates: [], vaultValues: ['mqtt password'], destinations: [] };
      return () => {
        unreadable = null;
      };
    },
  },
  ca_change: {
    words: /^1 device is lost when the present CA ends at 2027-01-01T00:00:00Z, as .*: old\.site\.example\.com$/,
    make: async () => {
      const { devices, database } = server.store;
      const since = new Date(Date.now() - (8 * 24 + 1) * HOUR_MS).toISOString();
      nextCa = { id: 'next', since, endsAt: '2027-01-01T00:00:00Z' };
      const row = await joinedDevice(server.store, { site: 'site.example.com', name: 'old', last_seen_at: null });
      return () => database.write(() => devices.update({ ...row, trusted_cas: ['first', 'next'] }));
    },
  },
  own_ca: {
    words: /^the gateway's own CA was not renewed: devices and clients refuse the gateway after 20/,
    make: async () => {
      const [late, renewed] = await Promise.all(
        [364, 3_650].map((days) => {
          const notAfter = new Date(Date.now() + days * 24 * HOUR_MS);
          return issueCertificate({ subject: 'CN=own', ca: true, notAfter });
        }),
      );
      await noteCertificates(server.store, [String(late?.certificatePem)]);
      return () => noteCertificates(server.store, [String(renewed?.certificatePem)]);
    },
  },
  no_primary: {
    words: /^no gateway is the primary node: /,
    make: () => {
      isVacant = true;
      return () => {
        isVacant = false;
      };
    },
  },
  file_descriptors: {
    words: /^no file descriptor was left/,
    make: async () => {
      const stop = watchProcess(counters, silentLog, () => {
        throw Object.assign(new Error('too many open files'), { code: 'EMFILE' });
      });
      await until(() => counters.descriptorsExhaustedAt > 0, 'the process is seen to have none left');
      stop();
      return () => {
        counters.descriptorsExhaustedAt = performance.now() - HOUR_MS;
      };
    },
  },
  server_errors: {
    words: /^42 % of the last 50 responses to clients were errors \(5xx\)$/,
    make: () => {
      for (let i = 0; i < 1_000; i += 1) counters.responded(200);
      for (let i = 0; i < 50; i += 1) counters.responded(i < 21 ? 502 : 200);
      return () => {
        for (let i = 0; i < 100; i += 1) counters.responded(200);
      };
    },
  },
  upstream: {
    words:
      /^upstreams refuse connections or answer 5xx: https:\/\/a\.example\.com, site=a,app=web \(4 of the last 4 requests\)$/,
    make: () => {
      const traffic = new EndpointTraffic();
      for (let i = 0; i < 1_004; i += 1) {
        traffic.countRequest();
        if (i >= 1_000) traffic.countError();
      }
      const url = 'https://a.example.com';
      // Of two agents in a pool, and behind a TLS edge.
      const list = () => [traffic, traffic, new EndpointTraffic()].map((each) => ({ url, traffic: each }));
      endpoints = { list, labeled: () => [{ labels: { site: 'a', app: 'web' }, traffic }] };
      return () => {
        for (let i = 0; i < 10; i += 1) traffic.countRequest();
      };
    },
  },
  latency: {
    words:
      /^endpoints answer slowly: https:\/\/a\.example\.com: half of the last 21 responses took about 5\.\d s or longer$/,
    make: () => {
      const traffic = new EndpointTraffic();
      for (let i = 0; i < 21; i += 1) traffic.countResponse(200, i < 11 ? 7_500 : 12);
      const [one, two] = [new EndpointTraffic(), new EndpointTraffic()];
      // Too few to tell.
      for (let i = 0; i < 9; i += 1) one.countResponse(200, 7_500);
      for (let i = 0; i < 9; i += 1) two.countResponse(200, 12);
      const list = () => [traffic, one, two].map((each) => ({ url: 'https://a.example.com', traffic: each }));
      endpoints = { list, labeled: () => [] };
      return () => {
        for (let i = 0; i < 10; i += 1) traffic.countResponse(200, 12);
      };
    },
  },
  update_failed: {
    words: /^updates failed: cam-1 at site\.example\.com: version 2\.0\.0 went back: offline$/,
    make: async () => {
      const { store } = server;
      const { agentUpdates, database, now } = store;
      const taken = (version: string, at = now()) => ({
        created_at: at,
        version,
        result: 'returned',
        reason: 'offline',
      });
      const device = (name: string) => joinedDevice(store, { name, site: 'site.example.com', last_seen_at: null });
      const [first, updated, late, decided] = [
        await device('cam-1'),
        await device('cam-2'),
        await device('cam-3'),
        await device('cam-4'),
      ];
      const ids = [first, updated, late, decided].map(({ credential_id }) => credential_id ?? '');
      const [id = '', ofUpdated = '', ofLate = '', ofDecided = ''] = ids;
      const stopped = { version: '1.5.0', reason: 'wanted', at: now(), isDecided: true };
      await database.write(() => {
        agentUpdates.put({ id, ...taken('2.0.0') });
        agentUpdates.put({ id: ofUpdated, ...taken('1.7.0') });
        store.devices.update({ ...updated, agent_version: 'device-agent/1.7.0' });
        agentUpdates.put({ id: ofLate, ...taken('2.0.0', timestamp(Date.parse(now()) - 8 * 24 * HOUR_MS)) });
        agentUpdates.put({ id: ofDecided, ...taken('1.5.0') });
        stopVersion(database, stopped);
      });
      return () => database.write(() => agentUpdates.put({ id, ...taken('2.0.1'), result: 'confirmed' }));
    },
  },
  device_offline: {
    words: /^devices are offline: cam-1 at site\.example\.com$/,
    make: async () => {
      const { store } = server;
      const seen = { last_seen_at: '2026-11-26T20:00:00Z', site: 'site.example.com' };
      const device = await joinedDevice(store, { ...seen, name: 'cam-1' });
      await joinedDevice(store, { ...seen, name: 'cam-2', last_seen_at: null });
      await joinedDevice(store, { ...seen, name: 'cam-3', status: 'revoked' });
      return () => {
        sessions = [{ ...SESSION, credentialId: device.credential_id }];
      };
    },
    shownApart: ({ attention }) => attention.offline.total,
  },
  data_budget: {
    words: /^devices have nearly used up their data budgets: cam-4$/,
    make: async () => {
      const device = await joinedDevice(server.store, { site: 'site.example.com', name: 'cam-4', last_seen_at: null });
      sessions = [
        { ...SESSION, credentialId: device.credential_id, budgetPercent: 80 },
        { ...SESSION, credentialId: 'cr_other', budgetPercent: 79 },
      ];
      return () => {
        sessions = [];
      };
    },
  },
  gateway_silent: {
    words: /^silent gateways: 192\.0\.2\.7:443$/,
    make: () => {
      gateways = [gatewayAt('192.0.2.7:443', 'silent')];
      return () => {
        gateways = [gatewayAt('192.0.2.7:443')];
      };
    },
    shownApart: (shown) => shown.gateways.filter(({ state }) => state === 'silent').length,
  },
  update_stopped: {
    words: /^automatic updates of devices to version 2\.0\.0 are stopped: 2 went back$/,
    make: async () => {
      const { database, now } = server.store;
      const stopped = { version: '2.0.0', reason: '2 went back', at: now(), isDecided: false };
      await database.write(() => stopVersion(database, stopped));
      return () => database.write(() => stopVersion(database, { ...stopped, isDecided: true }));
    },
  },
  release: {
    words: /^devices do not take version 2\.0\.0 as the newest one after 2026-01-0/,
    make: () => {
      const folder = join(server.folder, 'gateway/releases/2.0.0');
      mkdirSync(folder, { recursive: true });
      writeFileSync(join(folder, 'device-agent-2.0.0.tgz'), 'program');
      const keys = { number: 0, keys: [] };
      const file = {
        kind: 'npm',
        architecture: 'any',
        name: 'device-agent-2.0.0.tgz',
        size: 7,
        sha256: 'a'.repeat(64),
      };
      const release = { version: '2.0.0', channel: 'stable', security: null, files: [file], keys };
      const times = { released: '2025-12-01T00:00:00.000Z', expires: '2026-01-01T00:00:00.000Z' };
      writeFileSync(join(folder, 'manifest.json'), signedManifest({ ...release, ...times }, []));
      return () => rmSync(folder, { recursive: true });
    },
  },
  event_destination: {
    words: /^events are not delivered to siem\.jsonl since 2026-11-26T20:00:00Z: connection refused$/,
    make: async () => {
      await failEach('ed_1');
      const { database, eventDeliveries } = server.store;
      return () => database.write(() => eventDeliveries.acknowledged('ed_1', '~'));
    },
  },
  events_lost: {
    words: /^events were lost/,
    make: async () => {
      const { store } = server;
      const row = { id: 'esb_1', created_at: store.now(), description: null, metadata: null };
      await store.database.write(() =>
        store.eventSubscriptions.insert({ ...row, sources: ['*'], destination_ids: ['ed_1'] }),
      );
      const log = new ActivityLog(store, silentLog);
      for (let i = 0; i <= 1_000; i += 1) log.note('certificate_failed.v0', () => ({}));
      activity = log;
      return async () => {
        await log.stop();
        activity = { lostAt: log.lostAt - HOUR_MS };
      };
    },
  },
  backup: {
    words: /^the last backup is of \d{4}-/,
    make: async () => {
      await noteBackup(server.store.database, Date.now() - 27 * HOUR_MS);
      return () => noteBackup(server.store.database);
    },
  },
};

describe.each(CONDITION_IDS)('the condition %s', (id) => {
  const { words, make, shownApart } = TABLE[id];

  it('is seen in the overview, by the doctor and as a metric, until it is mended', async () => {
    const before = [(await overview()).conditions, await reported(), await measured()];
    const mend = await make();
    const shown = await overview();
    if (shownApart) expect(shownApart(shown)).toBe(1);
    else expect(shown.conditions).toMatchObject([{ id, message: expect.stringMatching(words) }]);
    const own = (await reported()).filter((condition) => condition.id === id);
    expect(own).toMatchObject([
      { message: expect.stringMatching(words), remedy: expect.stringMatching(/^\S/), severity: expect.any(String) },
    ]);
    expect(await measured()).toEqual([id]);
    await mend();
    expect([before, [(await overview()).conditions, await reported(), await measured()]]).toEqual([
      [[], [], []],
      [[], [], []],
    ]);
  });

  // A message is written down before it is sent, and nothing can be written then.
  it.skipIf(id === 'disk')('is told once when it begins, and once when it is over', async () => {
    const { store } = server;
    const target = { slack: { url: 'https://hooks.slack.com/services/x' } };
    const { id: destination } = await server.call('POST', '/event_destinations', { target });
    await server.call('POST', '/message_rules', { conditions: [id], destination_ids: [destination] });
    const clock = new SteeredClock();
    const own = { conditions: server.conditions, live: {}, origin: `https://${HOST}`, isSender: () => true };
    const engine = new MessageEngine({ store, clock, log: silentLog }, own);
    const lookFor = async (minutes: number) => {
      for (let looks = (minutes * 60_000) / LOOK_MS; looks > 0; looks--) {
        aheadMs += LOOK_MS;
        clock.skip(LOOK_MS);
        await engine.look();
      }
    };
    const mend = await make();
    await lookFor(12);
    await mend();
    await lookFor(8);
    const told = store.activityEvents.where('only_for = ? ORDER BY id', [destination]).map(({ object }) => object.kind);
    expect(told).toEqual(['begun', 'over']);
    expect(store.conditionHistory.where('settled = 0', [])).toEqual([]);
  });
});

it('the overview shows those of all gateways, each once and the worst first, and which gateways do not say', async () => {
  const [own, second, older, cutOff, silent] = [1, 2, 3, 4, 5].map((last) => `192.0.2.${last}:443`);
  if (!own || !second || !older || !cutOff || !silent) throw new Error('there are five');
  gateways = [gatewayAt(own), gatewayAt(second), gatewayAt(older), gatewayAt(cutOff), gatewayAt(silent, 'silent')];
  await failEach('ed_1');
  const shared = (await reported()).find(({ id }) => id === 'event_destination');
  if (!shared) throw new Error('the destination does not fail');
  const full: ReportedCondition = { id: 'disk', severity: 'critical', message: 'full', remedy: 'free some space' };
  const gone: ReportedCondition = { ...full, id: 'gateway_silent', severity: 'warning' };
  const counted = { ...countedBy(counters.totals, []), conditions: [shared, full, gone] };
  const { conditions: _, ...ofOlder } = counted;
  elsewhere = {
    counted: [
      { ...counted, address: second },
      { ...ofOlder, address: older },
      { ...counted, address: cutOff },
    ],
    missing: [cutOff, silent],
  };
  const seen = (await overview()).conditions.map(({ id, gateways: of }) => [id, ...of]);
  expect(seen).toEqual([
    ['disk', second],
    ['event_destination', own, second],
    ['gateway_unknown', older],
    ['gateway_unanswered', cutOff],
  ]);
});

it('conditions are told for a code that a holder of the encryption key makes, once, and otherwise refused', async () => {
  const code = issueDashboardCode(server.store.box, Date.now());
  const statuses = [await askByCode(code), await askByCode(code), await askByCode('guessed')].map(
    ({ status }) => status,
  );
  expect(statuses).toEqual([200, 403, 403]);
});

it('a condition that cannot be looked at is one, and hides no other', async () => {
  await server.close();
  const broken = () => {
    throw new Error('out of order');
  };
  server = await startManagementServer({
    conditions: { databaseAway: broken, endpoints: { list: broken, labeled: broken } },
  });
  expect(await reported()).toMatchObject([
    { id: 'shared_database', message: 'cannot be checked: out of order' },
    { id: 'upstream', message: 'cannot be checked: out of order' },
    { id: 'latency', message: 'cannot be checked: out of order' },
  ]);
});

it('an update of the gateway that went back is a condition while that version runs, for a week', async () => {
  const { store } = server;
  const failed = { from: '1.0.0', to: '2.0.0', reason: 'it crashed' };
  const seen: (string | undefined)[] = [];
  for (const update of [
    { result: 'returned', ...failed, at: store.now() },
    { result: 'returned', ...failed, at: timestamp(Date.now() - 8 * 24 * HOUR_MS) },
    { result: 'returned', ...failed, from: '0.9.0', at: store.now() },
    { result: 'kept', ...failed, to: '1.0.0', at: store.now() },
    { result: 'returned', ...failed, isGivenUp: true, at: store.now() },
  ] as const) {
    await store.database.write(() => noteFailedUpdate(store.database, update));
    seen.push((await reported()).find(({ id }) => id === 'update_failed')?.message);
  }
  expect(seen).toEqual([
    'updates failed: the gateway: version 2.0.0 went back to 1.0.0: it crashed',
    undefined,
    undefined,
    'updates failed: the gateway: version 1.0.0 was given up, and stays nevertheless: it crashed',
    'updates failed: the gateway: version 2.0.0 went back to 1.0.0: it crashed; it is not tried again',
  ]);
});

it('a version that a gateway of several has given up is a condition until another one is confirmed, said once', async () => {
  const { store } = server;
  const [from, to] = ['1.0.0', '2.0.0'];
  const givenUp = {
    node: 'one',
    address: '10.0.0.1:443',
    version: to,
    at: '2020-01-01T00:00:00Z',
    reason: 'it crashed',
  };
  const own = { result: 'returned', from, to, reason: 'it crashed', at: store.now() } as const;
  const message = async () => (await reported()).find(({ id }) => id === 'update_failed')?.message;
  await store.database.write(() => {
    noteFailedUpdate(store.database, own);
    store.database.setFact(UPDATE_GIVEN_UP, JSON.stringify(givenUp));
  });
  expect(await message()).toBe(
    'updates failed: the gateway 10.0.0.1:443: version 2.0.0 was given up, so no gateway installs it: it crashed',
  );
  await store.database.write(() => {
    noteFailedUpdate(store.database, { ...own, from: '0.9.0' });
    store.database.forgetFact(UPDATE_GIVEN_UP);
  });
  expect(await message()).toBe(undefined);
});

it('an endpoint of which a tenth of many requests fail has a condition, one of which a few fail has none', async () => {
  const messages: (string | undefined)[] = [];
  for (const errors of [2, 4, 5, 9]) {
    const traffic = new EndpointTraffic();
    for (let i = 0; i < 50; i += 1) {
      traffic.countRequest();
      if (i < errors) traffic.countError();
    }
    endpoints = { list: () => [{ url: 'https://a.example.com', traffic }], labeled: () => [] };
    messages.push((await reported()).find(({ id }) => id === 'upstream')?.message);
  }
  const words = 'upstreams refuse connections or answer 5xx: https://a.example.com';
  expect(messages).toEqual([
    undefined,
    undefined,
    `${words} (5 of the last 50 requests)`,
    `${words} (9 of the last 50 requests)`,
  ]);
});

it('copies of ca.pem from before its renewal are a condition from 60 days before their end until 30 days after', async () => {
  const key = generateKeyPairSync('ec', { namedCurve: 'P-256' }).privateKey.export({ format: 'pem', type: 'pkcs8' });
  const madeAt = Date.now();
  const eightYears = 8 * 365 * 24 * HOUR_MS;
  const renewed = await certifyCa(String(key), madeAt + eightYears);
  await noteCertificates(server.store, [renewed, await certifyCa(String(key), madeAt)]);
  const seen: (string | undefined)[] = [];
  for (const days of [-61, -59, 29, 31]) {
    aheadMs = (10 * 365 + days) * 24 * HOUR_MS;
    seen.push((await reported()).find(({ id }) => id === 'own_ca')?.message);
  }
  const ends = timestamp(Date.parse(new X509Certificate(renewed).validTo) - eightYears);
  const copies = (when: string) =>
    `copies of the gateway's ca.pem from before its renewal ${when} at ${ends}: clients with one refuse the gateway then`;
  expect(seen).toEqual([undefined, copies('end'), copies('have ended'), undefined]);
});

it('a certificate ends soon by its lifetime: one of six days does not while it has four, one of 90 days does with 13', async () => {
  const { store } = server;
  const days = (count: number) => new Date(Date.now() + count * 24 * HOUR_MS).toISOString();
  await fillStore(store, 'text');
  const [row] = store.tlsCertificates.where('id > ?', ['']);
  if (!row) throw new Error('there is no certificate');
  const messages: (string | undefined)[] = [];
  for (const [begins, ends] of [
    [-2, 4],
    [-77, 13],
    [-91, -1],
  ] as const) {
    const facts = { ...row.facts, not_before: days(begins), not_after: days(ends) };
    await store.database.write(() => store.tlsCertificates.update({ ...row, facts }));
    const certificate = (await reported()).find(({ id }) => id === 'domain_certificate');
    messages.push(certificate?.message);
  }
  const both = 'certificates need attention: shop.example.com, *.site.example.com: it';
  expect(messages).toEqual([
    'certificates need attention: *.site.example.com: text',
    expect.stringContaining(`${both} expires at `),
    expect.stringContaining(`${both} expired at `),
  ]);
});
