import { randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Express } from 'express';
import pino from 'pino';
import { addressRules, RestrictedAddresses } from '../../src/gateway/access/ip-rules.ts';
import type { ApiContext } from '../../src/gateway/api/api-context.ts';
import {
  createManagementApi,
  DEFAULT_LIMITS,
  type ManagementApiSettings,
} from '../../src/gateway/api/management-api.ts';
import { knownCertificates } from '../../src/gateway/certificates/local-ca/ca-rotation.ts';
import { OnlineCloudEndpoints } from '../../src/gateway/cloud-endpoints/online-cloud-endpoints.ts';
import { type Condition, type ConditionSources, presentConditions } from '../../src/gateway/conditions/conditions.ts';
import { BulkActionJob } from '../../src/gateway/devices/bulk-action-job.ts';
import { DeviceSightings } from '../../src/gateway/devices/device-sightings.ts';
import type { GatewayPlace } from '../../src/gateway/devices/invite.ts';
import { gatewayDomains } from '../../src/gateway/endpoints/domain-names.ts';
import { EndpointPolicies } from '../../src/gateway/endpoints/endpoint-policies.ts';
import { EndpointRegistry } from '../../src/gateway/endpoints/endpoint-registry.ts';
import type { LiveView, Revocation } from '../../src/gateway/endpoints/live-view.ts';
import { withStored } from '../../src/gateway/endpoints/stored-endpoints.ts';
import { EdgeCounters } from '../../src/gateway/metrics/edge-counters.ts';
import { FleetUpdates } from '../../src/gateway/releases/fleet-updates.ts';
import { PeopleProvider } from '../../src/gateway/sign-in/people-provider.ts';
import type { Activity } from '../../src/gateway/store/events.ts';
import { openStore, type Store } from '../../src/gateway/store/store.ts';
import { issueApiKey } from '../../src/gateway/store/tokens.ts';
import { SecretsBox } from '../../src/lib/secrets-box.ts';
import { type Clock, systemClock } from '../../src/lib/time/clock.ts';
import { managementOpenApi } from '../../src/management/management-openapi.ts';
import { offeredReleases } from '../../src/update/release-mirror.ts';
import { issueCertificate } from './certificates.ts';
import { NO_ACTIVITY } from './edge-context.ts';
import { liveOf } from './nothing-online.ts';
import { OpenApiCheck } from './openapi-check.ts';

export const BASE_URL = 'https://api.gateway.test';
export const BASE_DOMAIN = 'gateway.test';

const openApi = new OpenApiCheck(managementOpenApi({ baseUrl: BASE_URL, version: '0' }));

export interface Answer {
  status: number;
  headers: Headers;
  /** Empty without a body. */
  body: Record<string, unknown>;
  /** The body's `id`. */
  id: string;
}

/** A management API on a real socket, with its store in a temporary folder. */
export interface ManagementServer {
  /** Its URL. */
  url: string;
  /** What answers there. */
  app: Express;
  folder: string;
  store: Store;
  people: PeopleProvider;
  sightings: DeviceSightings;
  apiKey: string;
  /** All revocations so far. */
  revoked: Revocation[];
  /** As a new bulk action does. */
  wakeBulkActions(): void;
  /** How often the certificate renewal was woken. */
  woken(): number;
  /** What is wrong with it. */
  conditions(): Promise<readonly Condition[]>;
  /** All log lines so far. */
  logged(): string;
  /**
   * Sends a request with key and version; headers set to `''` are not sent.
   *
   * @throws when the response does not match the OpenAPI document
   */
  call(method: string, path: string, body?: unknown, headers?: Record<string, string>): Promise<Answer>;
  close(): Promise<void>;
}

export interface ManagementServerOptions {
  activity?: Activity;
  settings?: Partial<ManagementApiSettings>;
  live?: Partial<LiveView>;
  clock?: Clock;
  place?: Partial<GatewayPlace>;
  dnsServers?: readonly string[];
  wallClock?: () => number;
  /** What conditions are read from; by default, nothing is wrong there. */
  conditions?: Partial<ConditionSources>;
  /** Called to wake the certificate renewal. */
  wake?: () => void;
  /** Sends a test message to a destination; by default, none answers. */
  testDestination?: ApiContext['testDestination'];
}

export async function startManagementServer(options: ManagementServerOptions = {}): Promise<ManagementServer> {
  const folder = mkdtempSync(join(tmpdir(), 'management-'));
  const store = openStore(join(folder, 'gateway.db'), new SecretsBox(randomBytes(32)), options.wallClock);
  const { token: apiKey } = await store.database.write(() => issueApiKey(store, { description: 'test' }));
  const { certificatePem: caPem } = await issueCertificate({ subject: 'CN=ca', ca: true });
  const lines: string[] = [];
  const log = pino({ level: 'debug' }, { write: (line: string) => lines.push(line) });
  const activity = options.activity ?? NO_ACTIVITY;
  const sightings = new DeviceSightings({ store, log, activity }, null, options.clock);
  const revoked: Revocation[] = [];
  let woken = 0;
  const ipPolicies = addressRules(store);
  const restricted = new RestrictedAddresses(store, ipPolicies);
  const policies = new EndpointPolicies({ ipPolicies, log });
  const endpoints = new EndpointRegistry();
  const ports = { http: 80, https: 443 };
  const addresses = { baseDomain: BASE_DOMAIN, ports, tcpHost: `tcp.${BASE_DOMAIN}` };
  const cloudEndpoints = new OnlineCloudEndpoints({ store, endpoints, addresses, log }, { policies, isLeased: null });
  const agents = liveOf({ revoke: async (what: Revocation) => void revoked.push(what), ...options.live });
  const counters = new EdgeCounters();
  const live = withStored(
    agents,
    cloudEndpoints.storedWith(() => []),
  );
  const sources: ConditionSources = {
    ...{ store, live, endpoints, counters, dataDir: folder, activity: { lostAt: Number.NEGATIVE_INFINITY } },
    releases: () => offeredReleases(folder),
    ...{ databaseAway: () => null, databaseDetour: () => null, hasNoPrimary: () => false, hasDailyBackups: false },
    ...{ undecryptable: () => null, nextCa: () => null, ownCas: () => knownCertificates(store.database) },
    ...{ latencyLimitMs: 5_000, runs: '1.0.0' },
    ...options.conditions,
  };
  const clock = options.clock ?? systemClock;
  const fleetUpdates = new FleetUpdates({ store, live, activity, clock, log });
  const bulkActions = new BulkActionJob({ store, clock, log }, { live, tcpHost: addresses.tcpHost });
  const stopBulkActions = bulkActions.start();
  const people = new PeopleProvider(store, `sign-in.${BASE_DOMAIN}`, options.wallClock);
  const app = createManagementApi(
    {
      store,
      counters,
      conditions: () => presentConditions(sources),
      history: {
        read: async () => ({ steps: [], longestOutage: null }),
        readBriefly: async () => [],
        devicesOf: () => [],
        wasAway: () => {},
        top: async () => ({ since: 0, requests: 0, missed: 0, paths: [], networks: [], statuses: [] }),
      },
      people,
      catchUp: async () => {},
      ...{ activity, fleetUpdates, dataDir: folder },
      live,
      cloudEndpoints,
      addresses,
      domains: gatewayDomains(BASE_DOMAIN),
      isRefused: restricted.refuses.bind(restricted),
      tcpPorts: { first: 20_000, last: 20_099 },
      sightings,
      log,
      ipPolicies,
      testDestination: options.testDestination ?? (async () => ({ accepted: false, answer: 'nobody answers' })),
      clock,
      dnsServers: options.dnsServers ?? null,
      place: {
        origin: BASE_URL,
        isProxied: false,
        signInOrigin: `https://sign-in.${BASE_DOMAIN}`,
        sessionAddress: `connect.${BASE_DOMAIN}:443`,
        sessionAddresses: [],
        tcpHost: `tcp.${BASE_DOMAIN}`,
        ...{ caPem, nextCaPem: null, caBundle: caPem },
        publicNames: 'none',
        ...options.place,
      },
      times: { prove: async () => Promise.reject(new Error('no CA')) },
      wakeBulkActions: () => bulkActions.wake(),
      wakeCertificateRenewal: () => {
        woken += 1;
        options.wake?.();
      },
    },
    {
      ...DEFAULT_LIMITS,
      baseUrl: BASE_URL,
      version: '0.0.0-test',
      ...options.settings,
    },
  );
  const server = createServer(app);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return {
    url,
    app,
    folder,
    store,
    people,
    sightings,
    apiKey,
    revoked,
    wakeBulkActions: () => bulkActions.wake(),
    woken: () => woken,
    conditions: () => presentConditions(sources),
    logged: () => lines.join(''),
    call: (method, path, body, headers) => send(url, apiKey, method, path, body, headers),
    async close() {
      fleetUpdates.stop();
      await stopBulkActions();
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
      store.database.close();
      rmSync(folder, { recursive: true });
    },
  };
}

async function send(
  url: string,
  apiKey: string,
  method: string,
  path: string,
  body?: unknown,
  headers: Record<string, string> = {},
): Promise<Answer> {
  const all: Record<string, string> = {
    Authorization: `Bearer ${apiKey}`,
    'Service-Version': '2',
    ...(body !== undefined && { 'Content-Type': 'application/json' }),
    ...headers,
  };
  const response = await fetch(url + path, {
    method,
    headers: Object.fromEntries(Object.entries(all).filter(([, value]) => value !== '')),
    ...(body !== undefined && { body: typeof body === 'string' ? body : JSON.stringify(body) }),
  });
  const text = await response.text();
  const problems = openApi.problems(method, path.replace(/\?.*/, ''), response.status, text);
  if (problems.length > 0) throw new Error(`${method} ${path}: not as documented: ${problems.join('; ')}: ${text}`);
  const isJson = response.headers.get('content-type')?.includes('json');
  const parsed = (isJson ? JSON.parse(text) : {}) as Record<string, unknown>;
  return { status: response.status, headers: response.headers, body: parsed, id: String(parsed.id) };
}
