import { randomBytes } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { Agent, request } from 'node:https';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { openGatewayStore } from '../src/gateway/store/open-gateway-store.ts';
import type { Store } from '../src/gateway/store/store.ts';
import { issueApiKey, issueCredential } from '../src/gateway/store/tokens.ts';
import { GATEWAY_SERVICE } from '../src/service/service.ts';
import { domainRow } from '../test/support/domain-row.ts';
import { freePorts } from '../test/support/free-ports.ts';
import type { SessionClients } from './session-clients.ts';
import { median, section } from './support/figures.ts';
import { temporaryFolder } from './support/folders.ts';
import { addDevice } from './support/full-gateway.ts';
import { type Child, processorTime, residentMiB, startChild, startScript } from './support/process.ts';

/** From here on, each size is twice the one before. */
const FIRST = 500;
/** `GROWTH_MOST=16000` goes on to there. */
const MOST = Number(process.env.GROWTH_MOST ?? 4_000);
/** Sessions of a round whose cost is measured. */
const SESSIONS = 40;
const TIMES = 15;
const IDLE_MS = 2_000;
const HOST = 'api.localhost';

/** Something that grows: rows that are there before the gateway starts, or what agents bind. */
interface Dimension {
  readonly fill?: (store: Store, number: number, ownerId: string) => void;
  readonly clients?: (count: number) => Pick<SessionClients, 'count' | 'endpoints'>;
  /** The list that shows it. */
  readonly path: string;
}

const annotated = (store: Store, kind: string) =>
  ({ id: store.ids.next(kind), created_at: store.now(), description: null, metadata: null }) as const;

const DIMENSIONS: Readonly<Record<string, Dimension>> = {
  sessions: { clients: (count) => ({ count }), path: '/tunnel_sessions' },
  'endpoints of a session': { clients: (count) => ({ count: 1, endpoints: count }), path: '/endpoints' },
  domains: {
    fill: (store, n) => void store.reservedDomains.insert(domainRow(store, `*.site${n}.example.com`, `site ${n}`)),
    path: '/reserved_domains',
  },
  devices: { fill: (store, n, owner) => addDevice(store, n, owner), path: '/devices' },
  people: {
    fill: (store, n) =>
      void store.people.insert({
        ...{ id: store.ids.next('prs'), created_at: store.now(), email: `p${n}@example.com`, name: `Person ${n}` },
        ...{ groups: [], dashboard: false, password_hash: Buffer.alloc(0), password_set_at: null },
      }),
    path: '/people',
  },
  'share links': {
    fill: (store, n, owner) =>
      void store.shareLinks.insert({
        ...annotated(store, 'sl'),
        ...{ host: `cam-${n}.localhost`, owner, secret_hash: randomBytes(32), created_by: owner },
        ...{ expires_at: '2099-01-01T00:00:00Z', max_uses: null, uses: 0, last_used_at: null },
      }),
    path: '/share_links',
  },
  policies: { fill: (store, n) => addCloudEndpoint(store, `cloud-${n}.localhost`), path: '/endpoints' },
  'event destinations': {
    fill: (store, n) => {
      const row = annotated(store, 'ed');
      store.eventDestinations.insert({
        ...row,
        ...store.eventDestinations.sealed({ kind: 'file', name: `f${n}` }, row.id),
      });
    },
    path: '/event_destinations',
  },
};

function addCloudEndpoint(store: Store, host: string): void {
  const policy = { on_http_request: [{ actions: [{ type: 'custom-response', config: { status_code: 200 } }] }] };
  store.cloudEndpoints.insert({
    ...annotated(store, 'ep'),
    ...{ updated_at: store.now(), place: `tls ${host}`, proto: 'https', host, port: 443, internal: false },
    ...{ pooling_enabled: false, traffic_policy: JSON.stringify(policy) },
  });
}

type Figures = Readonly<Record<string, number>>;

/** What a gateway costs with more and more of something, and by which power of its number that grows: 0 is flat, 1 linear. */
export async function benchGrowth(): Promise<void> {
  const sizes: number[] = [];
  for (let size = FIRST; size <= MOST; size *= 2) sizes.push(size);
  const names = (process.env.GROWTH ?? Object.keys(DIMENSIONS).join()).split(',');
  for (const name of names) {
    const dimension = DIMENSIONS[name];
    if (dimension === undefined) throw new Error(`GROWTH: choose of ${Object.keys(DIMENSIONS).join(', ')}`);
    const all: Figures[] = [];
    for (const size of sizes) all.push(await measure(dimension, size));
    const rows = Object.keys(all[0] ?? {}).map((figure) => {
      const values = all.map((figures) => figures[figure] ?? Number.NaN);
      return [figure, ...values.map((value) => value.toFixed(value < 10 ? 2 : 0)), slopeOf(sizes, values).toFixed(2)];
    });
    section(`growth with ${name}`, [['', ...sizes.map(String), 'slope'], ...rows]);
  }
}

/** By least squares, of the logarithms. */
function slopeOf(sizes: readonly number[], values: readonly number[]): number {
  const points = sizes.map((size, at) => [Math.log(size), Math.log(Math.max(values[at] ?? 0, 0.01))] as const);
  const mean = (place: 0 | 1) => points.reduce((sum, point) => sum + point[place], 0) / points.length;
  const [x, y] = [mean(0), mean(1)];
  const covariance = points.reduce((sum, point) => sum + (point[0] - x) * (point[1] - y), 0);
  return covariance / points.reduce((sum, point) => sum + (point[0] - x) ** 2, 0);
}

async function measure({ fill, clients, path }: Dimension, size: number): Promise<Figures> {
  const folder = temporaryFolder();
  const { apiKey, authtoken } = await fillStore(folder, fill ? size : 0, fill);
  const { first } = await freePorts(3);
  const [session = '', https = '', http = ''] = [first, first + 1, first + 2].map(String);
  const began = performance.now();
  const gateway = await startProgram(folder, { session, https, http });
  const ready = performance.now() - began;
  const to = { address: `127.0.0.1:${session}`, caFile: join(folder, 'gateway', 'ca.pem'), authtoken };
  const grown = clients && (await startClients({ kind: 'native', ...to, ...clients(size) }));
  if (grown) await turn(grown);
  const pid = gateway.process.pid;
  const measured = await startClients({ kind: 'native', count: SESSIONS, ...to });
  // V8 compiles in the first rounds.
  for (const _ of [1, 2]) await twoTurns(measured);
  const newSession = await costOf(pid, () => turn(measured));
  await turn(measured);
  const ask = asker(Number(https), to.caFile, apiKey);
  const api = (method: string, at: string, body?: object) => timesOf(() => ask(HOST, method, at, body));
  const page = await api('GET', `${path}?limit=100`);
  const search = await api('GET', `${path}?limit=100&search=nothing-has-this`);
  const one = await timesOf(() => ask('probe.localhost', 'GET', '/'));
  const revocation = await timesOf(async () => {
    const { id } = JSON.parse(await ask(HOST, 'POST', '/credentials', {})) as { id: string };
    await ask(HOST, 'DELETE', `/credentials/${id}`);
  });
  const scrape = await api('GET', '/metrics');
  const idleBefore = processorTime(pid);
  await delay(IDLE_MS);
  const idle = (processorTime(pid) - idleBefore) / IDLE_MS / 10;
  const memory = residentMiB(pid) ?? Number.NaN;
  for (const child of [measured, ...(grown ? [grown] : []), gateway]) await child.stop();
  return {
    'start to ready, ms': ready,
    'memory, MiB': memory,
    'new session and bind, ms of processor': newSession / SESSIONS,
    'request, ms': one,
    'API page, ms': page,
    'search, ms': search,
    'revocation, ms': revocation,
    'scrape, ms': scrape,
    'idle, % of a core': idle,
  };
}

async function fillStore(folder: string, count: number, fill: Dimension['fill'] = () => {}) {
  const store = openGatewayStore({ dataDir: folder, encryptionKey: null });
  const tokens = await store.database.write(() => {
    const owner = store.ids.next('bot');
    store.botUsers.insert({ id: owner, created_at: store.now(), name: 'fleet', active: true });
    for (let n = 0; n < count; n += 1) fill(store, n, owner);
    addCloudEndpoint(store, 'probe.localhost');
    return { apiKey: issueApiKey(store, {}).token, authtoken: issueCredential(store, { acl: [] }).token };
  });
  store.database.close();
  return tokens;
}

function startProgram(folder: string, ports: { session: string; https: string; http: string }): Promise<Child<true>> {
  const cli = new URL('../../dist/cli.js', import.meta.url).pathname;
  const env = {
    ...{ DATA_DIR: folder, LOG_FORMAT: 'json', GATEWAY_API_RATE_LIMIT: '0' },
    ...{ GATEWAY_SESSION_PORT: ports.session, GATEWAY_HTTPS_PORT: ports.https, GATEWAY_HTTP_PORT: ports.http },
  };
  const isReady = (line: string) => (line.includes('"gateway listening"') ? true : undefined);
  return startChild(process.execPath, [...GATEWAY_SERVICE.nodeOptions, cli, 'gateway'], env, isReady);
}

const startClients = (options: SessionClients) => startScript('session-clients', [JSON.stringify(options)]);

/** All clients connect, or leave. */
async function turn(clients: Child<unknown>): Promise<void> {
  const done = clients.nextLine();
  clients.process.kill('SIGUSR2');
  await done;
}

async function twoTurns(clients: Child<unknown>): Promise<void> {
  await turn(clients);
  await turn(clients);
}

/** Milliseconds of processor time. */
async function costOf(pid: number | undefined, work: () => Promise<void>): Promise<number> {
  const before = processorTime(pid);
  await work();
  return (processorTime(pid) - before) / 1000;
}

/** Median milliseconds, after the first three times. */
async function timesOf(work: () => Promise<unknown>): Promise<number> {
  const times: number[] = [];
  for (let time = -3; time < TIMES; time += 1) {
    const began = performance.now();
    await work();
    if (time >= 0) times.push(performance.now() - began);
  }
  return median(times);
}

/** @returns asks on one connection for each name @throws Error for an answer above 299 */
function asker(port: number, caFile: string, apiKey: string) {
  const agent = new Agent({ keepAlive: true, ca: readFileSync(caFile) });
  return (host: string, method: string, path: string, body?: object) =>
    new Promise<string>((resolve, reject) => {
      const headers = {
        ...{ host, authorization: `Bearer ${apiKey}`, 'ngrok-version': '2' },
        ...(body && { 'content-type': 'application/json' }),
      };
      const asked = request({ agent, host: '127.0.0.1', servername: host, port, method, path, headers }, (res) => {
        let text = '';
        res.setEncoding('utf8').on('data', (piece: string) => {
          text += piece;
        });
        res.on('end', () => {
          if (Number(res.statusCode) < 300) resolve(text);
          else reject(new Error(`${method} ${path}: ${res.statusCode} ${text}`));
        });
      });
      asked.on('error', reject).end(body && JSON.stringify(body));
    });
}
