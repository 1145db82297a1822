/** The management API in its own process, with so many bot users and domains. Arguments: rows, data folder. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { createManagementApi, DEFAULT_LIMITS } from '../src/gateway/api/management-api.ts';
import { DeviceSightings } from '../src/gateway/devices/device-sightings.ts';
import { gatewayDomains } from '../src/gateway/endpoints/domain-names.ts';
import { EdgeCounters } from '../src/gateway/metrics/edge-counters.ts';
import { FleetUpdates } from '../src/gateway/releases/fleet-updates.ts';
import { PeopleProvider } from '../src/gateway/sign-in/people-provider.ts';
import { openGatewayStore } from '../src/gateway/store/open-gateway-store.ts';
import { issueApiKey } from '../src/gateway/store/tokens.ts';
import { ExpressMessages } from '../src/lib/http/express-app.ts';
import { createLog } from '../src/lib/log/log.ts';
import { systemClock } from '../src/lib/time/clock.ts';
import { domainRow } from '../test/support/domain-row.ts';
import { nothingOnline } from '../test/support/nothing-online.ts';

const [rows = '0', dataDir = ''] = process.argv.slice(2);
const store = openGatewayStore({ dataDir, encryptionKey: null });
const { token: apiKey } = await store.database.write(() => issueApiKey(store, {}));
const botIds: string[] = [];
const domainIds: string[] = [];
await store.database.write(() => {
  for (let i = 0; i < Number(rows); i += 1) add(i);
});

const settings = { ...DEFAULT_LIMITS, baseUrl: 'http://127.0.0.1', version: '0' };
const log = await createLog('silent', 'json');
const activity = { note: () => {}, sample: () => {} };
const nothing = {
  live: nothingOnline,
  sightings: new DeviceSightings({ store, log, activity }),
  log,
  activity,
  clock: systemClock,
  catchUp: async () => {},
  domains: gatewayDomains('gw.test'),
  conditions: async () => [],
  counters: new EdgeCounters(),
  wakeCertificateRenewal: () => {},
  ipPolicies: () => null,
  addresses: { baseDomain: 'gateway.example.com', ports: { http: 80, https: 443 }, tcpHost: 'tcp.gateway.example.com' },
  tcpPorts: null,
  isRefused: () => false,
  cloudEndpoints: { settled: async () => {}, isLeased: () => false },
  dnsServers: null,
  times: { prove: async () => Promise.reject(new Error('no CA')) },
  place: {
    origin: 'http://127.0.0.1',
    isProxied: false,
    signInOrigin: '',
    sessionAddress: '',
    sessionAddresses: [],
    tcpHost: '',
    ...{ caPem: '', nextCaPem: null, caBundle: '' },
    publicNames: 'all' as const,
  },
};
const people = new PeopleProvider(store, 'sign-in.gw.test');
const testDestination = async () => ({ accepted: false, answer: '' });
const fleetUpdates = new FleetUpdates({ store, ...nothing });
const app = createManagementApi({ store, people, testDestination, fleetUpdates, dataDir: '', ...nothing }, settings);
const messages = new ExpressMessages();
messages.adopt(app);
const server = createServer(messages, app);
server.listen(0, '127.0.0.1', () => {
  const { port } = server.address() as AddressInfo;
  console.log(JSON.stringify({ port, apiKey, botIds, domainIds }));
});

function add(i: number): void {
  const [created_at, bot] = [store.now(), store.ids.next('bot')];
  store.botUsers.insert({ id: bot, created_at, name: `site ${i}`, active: true });
  const domain = domainRow(store, `*.site${i}.example.com`, `the cameras of site ${i}`);
  store.reservedDomains.insert(domain);
  botIds.push(bot);
  domainIds.push(domain.id);
}
