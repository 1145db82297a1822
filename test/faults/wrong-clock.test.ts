import { cpSync, mkdirSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:https';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { joinCode } from '../../src/gateway/devices/invite.ts';
import { AgentProcess, deviceAgent } from '../support/agent-process.ts';
import { type Issued, issueCertificate } from '../support/certificates.ts';
import { enrolmentKey } from '../support/enrolment.ts';
import { clockAt, NO_FAKETIME } from '../support/faked-clock.ts';
import { startTestGateway, type TestGateway } from '../support/gateway.ts';
import { serving } from '../support/loopback.ts';
import { certifyNames, ordering } from '../support/public-names.ts';
import { unless } from '../support/requirements.ts';
import { sharedFolder, temporaryFolder } from '../support/temporary-folder.ts';

/** What this machine's clock shows when the agent starts. */
const CLOCKS = [
  ...[
    '1970-01-01 00:00:05',
    '1970-02-03 04:05:06',
    '1980-01-01 00:00:00',
    '2000-02-29 12:00:00',
    '2015-06-15 00:00:00',
  ],
  ...[
    '2024-12-31 23:59:50',
    '2037-12-31 00:00:00',
    '2038-01-19 03:14:00',
    '2069-07-20 00:00:00',
    '2099-12-31 23:59:50',
  ],
];

/** Which CA signs the certificates: of the API and of sessions. */
const AUTHORITIES = ['own', 'public API', 'public'] as const;
type Authority = (typeof AUTHORITIES)[number];

/** A public CA for the tests. */
let root: Issued;
let rootFile: string;

interface Site {
  gateway: TestGateway;
  code: string;
  env: Record<string, string>;
}

async function openSite(authority: Authority): Promise<Site> {
  const ordered = ordering(authority === 'public' ? 'all' : 'public');
  const gateway = await startTestGateway(authority === 'own' ? {} : { ...ordered, sessionPort: null });
  if (authority === 'public') await certifyNames(gateway, root, ['api.localhost', 'connect.localhost']);
  const { secret } = await enrolmentKey(gateway, { site: '*.site.localhost' });
  const publicNames = authority === 'public' ? 'all' : 'none';
  const code = joinCode({ origin: gateway.apiUrl, isProxied: false, caPem: gateway.sessionCa, publicNames }, secret);
  // As an image has it that trusts this CA. An agent that has its own CA of the gateway needs none of it.
  const trust = { NODE_EXTRA_CA_CERTS: rootFile, SSL_CERT_FILE: rootFile };
  const env = authority === 'public' ? { ...trust, NGROK_SERVER_ADDR: `connect.localhost:${gateway.httpsPort}` } : {};
  return { gateway, code, env };
}

/** Starts an agent under a clock. The program `faketime` itself would not pass signals on. */
function startAt(clock: string, folder: string, env: Record<string, string>): AgentProcess {
  return AgentProcess.inTest(folder, { AGENT_GATEWAY: 'remote', ...env, ...fakeClock(clock) });
}

/** The monotonic clock of such a machine is right. */
function fakeClock(clock: string): Record<string, string> {
  return clockAt(`@${clock}`);
}

interface Status {
  session: { state: string; last_error: { message: string } | null };
  clock: { source: string; system_ahead_seconds: number | null; problem: string | null };
}
const statusOf = async (agent: AgentProcess) => (await (await fetch(`${await agent.api()}/status`)).json()) as Status;

describe('a device whose clock is wrong', unless(NO_FAKETIME), () => {
  const sites = new Map<Authority, Site & { joined: string }>();

  beforeAll(async () => {
    root = await issueCertificate({ subject: 'CN=public CA', ca: true });
    rootFile = join(sharedFolderForRoot, 'root.pem');
    writeFileSync(rootFile, root.certificatePem);
    for (const authority of AUTHORITIES) {
      const site = await openSite(authority);
      const joined = join(sharedFolderForRoot, authority);
      mkdirSync(joined);
      const agent = AgentProcess.start(joined, { ...site.env, AGENT_JOIN_CODE: site.code, AGENT_NAME: 'card' });
      await agent.logged('session online');
      await agent.end();
      if (authority === 'public API') await certifyNames(site.gateway, root, ['api.localhost']);
      sites.set(authority, { ...site, joined });
    }
  });
  const sharedFolderForRoot = sharedFolder();
  afterAll(async () => {
    for (const { gateway } of sites.values()) await gateway.close();
  });

  /** A copy of a device that has joined, or a card with the code alone. */
  function deviceOf(authority: Authority, isJoined = true) {
    const site = sites.get(authority);
    if (!site) throw new Error('no site');
    const folder = temporaryFolder();
    if (isJoined) cpSync(site.joined, folder, { recursive: true });
    return { ...site, folder };
  }

  it.each(AUTHORITIES.flatMap((authority) => CLOCKS.map((clock) => [authority, clock] as const)))(
    'with certificates of %s, at %s, is online within 10 s, and says why',
    async (authority, clock) => {
      const { folder, env } = deviceOf(authority);
      const began = performance.now();
      const agent = startAt(clock, folder, env);
      await agent.ready();
      const took = performance.now() - began;
      const line = await agent.logged('clock wrong; using the time of the gateway');
      expect(line).toMatchObject({ level: 'warn' });
      const { clock: shown, session } = await statusOf(agent);
      expect(session.state).toBe('online');
      const ahead = (Date.parse(`${clock.replace(' ', 'T')}Z`) - Date.now()) / 1000;
      expect(shown).toMatchObject({ source: 'gateway', problem: null });
      expect(Math.abs((shown.system_ahead_seconds ?? 0) - ahead)).toBeLessThan(120);
      expect(took).toBeLessThan(10_000);
      await agent.end();
    },
  );

  it.each(AUTHORITIES)('joins with a code, with certificates of %s', async (authority) => {
    const { folder, env, code } = deviceOf(authority, false);
    const agent = startAt('1970-01-01 00:00:05', folder, { ...env, AGENT_JOIN_CODE: code, AGENT_NAME: 'new' });
    await agent.ready();
    await agent.end();
  });

  it('sees it in doctor and status', async () => {
    const { folder } = deviceOf('own');
    const agent = startAt('1970-01-01 00:00:05', folder, {});
    const api = await agent.ready();
    const env = { AGENT_GATEWAY: 'remote', AGENT_PORT: new URL(api).port };
    const status = await deviceAgent(['status'], folder, env);
    expect(status.stdout).toMatch(/Clock +wrong on this machine \(\d+.* behind\)/);
    expect(status.code).toBe(0);
    const doctor = await deviceAgent(['doctor', '--json'], folder, { ...env, ...fakeClock('1970-01-01 00:00:05') });
    expect(JSON.parse(doctor.stdout)).toMatchObject({
      findings: expect.arrayContaining([
        expect.objectContaining({
          check: 'clock',
          status: 'failed',
          detail: expect.stringContaining('the gateway proves'),
        }),
        expect.objectContaining({
          check: 'gateway',
          status: 'ok',
          detail: expect.stringContaining('at the time that it proves'),
        }),
      ]),
    });
    await agent.end();
  });

  it('stays offline, and sends nothing, when somebody else answers with a certificate that is out of date', async () => {
    const { folder } = deviceOf('own');
    const ca = await issueCertificate({ subject: 'CN=device-agent local CA', ca: true });
    const names = ['localhost', 'api.localhost', 'connect.localhost'];
    const leaf = await issueCertificate({ subject: 'CN=localhost', names, issuer: ca });
    const received: string[] = [];
    const middle = createServer({ cert: leaf.certificatePem, key: leaf.privateKeyPem }, (req, res) => {
      received.push(`${req.method} ${req.url}`);
      res.statusCode = 404;
      res.end();
    });
    middle.on('tlsClientError', () => {});
    const port = await serving(middle);
    onTestFinished(() => void middle.closeAllConnections());
    const env = { NGROK_SERVER_ADDR: `localhost:${port}` };
    const agent = startAt('1970-01-01 00:00:05', folder, env);
    const failed = await agent.logged('session attempt failed; retrying');
    expect(String(failed.reason)).toContain('not trusted');
    expect(received).toEqual([]);
    await agent.end();
  });
});
