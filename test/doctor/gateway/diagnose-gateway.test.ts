import { readdirSync, rmSync, writeFileSync } from 'node:fs';
import { connect, createServer } from 'node:net';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest';
import { diagnoseGateway, type GatewaySurroundings } from '../../../src/doctor/gateway/diagnose-gateway.ts';
import { addressResults } from '../../../src/doctor/gateway/gateway-ports.ts';
import { claimGatewayNames } from '../../../src/gateway/certificates/gateway-names.ts';
import { IssueError } from '../../../src/gateway/certificates/issuing/certificate-issuer.ts';
import { failedJob } from '../../../src/gateway/certificates/renewal-schedule.ts';
import { openGatewayStore } from '../../../src/gateway/store/open-gateway-store.ts';
import { cidrList } from '../../../src/lib/network/ip-address.ts';
import { proxyHeader } from '../../../src/lib/network/proxy-protocol.ts';
import { loadGatewayServerSettings } from '../../../src/settings/gateway-settings.ts';
import { startTestGateway, type TestGateway } from '../../support/gateway.ts';
import { serving, takenPort } from '../../support/loopback.ts';
import { NameServer } from '../../support/name-server.ts';
import { temporaryFolder } from '../../support/temporary-folder.ts';

const DOMAIN = 'gateway.example.com';
let gateway: TestGateway;
let names: NameServer;
beforeAll(async () => {
  names = await NameServer.start();
  const challengeDns = { host: '127.0.0.1', port: 0, nameServer: `connect.${DOMAIN}` };
  gateway = await startTestGateway({ domain: DOMAIN, challengeDns });
  names.delegate(`acme.${DOMAIN}`, '127.0.0.1', gateway.dnsPort ?? 0);
  names.break(`acme.${DOMAIN}`);
});
afterAll(async () => {
  await gateway.close();
  await names.stop();
});

const settingsOf = (env: Record<string, string> = {}) => ({
  GATEWAY_DOMAIN: DOMAIN,
  GATEWAY_HTTPS_PORT: String(gateway.httpsPort),
  GATEWAY_HTTP_PORT: String(gateway.httpPort),
  GATEWAY_DNS_PORT: String(gateway.dnsPort),
  // Nothing listens there: the clock has no reference.
  GATEWAY_ACME_DIRECTORY: 'https://127.0.0.1:1/directory',
  GATEWAY_ACME_OWN_NAMES: 'public',
  GATEWAY_DNS_RESOLVERS: names.address,
  DATA_DIR: gateway.dataDir,
  ...env,
});

async function examine(env: Record<string, string> = {}, surroundings: GatewaySurroundings = {}) {
  const settings = loadGatewayServerSettings(settingsOf(env), temporaryFolder());
  const findings = await diagnoseGateway(settings, { patience: 6, ...surroundings });
  return (check: string) =>
    findings.filter((found) => found.check === check).map(({ status, detail }) => `${status}: ${detail}`);
}

/** Adds the records of the domain until the test ends. */
function addRecords(address = '127.0.0.1') {
  for (const name of [DOMAIN, `*.${DOMAIN}`]) names.add({ type: 'A', name, data: address });
  names.cname(`_acme-challenge.${DOMAIN}`, `gateway.acme.${DOMAIN}`);
  names.mend(`acme.${DOMAIN}`);
  onTestFinished(() => {
    for (const name of [DOMAIN, `*.${DOMAIN}`, `_acme-challenge.${DOMAIN}`]) names.remove(name);
    names.break(`acme.${DOMAIN}`);
  });
}

it('a gateway whose load balancer is on this machine is found, directly and through it', async () => {
  addRecords();
  const balanced = await startTestGateway({ domain: DOMAIN, balancers: cidrList(['127.0.0.1']) });
  onTestFinished(() => balanced.close());
  const env = { GATEWAY_LOAD_BALANCERS: '127.0.0.1', DATA_DIR: balanced.dataDir };
  const direct = await examine({ ...env, GATEWAY_HTTPS_PORT: String(balanced.httpsPort) });
  expect(
    [...direct('ports'), ...direct('running'), ...direct('addresses')].filter((line) => !line.startsWith('ok')),
  ).toEqual([]);
  const balancer = createServer((client) => {
    const onward = connect(balanced.httpsPort, '127.0.0.1').on('error', () => client.destroy());
    onward.write(proxyHeader(2, { clientIp: '203.0.113.7', clientPort: 4567, serverIp: '192.0.2.1', serverPort: 443 }));
    client
      .on('error', () => onward.destroy())
      .pipe(onward)
      .pipe(client);
  });
  const port = await serving(balancer);
  const gatewayThere = {
    domain: DOMAIN,
    httpsPort: port,
    caPem: balanced.sessionCa,
    balancers: cidrList(['127.0.0.1']),
  };
  const [found] = await addressResults(['127.0.0.1'], true, gatewayThere, 5);
  expect(found).toMatchObject({ status: 'ok' });
});

it('all checks of a running gateway with correct records pass', async () => {
  addRecords();
  const asked: string[] = [];
  const ask = async (host: string, command: string) => {
    asked.push(host, command);
    return '0\n0\n';
  };
  const found = await examine({}, { from: 'me@laptop', ask });
  expect(found('database')).toEqual(['ok: intact']);
  expect(found('ca')).toEqual([expect.stringMatching(/^ok: the CA is valid until /)]);
  expect(found('ports')).toEqual([
    `ok: the gateway runs and answers at 127.0.0.1:${gateway.httpsPort}; http: ${gateway.httpPort}`,
  ]);
  expect(found('dns')).toEqual([
    `ok: ${DOMAIN} and *.${DOMAIN} are 127.0.0.1`,
    `ok: acme.${DOMAIN} is answered by the gateway's DNS server`,
    `ok: _acme-challenge.${DOMAIN} is CNAME gateway.acme.${DOMAIN}`,
  ]);
  expect(found('addresses')).toEqual([`ok: 127.0.0.1:${gateway.httpsPort} leads to this gateway`]);
  expect(asked).toEqual(['me@laptop', expect.stringContaining(`https://api.${DOMAIN}:${gateway.httpsPort}/`)]);
  expect(found('outside')).toEqual([
    expect.stringMatching(/^ok: me@laptop reaches https:/),
    expect.stringMatching(/^ok: me@laptop reaches http:/),
    expect.stringMatching(/^skipped: tcp ports 20000-20999/),
  ]);
  expect(found('certificates')).toEqual(['ok: none besides those of its own CA']);
});

it('missing records, and those of another server, are named', async () => {
  const found = await examine();
  expect(found('dns')).toEqual([
    `failed: ${DOMAIN} has no address`,
    `failed: *.${DOMAIN} has no address`,
    expect.stringMatching(/^failed: acme\.gateway\.example\.com: no answer from the gateway's DNS server /),
    expect.stringMatching(/^failed: _acme-challenge\.gateway\.example\.com: no CNAME record/),
  ]);
  expect(found('outside')).toEqual([expect.stringMatching(/^skipped: cannot be known from this machine/)]);
  // Nothing listens on this port of the other address.
  addRecords('127.0.0.77');
  const elsewhere = await examine();
  expect(elsewhere('addresses')).toEqual([
    `failed: 127.0.0.77:${gateway.httpsPort} does not lead to this gateway: connection refused`,
  ]);
});

it('a port that another host does not reach, or that another program uses, is named', async () => {
  const found = await examine({}, { from: 'me@laptop', ask: async () => '28\n7\n' });
  expect(found('outside').slice(0, 2)).toEqual([
    expect.stringMatching(/^failed: me@laptop does not reach https:.*: no answer within 4 s$/),
    expect.stringMatching(/^failed: me@laptop does not reach http:.*: connection refused or not routed$/),
  ]);
  const unknown = await diagnoseGateway(loadGatewayServerSettings(settingsOf(), temporaryFolder()), {
    from: 'me@laptop',
    ask: async () => '6\n127\n',
  });
  expect(unknown.filter(({ check }) => check === 'outside').map(({ advice }) => advice?.split(';')[0])).toEqual([
    'add the DNS records',
    'install curl there',
    undefined,
  ]);
  const port = await takenPort();
  const stopped = await examine({ GATEWAY_HTTPS_PORT: String(port), GATEWAY_HTTP_PORT: '0', GATEWAY_DNS_PORT: '0' });
  expect(stopped('ports')).toEqual([`failed: https cannot listen on 127.0.0.1:${port}: the port is in use`]);
});

it('damage to database and CA is named, and nothing is created where no gateway was', async () => {
  const dataDir = temporaryFolder();
  const none = await examine({ DATA_DIR: dataDir });
  expect(none('database')).toEqual(['skipped: no gateway was started here yet']);
  expect(readdirSync(dataDir)).toEqual([]);
  openGatewayStore({ dataDir, encryptionKey: null }).database.close();
  expect((await examine({ DATA_DIR: dataDir }))('ca')).toEqual([
    `failed: ${join(dataDir, 'gateway', 'ca.pem')} is missing`,
  ]);
  for (const suffix of ['', '-wal', '-shm']) rmSync(join(dataDir, 'gateway', `gateway.db${suffix}`), { force: true });
  writeFileSync(
    join(dataDir, 'gateway', 'gateway.db'),
    'no database at all, but long enough to be read as one'.repeat(100),
  );
  expect((await examine({ DATA_DIR: dataDir }))('database')).toEqual([expect.stringMatching(/^failed: .*gateway\.db/)]);
});

it('failing and expiring certificates are named', async () => {
  const dataDir = temporaryFolder();
  const store = openGatewayStore({ dataDir, encryptionKey: null });
  await claimGatewayNames(store, ['api.gw.test'], { authority: 'https://ca.test/', private_key_type: 'ecdsa' });
  const row = store.ownDomains.byName('api.gw.test');
  if (!row?.job) throw new Error('the name was not claimed');
  const failure = new IssueError('DNS_ERROR', 'The DNS record is missing.');
  const job = failedJob(row.job, failure, Date.now());
  await store.database.write(() => store.ownDomains.update({ ...row, job }));
  store.database.close();
  expect((await examine({ DATA_DIR: dataDir }))('certificates')).toEqual([
    'failed: api.gw.test: DNS_ERROR: The DNS record is missing.',
  ]);
});

it('a destination that gets no events is named', async () => {
  const dataDir = temporaryFolder();
  const store = openGatewayStore({ dataDir, encryptionKey: null });
  const { database, eventDestinations: rows, eventDeliveries } = store;
  const target = { kind: 'webhook', url: 'https://siem.example.com/hook', signingSecret: 'whsec_' } as const;
  const row = { id: 'ed_1', created_at: store.now(), description: null, metadata: null };
  await database.write(() => {
    rows.insert({ ...row, ...rows.sealed(target, row.id) });
    eventDeliveries.begin({ ...row, ...rows.sealed(target, row.id) });
    eventDeliveries.failed(row.id, '2026-11-26T20:00:00Z', 'connection refused');
  });
  database.close();
  expect((await examine({ DATA_DIR: dataDir }))('events')).toEqual([
    'failed: https://siem.example.com has acknowledged no event since 2026-11-26T20:00:00Z: connection refused',
  ]);
  const later = openGatewayStore({ dataDir, encryptionKey: null });
  const event = { id: 'evt_1', type: 'a.v0', created_at: '', before: null, after: null, from_address: null, by: null };
  await later.database.write(() => later.eventDeliveries.refused(row.id, event, 'status 400'));
  later.database.close();
  expect((await examine({ DATA_DIR: dataDir }))('events')).toEqual([
    'failed: https://siem.example.com has refused events, which were passed over: 1',
  ]);
});
